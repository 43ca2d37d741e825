/* SPDX-License-Identifier: BSD-3-Clause */
/* file.c: an output that is a file, as who writes it sees it.
 *
 * Room for the head is left at the beginning, and pieces are appended as they
 * come. If they have come in the order of their partitions that is the output;
 * otherwise they are copied to a second file in that order. The name is given
 * last: under it there is a whole output, or what was there before. */
#define _GNU_SOURCE
#include "outputs/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "outputs/outputs.h"
#include "outputs/writer.h"

enum {
    COPY = 1 << 20 /* bytes at a time */
};

struct umi_outputs_file {
    int      fd;
    char    *path;
    char    *temporary; /* name of `fd` */
    uint64_t end;
    uint32_t last; /* partition */
    bool     is_disordered;
    int      error; /* of the first write that has failed */
};

/* ---- the system's calls --------------------------------------------------
 */

static int
write_all(int fd, const void *data, size_t len, uint64_t offset)
{
    const char *at = data;

    while (len != 0) {
        ssize_t done = pwrite(fd, at, len, (off_t)offset);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return (done < 0) ? errno : ENOSPC;
        }
        at += done;
        offset += (uint64_t)done;
        len -= (size_t)done;
    }
    return 0;
}

int
umi_outputs_file_read(int fd, void *data, size_t len, uint64_t offset)
{
    char *at = data;

    while (len != 0) {
        ssize_t done = pread(fd, at, len, (off_t)offset);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return (done < 0) ? errno : ESTALE;
        }
        at += done;
        offset += (uint64_t)done;
        len -= (size_t)done;
    }
    return 0;
}

int
umi_outputs_file_identify(int fd, umi_outputs_file_id *id)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return errno;
    }
    id->device   = (uint64_t)info.st_dev;
    id->inode    = (uint64_t)info.st_ino;
    id->mtime_ns = (uint64_t)info.st_mtim.tv_sec * 1000000000u +
                   (uint64_t)info.st_mtim.tv_nsec;
    id->len = (uint64_t)info.st_size;
    return S_ISREG(info.st_mode) ? 0 : EINVAL;
}

