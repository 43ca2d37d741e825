/* SPDX-License-Identifier: BSD-3-Clause */
/* observe.c: umx/observe.h. What it reads is recorded in util. */
#include <umx/observe.h>

#include "core/worker.h"
#include "util/page.h"

size_t
umx_observe_workers(umx_worker_numbers *numbers, size_t max)
{
    return umi_page_read(numbers, max);
}

uint64_t
umx_worker_number(const umx_worker *worker)
{
    return worker->slot->number;
}
