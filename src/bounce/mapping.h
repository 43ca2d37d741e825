/* SPDX-License-Identifier: BSD-3-Clause */
/* mapping.h: the slots of a peer, as its receivers map them. Thread: the
 * worker's owner. */
#ifndef UMI_BOUNCE_MAPPING_H
#define UMI_BOUNCE_MAPPING_H

#include "bounce/note.h"
#include "keys/segment.h"

struct umi_link;

/* What a link has of its peer's slots. */
typedef struct umi_bounce_link {
    umi_segment *segment; /* NULL: not mapped */
    char        *data;
    uint64_t     memory; /* its name */
    bool         is_pinned;
    int          pinned_by;  /* in whose context; UMX_DEVICE_NONE: not tried */
    umi_list     pools;      /* of devices, mapped */
    bool         is_refused; /* the driver maps none for this process */
} umi_bounce_link;

void umi_bounce_init_link(struct umi_link *link, umi_bounce_link *bounce);
void umi_bounce_fini_link(struct umi_link *link);

/* Map the segment that a note names, unless it is mapped. False: it cannot be.
 */
bool umi_bounce_map(const struct umi_link *link, const umi_bounce_note *note);

/* Let copies of a device read the mapped segment without the CPU. */
void umi_bounce_pin(umi_bounce_link *bounce, int device);

/* Map the slots of a device of the peer's for copies of `device`. NULL: they
 * cannot be mapped. */
const char *umi_bounce_map_device(umi_bounce_link       *bounce,
                                  const umi_cuda_handle *handle, int device);

#endif
