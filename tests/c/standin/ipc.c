/* SPDX-License-Identifier: BSD-3-Clause */
/* ipc.c: memory of a device in another process. A handle says where its file is
 * opened there, and where it lies in that. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin/internal.h"

typedef struct handle {
    int      pid, fd, slot, physical;
    uint64_t id;
    size_t   offset, size, len;
} handle;

_Static_assert(sizeof(handle) <= sizeof(cu_ipc), "it is copied into one");

/* A word of the file's start that says whether the memory is there. */
static int
find_slot(range *r, arena_head *head)
{
    for (int i = 0; r->slot < 0 && i < ARENA_SLOTS; i++) {
        if (head->ids[i] == 0) {
            head->ids[i] = r->id;
            r->slot      = i;
        }
    }
    return r->slot;
}

int
cuIpcGetMemHandle(cu_ipc *handle_p, cu_pointer pointer)
{
    arena_head *head;
    handle      h;
    range      *r;

    ENTER(0);
    r = standin_find(pointer);
    if (r == NULL || r->kind != KIND_DEVICE || r->pool != NULL) {
        LEAVE(INVALID_VALUE);
    }
    if (!standin_set.can_export) {
        LEAVE(NOT_SUPPORTED);
    }
    memset(&h, 0, sizeof(h));
    head = standin_arena(r->device, &h.fd);
    if (find_slot(r, head) < 0) {
        LEAVE(OUT_OF_MEMORY);
    }
    h.pid      = getpid();
    h.slot     = r->slot;
    h.physical = standin_set.physical[r->device];
    h.id       = r->id;
    h.offset   = r->offset;
    h.size     = r->size;
    h.len      = r->len;
    memset(handle_p, 0, sizeof(*handle_p));
    memcpy(handle_p, &h, sizeof(h));
    LEAVE(OK);
}

/* Its file is still open there, and the memory has not been freed. */
static bool
is_there(int fd, const handle *h)
{
    uint64_t word = 0;
    bool     is   = h->slot >= 0 && h->slot < ARENA_SLOTS &&
              pread(fd, &word, 8, 0) == 8 && word == ARENA_MAGIC;

    return is && pread(fd, &word, 8, 8 + 8 * (off_t)h->slot) == 8 &&
           word == h->id;
}

/* The ordinal here of a device; one that is not visible: the current one's. */
static int
ordinal_of(int physical)
{
    for (int i = 0; i < standin_set.num_devices; i++) {
        if (standin_set.physical[i] == physical) {
            return i;
        }
    }
    return standin_current();
}

static range *
find_imported(const cu_ipc *which)
{
    range *r = standin_ranges();

    while (r != NULL && (r->kind != KIND_IMPORTED ||
                         memcmp(&r->handle, which, sizeof(*which)) != 0)) {
        r = r->next;
    }
    return r;
}

static int
import(const cu_ipc *which, const handle *h)
{
    char path[64], *at, *real;
    int  fd;
    bool is;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", h->pid, h->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return INVALID_VALUE;
    }
    is = is_there(fd, h) && standin_map(fd, h->offset, h->size, &at, &real);
    close(fd);
    if (!is) {
        return INVALID_VALUE;
    }
    standin_keep((range){.at      = at,
                         .real    = real,
                         .len     = h->len,
                         .kind    = KIND_IMPORTED,
                         .device  = ordinal_of(h->physical),
                         .context = standin_context(),
                         .size    = h->size,
                         .slot    = -1,
                         .handle  = *which});
    return OK;
}

int
cuIpcOpenMemHandle_v2(cu_pointer *pointer_p, cu_ipc which, unsigned flags)
{
    handle h;
    range *r;
    int    result = OK;

    (void)flags;
    ENTER(CONTEXT | UNSAFE);
    memcpy(&h, &which, sizeof(h));
    if (!standin_set.can_import) {
        LEAVE(NOT_SUPPORTED);
    }
    if (h.pid == getpid()) {
        LEAVE(INVALID_CONTEXT);
    }
    if (!standin_set.has_peers &&
        h.physical != standin_set.physical[standin_current()]) {
        LEAVE(PEER_UNSUPPORTED);
    }
    r = find_imported(&which);
    if (r != NULL) {
        r->refs++;
    } else {
        result = import(&which, &h);
        r      = standin_ranges();
    }
    if (result == OK) {
        *pointer_p = (uintptr_t)r->at;
    }
    LEAVE(result);
}

int
cuIpcCloseMemHandle(cu_pointer pointer)
{
    const range *r;

    ENTER(UNSAFE);
    r = standin_find(pointer);
    if (r == NULL || r->kind != KIND_IMPORTED ||
        r->at != (char *)(uintptr_t)pointer) {
        LEAVE(INVALID_VALUE);
    }
    standin_drain(NULL);
    LEAVE(standin_drop(r->at, KIND_IMPORTED) ? OK : INVALID_VALUE);
}
