/* SPDX-License-Identifier: BSD-3-Clause */
/* spill.c: a file for what is too much for memory.
 *
 * The file consists of extents, which are mapped. Chunks fill an extent one
 * after the other, so what a chunk costs is a copy; room is allocated and
 * mapped, and peers get a key to it, once for each extent. Room is allocated
 * before it is mapped, so a full disk is an error of umi_shuffle_spill_alloc(),
 * and not a signal later.
 *
 * An extent that is over is used again. File systems may write what is in it to
 * the disk before they make a hole of it, so that is done only when the disk is
 * full. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shuffle/shuffle.h"
#include "util/count.h"
#include "util/log.h"
#include "util/refcnt.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE \
    23 /* older kernels refuse it, and nothing is lost */
#endif

enum {
    EXTENT      = 1 << 20, /* bytes; a larger chunk has one of its own */
    NUM_CLASSES = 160,     /* of sizes, from EXTENT to 2**60 */
    NO_CLASS    = NUM_CLASSES
};

struct umi_shuffle_spill {
    int                 fd;
    size_t              page;
    size_t              end; /* of what has been allocated */
    umi_shuffle_extent *current[UMI_SHUFFLE_NUM_WAYS];
    umi_shared_refs     refs; /* the shuffler's, and of each extent in use */
    pthread_mutex_t     lock; /* of the extents that are not in use */
    umi_shuffle_extent *unused[NUM_CLASSES];
};

/* ---- the file ------------------------------------------------------------
 */

/* Open a file without a name in `dir`, or remove its name at once. */
static int
open_file(const char *dir)
{
    char path[4096];
    int  fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
        return fd;
    }
    if (snprintf(path, sizeof(path), "%s/ucp-spill-XXXXXX", dir) >=
        (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) {
        (void)unlink(path);
    }
    return fd;
}

umi_shuffle_spill *
umi_shuffle_spill_new(const char *dir, int *error)
{
    umi_shuffle_spill *spill = calloc(1, sizeof(*spill));

    if (spill == NULL) {
        *error = ENOMEM;
        return NULL;
    }
    spill->fd = open_file(dir);
    if (spill->fd < 0) {
        *error = errno;
        free(spill);
        return NULL;
    }
    spill->page = (size_t)sysconf(_SC_PAGESIZE);
    (void)pthread_mutex_init(&spill->lock, NULL);
    umi_shared_refs_init(&spill->refs);
    return spill;
}

static umi_shuffle_extent *
take_unused(umi_shuffle_spill *spill, unsigned number)
{
    umi_shuffle_extent *extent;

    (void)pthread_mutex_lock(&spill->lock);
    extent = spill->unused[number];
    if (extent != NULL) {
        spill->unused[number] = extent->next;
    }
    (void)pthread_mutex_unlock(&spill->lock);
    return extent;
}

static void
put_spill(umi_shuffle_spill *spill)
{
    if (!umi_shared_refs_put(&spill->refs)) {
        return;
    }
    for (unsigned i = 0; i < NUM_CLASSES; i++) {
        umi_shuffle_extent *extent;

        while ((extent = take_unused(spill, i)) != NULL) {
            (void)munmap(extent->data, extent->size);
            free(extent);
        }
    }
    (void)close(spill->fd);
    (void)pthread_mutex_destroy(&spill->lock);
    free(spill);
}

void
umi_shuffle_spill_put(umi_shuffle_spill *spill)
{
    umi_shuffle_spill_fill(spill);
    put_spill(spill);
}

/* Allocate and map `size` bytes at the end of the file. */
static int
grow(umi_shuffle_spill *spill, size_t size, void **data_p)
{
    size_t at = spill->end;
    void  *data;
    int    error;

    do {
        error = posix_fallocate(spill->fd, (off_t)at, (off_t)size);
    } while (error == EINTR);
    if (error == 0) {
        data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, spill->fd,
                    (off_t)at);
        if (data != MAP_FAILED) {
            umi_log((spill->end == 0) ? UMI_LOG_INFO : UMI_LOG_DEBUG,
                    "shuffle: its memory is full, and chunks go to a file; it "
                    "has %zu bytes now",
                    spill->end + size);
            spill->end += size;
            *data_p = data;
            return 0;
        }
        error = errno;
    }
    /* some of it may have been allocated */
    (void)!ftruncate(spill->fd, (off_t)at);
    return error;
}

/* ---- extents -------------------------------------------------------------
 */

/* The size of an extent for `len` bytes: four sizes from each power of two to
 * the next. NO_CLASS: it would be too large. */
static unsigned
class_of(size_t len, size_t *size_p)
{
    size_t   size = EXTENT, step = EXTENT / 4;
    unsigned number = 0;

    while (size < len && number < NUM_CLASSES) {
        size += step;
        number++;
        step *= (number % 4 == 0) ? 2 : 1;
    }
    *size_p = size;
    return number;
}

/* Give the extent back to the file system. */
static void
punch(umi_shuffle_extent *extent)
{
    (void)munmap(extent->data, extent->size);
    (void)fallocate(extent->spill->fd,
                    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)extent->at, (off_t)extent->size);
    free(extent);
}

