/* SPDX-License-Identifier: BSD-3-Clause */
/* spill.c: a file for what is too much for memory. Its room is allocated before
 * it is mapped, so a full disk is an error of umi_shuffle_spill_alloc(), and
 * not a signal later; what is given back becomes a hole. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shuffle/shuffle.h"

struct umi_shuffle_spill {
    int         fd;
    size_t      page;
    size_t      end; /* of what has been allocated */
    atomic_uint refs;
};

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
    atomic_init(&spill->refs, 1);
    return spill;
}

void
umi_shuffle_spill_put(umi_shuffle_spill *spill)
{
    if (atomic_fetch_sub_explicit(&spill->refs, 1, memory_order_acq_rel) == 1) {
        (void)close(spill->fd);
        free(spill);
    }
}

static size_t
round_up(const umi_shuffle_spill *spill, size_t len)
{
    return (len + spill->page - 1) / spill->page * spill->page;
}

int
umi_shuffle_spill_alloc(umi_shuffle_spill *spill, size_t len, void **data_p,
                        size_t *at_p)
{
    size_t size = round_up(spill, len), at = spill->end;
    int    error;
    void  *data;

    if (size < len) {
        return ENOMEM;
    }
    do {
        error = posix_fallocate(spill->fd, (off_t)at, (off_t)size);
    } while (error == EINTR);
    if (error != 0) {
        /* some of it may have been allocated */
        (void)!ftruncate(spill->fd, (off_t)at);
        return error;
    }
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, spill->fd,
                (off_t)at);
    if (data == MAP_FAILED) {
        error = errno;
        (void)!ftruncate(spill->fd, (off_t)at);
        return error;
    }
    spill->end += size;
    atomic_fetch_add_explicit(&spill->refs, 1, memory_order_relaxed);
    *data_p = data;
    *at_p   = at;
    return 0;
}

void
umi_shuffle_spill_free(umi_shuffle_spill *spill, void *data, size_t at,
                       size_t len)
{
    size_t size = round_up(spill, len);

    (void)munmap(data, size);
    (void)fallocate(spill->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)at, (off_t)size);
    umi_shuffle_spill_put(spill);
}

void
umi_shuffle_spill_let_go(void *data, size_t len)
{
    (void)madvise(data, len, MADV_DONTNEED);
}
