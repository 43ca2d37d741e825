/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c: memory of devices, managed, pinned and registered. That of a device
 * lies in one file of memory, mapped twice: where the bytes are, and at the
 * addresses that programs get, which nobody can touch. A page that is no memory
 * lies behind each allocation. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin/internal.h"

enum {
    PAGE   = 4096,
    FILLED = 1 << 20 /* bytes of new memory that are not zeros */
};

typedef struct arena {
    int    fd;
    char  *at, *real;
    size_t size, used, cursor;
} arena;

static range   *ranges;
static arena    arenas[STANDIN_MAX_DEVICES];
static uint64_t last_id;

static size_t
whole_pages(size_t len)
{
    return (len + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* ---- ranges --------------------------------------------------------------
 */

range *
standin_ranges(void)
{
    return ranges;
}

range *
standin_find(cu_pointer pointer)
{
    range *r = ranges;

    while (r != NULL && (pointer < (uintptr_t)r->at ||
                         pointer - (uintptr_t)r->at >= r->len)) {
        r = r->next;
    }
    return r;
}

bool
standin_is_of_device(const range *r)
{
    return r != NULL && r->device >= 0 && r->kind != KIND_PINNED &&
           r->kind != KIND_REGISTERED;
}

void
standin_keep(range r)
{
    range *kept = malloc(sizeof(*kept));

    if (kept == NULL) {
        abort();
    }
    r.next = ranges;
    r.id   = ++last_id;
    r.refs = 1;
    *kept  = r;
    ranges = kept;
}

static bool
is_counted(kind of)
{
    return of == KIND_DEVICE || of == KIND_MANAGED || of == KIND_PINNED;
}

/* Whoever has been told of memory that was exported finds it gone. */
static void
free_in_arena(const range *r)
{
    arena *a = &arenas[r->device];

    if (r->slot >= 0) {
        ((arena_head *)a->real)->ids[r->slot] = 0;
    }
    a->used -= r->size;
    (void)fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)r->offset, (off_t)r->size);
}

static void
drop(range **link)
{
    range *r = *link;

    *link = r->next;
    standin.allocations -= is_counted(r->kind);
    if (r->kind == KIND_DEVICE) {
        free_in_arena(r);
    } else if (r->kind == KIND_IMPORTED) {
        munmap(r->real, r->size);
        if (r->at != r->real) {
            munmap(r->at, r->size);
        }
    } else if (r->kind == KIND_PINNED || r->kind == KIND_MANAGED) {
        free(r->real);
    }
    standin_discard(r);
}

bool
standin_drop(const void *at, kind of)
{
    for (range **link = &ranges; *link != NULL; link = &(*link)->next) {
        if ((*link)->at == at && (*link)->kind == of) {
            if (--(*link)->refs == 0) {
                drop(link);
            }
            return true;
        }
    }
    return false;
}

void
standin_drop_of(const cu_context *context)
{
    range **link = &ranges;

    while (*link != NULL) {
        if ((*link)->context == context) {
            drop(link);
        } else {
            link = &(*link)->next;
        }
    }
}

void
standin_add(void *data, size_t len, int device, bool is_managed)
{
    standin_acquire();
    standin_keep((range){.at         = data,
                         .real       = data,
                         .len        = len,
                         .kind       = KIND_ADDED,
                         .device     = device,
                         .is_managed = is_managed});
    standin_release_lock();
}

void
standin_remove(const void *data)
{
    standin_acquire();
    if (!standin_drop(data, KIND_ADDED)) {
        abort();
    }
    standin_release_lock();
}

/* ---- files of memory -----------------------------------------------------
 */

bool
standin_map(int fd, size_t offset, size_t size, char **at_p, char **real_p)
{
    char *real = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
    char *at   = real;

    if (real == MAP_FAILED) {
        return false;
    }
    if (!standin_set.is_open) {
        at = mmap(NULL, size, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
            munmap(real, size);
            return false;
        }
    }
    *at_p   = at;
    *real_p = real;
    return true;
}

/* Twice what there is of memory, so that freed addresses are rarely memory
 * again. */
