/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/segment.h"

#include <errno.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#include "core/status.h"

umx_status
umi_segment_create(size_t len, umi_segment **segment_p, int *number_p)
{
    void *address;
    int   number;

    if (len > SIZE_MAX - UMI_SEGMENT_HEADER) {
        return UMX_ERR_NO_MEMORY;
    }
    number = shmget(IPC_PRIVATE, len + UMI_SEGMENT_HEADER, IPC_CREAT | 0600);
    if (number < 0) {
        return umi_status_from_errno(errno);
    }
    address = shmat(number, NULL, 0);
    /* From here on the segment goes with its last user. */
    (void)shmctl(number, IPC_RMID, NULL);
    if (address == (void *)-1) {
        return umi_status_from_errno(errno);
    }
    *segment_p = address;
    *number_p  = number;
    return UMX_OK;
}

void
umi_segment_publish(umi_segment *segment, uint64_t context, uint64_t memory,
                    size_t len)
{
    segment->context = context;
    segment->memory  = memory;
    segment->length  = len;
    segment->magic   = UMI_SEGMENT_MAGIC;
}

/* Map a segment and check it. While we have it mapped its number is nobody
 * else's: so map first, ask for the size, and only then look. */
umi_segment *
umi_segment_map(int number, uint64_t context, uint64_t memory, size_t len)
{
    umi_segment    *segment = shmat(number, NULL, 0);
    struct shmid_ds info;

    if (segment == (void *)-1) {
        return NULL;
    }
    if (shmctl(number, IPC_STAT, &info) != 0 ||
        info.shm_segsz < UMI_SEGMENT_HEADER ||
        info.shm_segsz - UMI_SEGMENT_HEADER < len ||
        segment->magic != UMI_SEGMENT_MAGIC || segment->context != context ||
        segment->memory != memory || segment->length != len ||
        umi_segment_is_closed(segment)) {
        umi_segment_unmap(segment);
        return NULL;
    }
    return segment;
}

void
umi_segment_unmap(umi_segment *segment)
{
    (void)shmdt(segment);
}
