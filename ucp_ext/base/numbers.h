/* SPDX-License-Identifier: BSD-3-Clause */
/* numbers.h: the counters of a worker, by their names. */
#ifndef UCP_EXT_BASE_NUMBERS_H
#define UCP_EXT_BASE_NUMBERS_H

#include "base/compat.h"

#include <umx/observe.h>

/* A new dict of the counters. */
PyObject *numbers_as_dict(const umx_worker_stats *stats);

#endif