static bool
open_arena(arena *a)
{
    size_t size = ARENA_HEAD + 2 * whole_pages(standin_set.memory);
    int    fd;

    if (a->real != NULL) {
        return true;
    }
    fd = memfd_create("standin", MFD_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    if (ftruncate(fd, (off_t)size) != 0 ||
        !standin_map(fd, 0, size, &a->at, &a->real)) {
        close(fd);
        return false;
    }
    a->fd                          = fd;
    a->size                        = size;
    a->cursor                      = ARENA_HEAD;
    ((arena_head *)a->real)->magic = ARENA_MAGIC;
    return true;
}

arena_head *
standin_arena(int device, int *fd_p)
{
    *fd_p = arenas[device].fd;
    return (arena_head *)arenas[device].real;
}

/* What lies there or begins right behind. */
static const range *
in_the_way(int device, size_t offset, size_t size)
{
    const range *r = ranges;

    while (r != NULL && (r->kind != KIND_DEVICE || r->device != device ||
                         r->offset > offset + size ||
                         r->offset + r->size + PAGE <= offset)) {
        r = r->next;
    }
    return r;
}

/* Behind the newest, or where there is a place. */
static bool
find_place(int device, size_t size, size_t *offset_p)
{
    arena *a = &arenas[device];

    for (int pass = 0; pass < 2; pass++) {
        size_t offset = (pass == 0) ? a->cursor : ARENA_HEAD;

        while (offset + size <= a->size) {
            const range *other = in_the_way(device, offset, size);

            if (other == NULL) {
                a->cursor = offset + size + PAGE;
                *offset_p = offset;
                return true;
            }
            offset = other->offset + other->size + PAGE;
        }
    }
    return false;
}

int
standin_allocate(int device, size_t len, cu_pool *pool, range **range_p)
{
    arena *a    = &arenas[device];
    size_t size = whole_pages(len);
    size_t offset;

    if (len == 0) {
        return INVALID_VALUE;
    }
    if (len > standin_set.memory || a->used + size > standin_set.memory ||
        !open_arena(a) || !find_place(device, size, &offset)) {
        return OUT_OF_MEMORY;
    }
    a->used += size;
    memset(a->real + offset, 0xee, len < FILLED ? len : FILLED);
    standin_keep((range){.at      = a->at + offset,
                         .real    = a->real + offset,
                         .len     = len,
                         .kind    = KIND_DEVICE,
                         .device  = device,
                         .context = standin_context(),
                         .pool    = pool,
                         .offset  = offset,
                         .size    = size,
                         .slot    = -1});
    standin.allocated = device;
    standin.allocations++;
    *range_p = ranges;
    return OK;
}

/* ---- the driver ----------------------------------------------------------
 */

int
cuMemAlloc_v2(cu_pointer *pointer_p, size_t len)
{
    range *r;
    int    result;

    ENTER(CONTEXT | UNSAFE);
    result = standin_allocate(standin_current(), len, NULL, &r);
    if (result == OK) {
        *pointer_p = (uintptr_t)r->at;
    }
    LEAVE(result);
}

/* Memory of the host that devices reach too. */
static int
allocate_host(void **data_p, size_t len, kind of)
{
    void *data;

    if (len == 0) {
        return INVALID_VALUE;
    }
    if (posix_memalign(&data, PAGE, len) != 0) {
        return OUT_OF_MEMORY;
    }
    memset(data, 0xee, len < FILLED ? len : FILLED);
    standin_keep((range){.at         = data,
                         .real       = data,
                         .len        = len,
                         .kind       = of,
                         .device     = standin_current(),
                         .is_managed = of == KIND_MANAGED,
                         .context    = standin_context()});
    standin.allocated = standin_current();
    standin.allocations++;
    *data_p = data;
    return OK;
}

int
cuMemAllocManaged(cu_pointer *pointer_p, size_t len, unsigned flags)
{
    void *data;
    int   result;

    (void)flags;
    ENTER(CONTEXT | UNSAFE);
    result = allocate_host(&data, len, KIND_MANAGED);
    if (result == OK) {
        *pointer_p = (uintptr_t)data;
    }
    LEAVE(result);
}

int
cuMemHostAlloc(void **data_p, size_t len, unsigned flags)
{
    (void)flags;
    ENTER(CONTEXT | UNSAFE);
    LEAVE(allocate_host(data_p, len, KIND_PINNED));
}

int
cuMemAllocHost_v2(void **data_p, size_t len)
{
    ENTER(CONTEXT | UNSAFE);
    LEAVE(allocate_host(data_p, len, KIND_PINNED));
}

/* What is queued may use it: it is waited for. */
static int
free_range(const void *at, kind of)
{
    const range *r = standin_find((uintptr_t)at);

    if (r == NULL || r->at != at || r->kind != of) {
        return INVALID_VALUE;
    }
    standin_drain(of == KIND_DEVICE ? r->context : NULL);
    return standin_drop(at, of) ? OK : INVALID_VALUE;
}

int
cuMemFree_v2(cu_pointer pointer)
{
    const void *at = (void *)(uintptr_t)pointer;
    int         result;

    ENTER(CONTEXT | UNSAFE);
    if (pointer == 0) {
        LEAVE(OK);
    }
    result = free_range(at, KIND_DEVICE);
    LEAVE(result == OK ? OK : free_range(at, KIND_MANAGED));
}

int
cuMemFreeHost(void *data)
{
    ENTER(UNSAFE);
    LEAVE(free_range(data, KIND_PINNED));
}

int
cuMemHostRegister_v2(void *data, size_t len, unsigned flags)
{
    (void)flags;
    ENTER(CONTEXT | UNSAFE);
    if (data == NULL || len == 0) {
        LEAVE(INVALID_VALUE);
    }
    for (const range *r = ranges; r != NULL; r = r->next) {
        if ((char *)data < r->at + r->len && r->at < (char *)data + len) {
            LEAVE(ALREADY_REGISTERED);
        }
    }
    standin_keep((range){.at      = data,
                         .real    = data,
                         .len     = len,
                         .kind    = KIND_REGISTERED,
                         .device  = standin_current(),
                         .context = standin_context()});
    LEAVE(OK);
}

int
cuMemHostUnregister(void *data)
{
    ENTER(UNSAFE);
    LEAVE(free_range(data, KIND_REGISTERED) == OK ? OK : NOT_REGISTERED);
}

int
cuMemHostGetDevicePointer_v2(cu_pointer *pointer_p, void *data, unsigned flags)
{
    (void)flags;
    ENTER(0);
    if (standin_find((uintptr_t)data) == NULL) {
        LEAVE(INVALID_VALUE);
    }
    *pointer_p = (uintptr_t)data;
    LEAVE(OK);
}

int
cuMemGetInfo_v2(size_t *free_p, size_t *total_p)
{
    ENTER(CONTEXT);
    *total_p = standin_set.memory;
    *free_p  = standin_set.memory - arenas[standin_current()].used;
    LEAVE(OK);
}
