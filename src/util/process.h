/* SPDX-License-Identifier: BSD-3-Clause */
/* process.h: what the system says of this process. Thread: any. */
#ifndef UMI_PROCESS_H
#define UMI_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes; 0 where the system does not say. */
typedef struct umi_memory {
    uint64_t rss; /* of the process: now, and at most so far */
    uint64_t peak;
    uint64_t total; /* of the host */
    uint64_t available;
} umi_memory;

void umi_process_memory(umi_memory *memory);

typedef enum umi_process_state {
    UMI_PROCESS_UNKNOWN, /* the system does not say */
    UMI_PROCESS_RUNS,    /* or could, if there was something to do */
    UMI_PROCESS_STOPPED, /* by a signal, or a debugger */
    UMI_PROCESS_ENDED    /* also if its parent has not been told yet */
} umi_process_state;

/* Ask the system about a process of this host. */
umi_process_state umi_process_state_of(pid_t pid);

/* True if `pid` is this process. */
bool umi_process_is_self(pid_t pid);

#endif
