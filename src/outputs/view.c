/* SPDX-License-Identifier: BSD-3-Clause */
/* view.c: outputs that a reader reads where they are: memory that it has
 * mapped, and files, of which it maps a window at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outputs/outputs.h"
#include "outputs/window.h"

/* Read the head of the file. Returns an errno, or 0. */
static int
read_head(umi_outputs_entry *entry, int fd)
{
    int error;

    entry->words = malloc((size_t)entry->head);
    if (entry->words == NULL) {
        return ENOMEM;
    }
    error = umi_outputs_file_read(fd, entry->words, (size_t)entry->head, 0);
    if (error != 0) {
        free(entry->words);
        entry->words = NULL;
    }
    return error;
}

/* Map a whole file. Returns an errno, or 0. */
static int
map_whole(umi_outputs_entry *entry, int fd)
{
    int error;

    entry->whole = umi_outputs_extent_map(fd, 0, (size_t)entry->len, &error);
    if (entry->whole != NULL) {
        entry->words = entry->whole->data;
        entry->reader->info.num_windows++;
    }
    return error;
}

/* Open the file here. It can be read from now on whatever is put under its
 * name: one that is no longer than a window is mapped, and of a longer one the
 * descriptor is kept. Returns an errno, or 0. */
static int
open_here(umi_outputs_entry *entry, const umi_outputs_where *where)
{
    int error;
    int fd = umi_outputs_file_open(where->path, where->path_len, &entry->id,
                                   &error);

    if (fd < 0) {
        return error;
    }
    if (entry->len <= umi_outputs_window_size(entry->reader->outputs)) {
        error = map_whole(entry, fd);
        (void)close(fd);
        return error;
    }
    error = read_head(entry, fd);
    if (error != 0) {
        (void)close(fd);
        return error;
    }
    entry->fd = fd;
    return 0;
}

umx_status
umi_outputs_entry_open_file(umi_outputs_entry       *entry,
                            const umi_outputs_where *where,
                            umx_outputs_trouble *trouble, int *error)
{
    const umx_outputs_reader *reader = entry->reader;
    bool is_own = entry->rank == reader->outputs->joint.rank;

    if (is_own || (reader->flags & UMX_OUTPUTS_READER_FLAG_ELSEWHERE) == 0) {
        *error = open_here(entry, where);
        if (*error == 0) {
            return UMX_OK;
        }
        if (*error == ENOMEM) {
            return UMX_ERR_NO_MEMORY;
        }
        *trouble = (*error == ESTALE) ? UMX_OUTPUTS_CHANGED : UMX_OUTPUTS_LOST;
        if (is_own) {
            return UMX_ERR_IO_ERROR;
        }
    }
    /* The file may be of another host. */
    return umi_outputs_entry_get_head(entry);
}

void
umi_outputs_entry_close_file(umi_outputs_entry *entry)
{
    if (entry->window != NULL) {
        umi_outputs_extent_put(entry->window);
    }
    if (entry->fd >= 0) {
        (void)close(entry->fd);
    }
}

static bool
covers(const umi_outputs_extent *extent, uint64_t offset, uint64_t len)
{
    return extent != NULL && offset >= extent->offset &&
           offset - extent->offset <= extent->len &&
           len <= extent->len - (offset - extent->offset);
}

/* Map the window with those bytes; a longer piece, or one that lies in two, is
 * mapped by itself. */
static umi_outputs_extent *
map_window(umi_outputs_entry *entry, uint64_t offset, uint64_t len, int *error)
{
    uint64_t size  = umi_outputs_window_size(entry->reader->outputs);
    uint64_t start = offset - offset % size;
    uint64_t count = (entry->len - start < size) ? entry->len - start : size;
    umi_outputs_extent *extent;
    umi_outputs_file_id found;

    if (len > count - (offset - start)) {
        start = offset;
        count = len;
    }
    *error = umi_outputs_file_identify(entry->fd, &found);
    if (*error == 0 && found.len < entry->len) {
        *error = ESTALE;
    }
    if (*error != 0) {
        return NULL;
    }
    extent = umi_outputs_extent_map(entry->fd, start, (size_t)count, error);
    if (extent != NULL) {
        entry->reader->info.num_windows++;
    }
    return extent;
}

umi_outputs_extent *
umi_outputs_entry_view(umi_outputs_entry *entry, uint64_t offset, uint64_t len,
                       int *error)
{
    umi_outputs_extent *extent = (entry->whole != NULL) ? entry->whole :
                                                          entry->window;

    *error = 0;
    if (entry->whole == NULL && !covers(extent, offset, len)) {
        extent = map_window(entry, offset, len, error);
        if (extent == NULL) {
            return NULL;
        }
        if (entry->window != NULL) {
            umi_outputs_extent_put(entry->window);
        }
        entry->window = extent;
    }
    umi_outputs_extent_hold(extent);
    return extent;
}