/* Give back what is not in use. False: there was nothing. */
static bool
punch_unused(umi_shuffle_spill *spill)
{
    umi_shuffle_extent *extent;
    bool                had_some = false;

    for (unsigned i = 0; i < NUM_CLASSES; i++) {
        while ((extent = take_unused(spill, i)) != NULL) {
            punch(extent);
            had_some = true;
        }
    }
    return had_some;
}

/* Get memory of the file for `len` bytes. */
static int
grow_for(umi_shuffle_spill *spill, size_t len, umi_shuffle_extent *extent)
{
    int error;

    extent->number = class_of(len, &extent->size);
    if (extent->number == NO_CLASS) {
        return ENOMEM;
    }
    error = grow(spill, extent->size, &extent->data);
    if (error != 0 && punch_unused(spill)) {
        error = grow(spill, extent->size, &extent->data);
    }
    if (error != 0) {
        /* The disk may have room for the chunk alone. */
        extent->number = NO_CLASS;
        extent->size   = (len + spill->page - 1) / spill->page * spill->page;
        error          = grow(spill, extent->size, &extent->data);
    }
    extent->at = spill->end - extent->size;
    return error;
}

static int
make_extent(umi_shuffle_spill *spill, size_t len, umi_shuffle_extent **extent_p)
{
    umi_shuffle_extent *extent = calloc(1, sizeof(*extent));
    int                 error;

    if (extent == NULL) {
        return ENOMEM;
    }
    error = grow_for(spill, len, extent);
    if (error != 0) {
        free(extent);
        return error;
    }
    extent->spill = spill;
    *extent_p     = extent;
    return 0;
}

static int
get_extent(umi_shuffle_spill *spill, size_t len, umi_shuffle_extent **extent_p)
{
    size_t              size;
    unsigned            number = class_of(len, &size);
    umi_shuffle_extent *extent = NULL;
    int                 error  = 0;

    if (number != NO_CLASS) {
        extent = take_unused(spill, number);
    }
    if (extent == NULL) {
        error = make_extent(spill, len, &extent);
        if (error != 0) {
            return error;
        }
    }
    if (number == 0) {
        /* Small chunks fill it: page faults for each would cost more. */
        (void)madvise(extent->data, extent->size, MADV_POPULATE_WRITE);
    }
    extent->used          = 0;
    extent->is_full       = false;
    extent->num_unwritten = 0;
    umi_shared_refs_init(&extent->refs);
    umi_shared_refs_get(&spill->refs);
    *extent_p = extent;
    return 0;
}

void
umi_shuffle_extent_put(umi_shuffle_extent *extent)
{
    umi_shuffle_spill *spill = extent->spill;

    if (!umi_shared_refs_put(&extent->refs)) {
        return;
    }
    if (extent->number == NO_CLASS) {
        punch(extent);
    } else {
        (void)madvise(extent->data, extent->size, MADV_DONTNEED);
        (void)pthread_mutex_lock(&spill->lock);
        extent->next                  = spill->unused[extent->number];
        spill->unused[extent->number] = extent;
        (void)pthread_mutex_unlock(&spill->lock);
    }
    put_spill(spill);
}

/* Let the system write the bytes to the file, and take their memory, when all
 * of them are there. */
static void
let_go(const umi_shuffle_extent *extent)
{
    if (extent->is_full && extent->num_unwritten == 0) {
        (void)madvise(extent->data, extent->size, MADV_DONTNEED);
    }
}

void
umi_shuffle_extent_written(umi_shuffle_extent *extent)
{
    UMI_DECREMENT(extent->num_unwritten);
    let_go(extent);
}

void
umi_shuffle_extent_close(umi_shuffle_extent *extent)
{
    umx_memh *memh = extent->memh;

    if (extent->is_full && extent->num_lent == 0 && memh != NULL) {
        extent->memh = NULL;
        umx_memh_release(memh);
    }
}

/* Nothing more is put into the extent. */
static void
fill(umi_shuffle_spill *spill, umi_shuffle_way way)
{
    umi_shuffle_extent *extent = spill->current[way];

    if (extent != NULL) {
        spill->current[way] = NULL;
        extent->is_full     = true;
        let_go(extent);
        umi_shuffle_extent_close(extent);
        umi_shuffle_extent_put(extent);
    }
}

void
umi_shuffle_spill_fill(umi_shuffle_spill *spill)
{
    for (int way = 0; way < UMI_SHUFFLE_NUM_WAYS; way++) {
        fill(spill, (umi_shuffle_way)way);
    }
}

int
umi_shuffle_spill_alloc(umi_shuffle_spill *spill, umi_shuffle_way way,
                        size_t len, umi_shuffle_extent **extent_p,
                        void **data_p)
{
    umi_shuffle_extent *extent = spill->current[way];
    int                 error;

    if (extent == NULL || len > extent->size - extent->used) {
        error = get_extent(spill, len, &extent);
        if (error != 0) {
            return error;
        }
        fill(spill, way);
        spill->current[way] = extent;
    }
    *data_p = (char *)extent->data + extent->used;
    extent->used += (len + UMI_SHUFFLE_SPILL_ALIGN - 1) /
                    UMI_SHUFFLE_SPILL_ALIGN * UMI_SHUFFLE_SPILL_ALIGN;
    extent->num_unwritten++;
    umi_shared_refs_get(&extent->refs);
    *extent_p = extent;
    if (extent->used >= extent->size) {
        extent->used = extent->size;
        fill(spill, way);
    }
    return 0;
}
