/* SPDX-License-Identifier: BSD-3-Clause */
#include "keys/segment.h"

#include <errno.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <unistd.h>

#include "host/segment_limit.h"
#include "host/status.h"

/* ---- the owner's ---------------------------------------------------------
 */

static umx_status
refused(int error, size_t size)
{
    umx_status status = umi_status_from_errno(error);

    switch (error) {
    case ENOSPC:
        return UMX_ERR_SEGMENT_LIMIT;
    case EINVAL:
        return umi_segments_cannot_hold(size) ? UMX_ERR_SEGMENT_LIMIT :
                                                UMX_ERR_NO_MEMORY;
    case ENOSYS:
    case EPERM:
    case EACCES:
        return UMX_ERR_UNSUPPORTED;
    default:
        return status;
    }
}

static umx_status
create(size_t size, void **address_p, int *number_p)
{
    int   number = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    void *address;

    if (number < 0) {
        return refused(errno, size);
    }
    address = shmat(number, NULL, 0);
    if (address == (void *)-1) {
        umx_status status = umi_status_from_errno(errno);

        (void)shmctl(number, IPC_RMID, NULL);
        return status;
    }
    /* From here on the segment goes with its last user. */
    (void)shmctl(number, IPC_RMID, NULL);
    *address_p = address;
    *number_p  = number;
    return UMX_OK;
}

umx_status
umi_segment_create(size_t len, umi_segment **segment_p, int *number_p)
{
    void      *address = NULL;
    umx_status status;

    if (len > SIZE_MAX - UMI_SEGMENT_HEADER) {
        return UMX_ERR_NO_MEMORY;
    }
    status = create(len + UMI_SEGMENT_HEADER, &address, number_p);
    if (status == UMX_OK) {
        *segment_p = address;
    }
    return status;
}

umx_status
umi_segment_protect(int number)
{
    struct shmid_ds info;

    if (shmctl(number, IPC_STAT, &info) != 0) {
        return umi_status_from_errno(errno);
    }
    info.shm_perm.mode = 0400;
    return (shmctl(number, IPC_SET, &info) == 0) ? UMX_OK :
                                                   umi_status_from_errno(errno);
}

umx_status
umi_segment_create_slab(size_t size, uint64_t context, void **slab_p,
                        int *number_p)
{
    umi_slab_header *header;
    umx_status       status = create(size, slab_p, number_p);

    if (status == UMX_OK) {
        header          = *slab_p;
        header->context = context;
        header->magic   = UMI_SLAB_MAGIC;
    }
    return status;
}

/* In a slab the header may be read meanwhile, with the key of what was there
 * before: the names come first, and then that it is open. */
void
umi_segment_publish(umi_segment *segment, uint64_t context, uint64_t memory,
                    size_t offset, size_t len)
{
    segment->context = context;
    segment->memory  = memory;
    segment->offset  = offset;
    segment->length  = len;
    segment->magic   = UMI_SEGMENT_MAGIC;
    atomic_store_explicit(&segment->is_ordered, 0, memory_order_relaxed);
    atomic_store_explicit(&segment->waiters, 0, memory_order_relaxed);
    atomic_store_explicit(&segment->is_closed, 0, memory_order_release);
}

bool
umi_segment_is_shared(int number)
{
    struct shmid_ds info;

    return shmctl(number, IPC_STAT, &info) != 0 || info.shm_nattch != 1;
}

/* ---- the peer's ----------------------------------------------------------
 */

/* The header that `key` means; NULL if there is none. */
static umi_segment *
find_header(void *address, size_t size, const umi_key *key)
{
    const umi_slab_header *slab = address;

    if (key->place == 0) {
        return (size < UMI_SEGMENT_HEADER) ? NULL : address;
    }
    if (size < UMI_SLAB_TABLE || slab->magic != UMI_SLAB_MAGIC ||
        slab->context != key->context || key->place >= UMI_SLAB_CELLS) {
        return NULL;
    }
    return umi_slab_cell(address, key->place);
}

/* Is it that of `key`, and its data, at `offset`, in the segment? */
static bool
is_of_key(const umi_segment *segment, const umi_key *key, size_t size,
          uint64_t offset)
{
    uint64_t first = (key->place == 0) ? UMI_SEGMENT_HEADER : UMI_SLAB_TABLE;

    return !umi_segment_is_closed(segment) && /* before its names */
           segment->magic == UMI_SEGMENT_MAGIC &&
           segment->context == key->context && segment->memory == key->memory &&
           segment->length == key->length && offset >= first &&
           offset <= size && key->length <= size - offset;
}

/* Map a segment and check it. While we have it mapped its number is nobody
 * else's: so map first, ask for the size, and only then look. */
umi_segment *
umi_segment_map(const umi_key *key, char **data_p)
{
    bool  is_readonly = (key->flags & UMI_KEY_READONLY) != 0;
    void *address     = shmat(key->segment, NULL, is_readonly ? SHM_RDONLY : 0);
    umi_segment    *segment;
    struct shmid_ds info;
    uint64_t        offset;

    if (address == (void *)-1) {
        return NULL;
    }
    if (shmctl(key->segment, IPC_STAT, &info) != 0) {
        goto unmap;
    }
    segment = find_header(address, info.shm_segsz, key);
    if (segment == NULL) {
        goto unmap;
    }
    offset = *(volatile uint64_t *)&segment->offset; /* once */
    if (is_of_key(segment, key, info.shm_segsz, offset) &&
        info.shm_perm.cuid == geteuid()) { /* the superuser may map any */
        *data_p = (char *)address + offset;
        return segment;
    }

unmap:
    (void)shmdt(address);
    return NULL;
}

void
umi_segment_unmap(void *segment, uint32_t place)
{
    (void)shmdt((char *)segment - (size_t)place * UMI_SLAB_CELL);
}
