/* SPDX-License-Identifier: BSD-3-Clause */
/* parallel.c: parts of a work in threads of their own. */
#include "data/parallel.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>

typedef struct work_part {
    umi_part_fn fn;
    void       *arg;
    size_t      number;
    pthread_t   thread;
    bool        has_thread;
} work_part;

static void *
run_part(void *arg)
{
    const work_part *part = arg;

    part->fn(part->number, part->arg);
    return NULL;
}

void
umi_parallel_run(size_t count, umi_part_fn fn, void *arg)
{
    work_part parts[UMI_PARALLEL_MAX];

    assert(count <= UMI_PARALLEL_MAX);
    for (size_t i = 1; i < count; i++) {
        parts[i]            = (work_part){.fn = fn, .arg = arg, .number = i};
        parts[i].has_thread = pthread_create(&parts[i].thread, NULL, run_part,
                                             &parts[i]) == 0;
    }
    fn(0, arg);
    for (size_t i = 1; i < count; i++) {
        if (parts[i].has_thread) {
            (void)pthread_join(parts[i].thread, NULL);
        } else {
            fn(i, arg);
        }
    }
}