int
umi_outputs_file_open(const char *path, size_t path_len,
                      const umi_outputs_file_id *id, int *error)
{
    char                name[UMI_OUTPUTS_PATH_MAX + 1];
    umi_outputs_file_id found;
    int                 fd;

    *error = ENAMETOOLONG;
    if (path_len >= sizeof(name)) {
        return -1;
    }
    memcpy(name, path, path_len);
    name[path_len] = '\0';
    fd             = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *error = errno;
        return -1;
    }
    *error = umi_outputs_file_identify(fd, &found);
    if (*error == 0 && memcmp(&found, id, sizeof(found)) != 0) {
        *error = ESTALE;
    }
    if (*error != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* ---- writing -------------------------------------------------------------
 */

/* Open a file beside `path`, of which `*name_p` is the name. */
static int
open_temporary(const char *path, char **name_p)
{
    char *name = NULL;
    int   fd;

    if (asprintf(&name, "%s.XXXXXX.part", path) < 0) {
        errno = ENOMEM;
        return -1;
    }
    fd = mkostemps(name, 5, O_CLOEXEC);
    if (fd < 0) {
        free(name);
        return -1;
    }
    *name_p = name;
    return fd;
}

static umx_status
status_of(int error)
{
    umx_set_errno(error);
    return (error == ENOMEM) ? UMX_ERR_NO_MEMORY : UMX_ERR_IO_ERROR;
}

umx_status
umi_outputs_file_create(umx_outputs_writer *writer, const char *path)
{
    umi_outputs_file *file = calloc(1, sizeof(*file));

    if (file == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    file->path = strdup(path);
    if (file->path == NULL || strlen(path) > UMI_OUTPUTS_PATH_MAX) {
        free(file->path);
        free(file);
        return status_of((strlen(path) > UMI_OUTPUTS_PATH_MAX) ? ENAMETOOLONG :
                                                                 ENOMEM);
    }
    file->fd = open_temporary(path, &file->temporary);
    if (file->fd < 0) {
        int error = errno;

        free(file->path);
        free(file);
        return status_of(error);
    }
    file->end    = umi_outputs_head_size(writer->outputs->num_partitions,
                                         writer->flags);
    writer->file = file;
    return UMX_OK;
}

umx_status
umi_outputs_file_write(umx_outputs_writer *writer, uint32_t partition,
                       const void *data, size_t len)
{
    umi_outputs_file  *file  = writer->file;
    umi_outputs_piece *piece = umi_outputs_piece_new(writer);

    if (piece == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (file->error == 0) {
        file->error = write_all(file->fd, data, len, file->end);
    }
    if (file->error != 0) {
        return status_of(file->error);
    }
    file->is_disordered |= partition < file->last;
    file->last = partition;
    if (writer->num_pieces != 0 && piece[-1].partition == partition) {
        piece[-1].len += len;
    } else {
        *piece = (umi_outputs_piece){
            .partition = partition, .len = len, .offset = file->end};
        writer->num_pieces++;
    }
    file->end += len;
    return UMX_OK;
}

/* ---- finishing -----------------------------------------------------------
 */

static int
copy_piece(int from, int to, const umi_outputs_piece *piece, uint64_t at,
           void *buffer)
{
    for (size_t done = 0; done < piece->len;) {
        size_t len   = (piece->len - done < COPY) ? piece->len - done : COPY;
        int    error = umi_outputs_file_read(from, buffer, len,
                                             piece->offset + done);

        error = (error == 0) ? write_all(to, buffer, len, at + done) : error;
        if (error != 0) {
            return error;
        }
        done += len;
    }
    return 0;
}

/* Copy the pieces to a second file, in the order of their partitions. */
static int
put_in_order(umx_outputs_writer *writer, void *buffer)
{
    umi_outputs_file *file   = writer->file;
    uint32_t          count  = writer->outputs->num_partitions;
    uint64_t         *places = calloc((size_t)count + 1, sizeof(*places));
    char             *name   = NULL;
    int               error  = ENOMEM;
    int               fd;

    if (places == NULL) {
        return error;
    }
    places[0] = umi_outputs_head_size(count, writer->flags);
    for (uint32_t i = 0; i < count; i++) {
        places[i + 1] = places[i] + writer->lens[i];
    }
    fd    = open_temporary(file->path, &name);
    error = (fd < 0) ? errno : 0;
    for (size_t i = 0; i < writer->num_pieces && error == 0; i++) {
        const umi_outputs_piece *piece = &writer->pieces[i];

        error = copy_piece(file->fd, fd, piece, places[piece->partition],
                           buffer);
        places[piece->partition] += piece->len;
    }
    free(places);
    if (fd < 0) {
        return error;
    }
    if (error == 0) { /* it takes the place of the first one */
        int   first      = file->fd;
        char *first_name = file->temporary;

        file->fd        = fd;
        file->temporary = name;
        fd              = first;
        name            = first_name;
    }
    (void)close(fd);
    (void)unlink(name);
    free(name);
    return error;
}

/* Write a checksum of each partition into the head. */
static int
sum_partitions(const umx_outputs_writer *writer, uint64_t *head)
{
    uint32_t count = writer->outputs->num_partitions;
    uint64_t at    = umi_outputs_head_size(count, writer->flags);
    int      error = 0;

    for (uint32_t i = 0; i < count && error == 0; i++) {
        size_t              len    = (size_t)writer->lens[i];
        umi_outputs_extent *extent = NULL;
        const char         *data   = "";

        if (len != 0) {
            extent = umi_outputs_extent_map(writer->file->fd, at, len, &error);
            if (extent == NULL) {
                return error;
            }
            data = extent->data + (at - extent->offset);
        }
        umi_outputs_write_checksum(head, count, i, data, len);
        if (extent != NULL) {
            umi_outputs_extent_put(extent);
        }
        at += len;
    }
    return error;
}

static int
write_head(umx_outputs_writer *writer)
{
    uint32_t  count = writer->outputs->num_partitions;
    size_t    size  = (size_t)umi_outputs_head_size(count, writer->flags);
    uint64_t *head  = calloc(1, size);
    int       error = 0;

    if (head == NULL) {
        return ENOMEM;
    }
    umi_outputs_write_offsets(head, writer->lens, count, writer->flags);
    if ((writer->flags & UMX_OUTPUTS_FLAG_CHECKSUMS) != 0) {
        error = sum_partitions(writer, head);
        umi_outputs_seal_head(head, count);
    }
    if (error == 0) {
        error = write_all(writer->file->fd, head, size, 0);
    }
    free(head);
    return error;
}

static int
finish(umx_outputs_writer *writer, umi_outputs_file_id *id)
{
    umi_outputs_file *file   = writer->file;
    void             *buffer = file->is_disordered ? malloc(COPY) : NULL;
    int               error  = file->error;

    if (error == 0 && file->is_disordered) {
        error = (buffer == NULL) ? ENOMEM : put_in_order(writer, buffer);
    }
    free(buffer);
    error = (error == 0) ? write_head(writer) : error;
    if (error == 0 && rename(file->temporary, file->path) != 0) {
        error = errno;
    }
    if (error == 0) {
        free(file->temporary);
        file->temporary = NULL;
        error           = umi_outputs_file_identify(file->fd, id);
    }
    return error;
}

umx_status
umi_outputs_file_finish(umx_outputs_writer *writer, umi_outputs_output *output)
{
    umi_outputs_file_id id    = {0};
    int                 error = finish(writer, &id);

    if (error != 0) {
        writer->file->error = error;
        return status_of(error);
    }
    output->kind       = UMX_OUTPUTS_FILE;
    output->device     = id.device;
    output->inode      = id.inode;
    output->mtime_ns   = id.mtime_ns;
    output->path       = writer->file->path;
    writer->file->path = NULL;
    umi_outputs_file_drop(writer);
    return UMX_OK;
}

void
umi_outputs_file_drop(umx_outputs_writer *writer)
{
    umi_outputs_file *file = writer->file;

    writer->file = NULL;
    if (file == NULL) {
        return;
    }
    (void)close(file->fd);
    if (file->temporary != NULL) {
        (void)unlink(file->temporary);
    }
    free(file->temporary);
    free(file->path);
    free(file);
}

/* ---- publishing a file that is there -------------------------------------
 */

/* Does the head of the file say where its partitions are? */
static int
check_head(int fd, uint64_t len, uint32_t count, unsigned flags)
{
    uint64_t  size = umi_outputs_head_size(count, flags);
    uint64_t *head = (size <= len) ? malloc((size_t)size) : NULL;
    uint64_t  last = 0;
    int       error;

    if (head == NULL) {
        return (size <= len) ? ENOMEM : EPROTO;
    }
    error = umi_outputs_file_read(fd, head, (size_t)size, 0);
    for (uint64_t i = 0; i <= count && error == 0; i++) {
        uint64_t next = umi_outputs_word(head, i, flags);

        error = (next < last || (i == 0 && next != 0)) ? EPROTO : 0;
        last  = next;
    }
    if (error == 0 && !umi_outputs_head_is_whole(head, count, flags)) {
        error = EPROTO;
    }
    free(head);
    return (error == 0 && last != len - size) ? EPROTO : error;
}

static int
identify(umx_outputs *outputs, const umx_outputs_writer_params *params,
         unsigned flags, umi_outputs_file_id *id)
{
    int fd    = open(params->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = (fd < 0) ? errno : umi_outputs_file_identify(fd, id);

    if (error == 0) {
        error = check_head(fd, id->len, outputs->num_partitions, flags);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return error;
}

umx_status
umx_outputs_publish_file(umx_outputs                     *outputs,
                         const umx_outputs_writer_params *params,
                         const umx_op_params *op, umx_request **req_p)
{
    UMI_OUTPUTS_LOCK(outputs);
    unsigned   flags = ((params->field_mask & UMX_OUTPUTS_WRITER_FIELD_FLAGS) !=
                      0) ?
                           params->flags :
                           0;
    umx_status status      = umi_outputs_status(outputs);
    umi_outputs_file_id id = {0};
    umi_outputs_output *output;
    int                 error;

    if (status != UMX_OK) {
        return status;
    }
    if (params->map >= outputs->num_maps) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if ((params->field_mask & UMX_OUTPUTS_WRITER_FIELD_PATH) == 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    error = identify(outputs, params, flags, &id);
    if (error != 0) {
        return (error == EPROTO) ? UMX_ERR_PROTOCOL : status_of(error);
    }
    output = calloc(1, sizeof(*output));
    if (output != NULL) {
        output->path = strdup(params->path);
    }
    if (output == NULL || output->path == NULL) {
        free(output);
        return UMX_ERR_NO_MEMORY;
    }
    output->map      = params->map;
    output->flags    = (uint8_t)flags;
    output->kind     = UMX_OUTPUTS_FILE;
    output->len      = id.len;
    output->device   = id.device;
    output->inode    = id.inode;
    output->mtime_ns = id.mtime_ns;
    return umi_outputs_publish(outputs, output, NULL, NULL, NULL, op, req_p);
}
