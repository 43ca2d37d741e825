/* SPDX-License-Identifier: BSD-3-Clause */
/* descriptors.h: are there descriptors left? UCX aborts the process if it finds
 * none in some places. Thread: any. */
#ifndef UMI_DESCRIPTORS_H
#define UMI_DESCRIPTORS_H

#include <stdbool.h>

enum {
    /* What an endpoint of UCX, or a connection, takes for a while. */
    UMI_DESCRIPTORS_OF_EP = 8
};

/* True if the process may open `count` descriptors more now. */
bool umi_descriptors_are_left(unsigned count);

/* Tell whether UMI_DESCRIPTORS_OF_EP more can be opened. This costs little
 * while `fd`, which is the newest descriptor, is far from the limit: the system
 * gives out the lowest that is free. */
bool umi_descriptors_are_left_after(int fd);

/* How many a worker of UCX may take for a while: some for itself, and some for
 * each network interface and device. */
unsigned umi_descriptors_of_engine(void);

#endif
