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

/* True if `pid` is this process. */
bool umi_process_is_self(pid_t pid);

#endif
