/* SPDX-License-Identifier: BSD-3-Clause */
/* cpu.h: the processors that this process has. Thread: any. */
#ifndef UMI_CPU_H
#define UMI_CPU_H

/* How many processors may this process use together with others like it? Those
 * of its affinity mask, and no more than its control groups give it the time
 * of; at least 1. A mask of a single processor says nothing: a process is often
 * pinned to a processor of its own. Reads files; about 50 us. */
unsigned umi_cpu_count(void);

#endif
