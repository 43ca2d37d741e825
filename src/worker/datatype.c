/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/datatype.h"

#include <string.h>

#include "mem/gather.h"
#include "mem/memtype.h"
#include "worker/request.h"

static void *
start_pack(void *context, const void *buffer, size_t count)
{
    (void)context;
    (void)count;
    return (void *)(uintptr_t)buffer;
}

static void *
start_unpack(void *context, void *buffer, size_t count)
{
    (void)context;
    (void)count;
    return buffer;
}

static size_t
packed_size(void *state)
{
    return ((const umx_request *)state)->buf.len;
}

static size_t
arriving_size(void *state)
{
    return ((const umx_request *)state)->info.length;
}

static inline void
note_moved(umx_request *req, size_t end)
{
    if (end > req->moved) {
        req->moved = end;
    }
}

/* Read `len` bytes from `offset` on. */
static umx_status
read_bytes(umx_request *req, size_t offset, void *dest, size_t len)
{
    umx_buffer part;

    if (req->is_void) {
        memset(dest, 0, len);
        return UMX_OK;
    }
    if (req->gather != NULL) {
        return umi_gather_read(req->gather, offset, dest, len);
    }
    if (req->buf.layout != NULL) {
        umi_layout_read(&req->buf, offset, dest, len);
        return UMX_OK;
    }
    if (umi_memtype_is_host_readable(&req->buf)) {
        memcpy(dest, (const char *)req->buf.data + offset, len);
        return UMX_OK;
    }
    part      = req->buf;
    part.data = (char *)req->buf.data + offset;
    part.len  = len;
    return umi_copy_out(&part, dest, len);
}

umx_status
umi_datatype_read(umx_request *req, size_t offset, void *dest, size_t len)
{
    note_moved(req, offset + len);
    return read_bytes(req, offset, dest, len);
}

/* Pack bytes for UCX. Nothing is packed of memory that cannot be read, which
 * fails the send. */
static size_t
pack(void *state, size_t offset, void *dest, size_t max_length)
{
    umx_request *req = state;
    size_t       len = req->buf.len - offset;

    if (len > max_length) {
        len = max_length;
    }
    return (umi_datatype_read(req, offset, dest, len) == UMX_OK) ? len : 0;
}

umx_status
umi_datatype_write(umx_request *req, size_t offset, const void *src, size_t len)
{
    umx_buffer part = req->buf;

    note_moved(req, offset + len);
    if (req->is_void) {
        return UMX_OK;
    }
    if (req->gather != NULL) {
        return umi_gather_write(req->gather, offset, src, len);
    }
    if (req->buf.layout != NULL) {
        umi_layout_write(&req->buf, offset, src, len);
        return UMX_OK;
    }
    part.data = (char *)part.data + offset;
    return umi_copy_in(&part, src, len);
}

/* Bytes that cannot be written are no fault of the peer's, or of UCX's: the
 * rest goes nowhere, and the request ends with what has happened. */
static ucs_status_t
unpack(void *state, size_t offset, const void *src, size_t length)
{
    umx_request *req = state;

    if (req->memory_status == UMX_OK) {
        req->memory_status = (int16_t)umi_datatype_write(req, offset, src,
                                                         length);
    }
    return UCS_OK;
}

static void
finish(void *state)
{
    (void)state;
}

static void *
start_nowhere(void *context, void *buffer, size_t count)
{
    (void)context;
    (void)buffer;
    return (void *)count; /* NOLINT: a size in a pointer */
}

static size_t
nowhere_size(void *state)
{
    return (size_t)state;
}

static ucs_status_t
unpack_nowhere(void *state, size_t offset, const void *src, size_t length)
{
    (void)state;
    (void)offset;
    (void)src;
    (void)length;
    return UCS_OK;
}

static umx_status
create(const ucp_generic_dt_ops_t *ops, ucp_datatype_t *datatype_p)
{
    return (umx_status)ucp_dt_create_generic(ops, NULL, datatype_p);
}

umx_status
umi_datatypes_create(umi_datatypes *datatypes)
{
    static const ucp_generic_dt_ops_t movable = {
        .start_pack   = start_pack,
        .start_unpack = start_unpack,
        .packed_size  = packed_size,
        .pack         = pack,
        .unpack       = unpack,
        .finish       = finish,
    };
    static const ucp_generic_dt_ops_t arriving = {
        .start_unpack = start_unpack,
        .packed_size  = arriving_size,
        .unpack       = unpack,
        .finish       = finish,
    };
    static const ucp_generic_dt_ops_t nowhere = {
        .start_unpack = start_nowhere,
        .packed_size  = nowhere_size,
        .unpack       = unpack_nowhere,
        .finish       = finish,
    };
    umx_status status = create(&movable, &datatypes->movable);

    if (status != UMX_OK) {
        return status;
    }
    status = create(&arriving, &datatypes->arriving);
    if (status != UMX_OK) {
        goto destroy_movable;
    }
    status = create(&nowhere, &datatypes->nowhere);
    if (status != UMX_OK) {
        goto destroy_arriving;
    }
    return UMX_OK;

destroy_arriving:
    ucp_dt_destroy(datatypes->arriving);
destroy_movable:
    ucp_dt_destroy(datatypes->movable);
    return status;
}

void
umi_datatypes_destroy(umi_datatypes *datatypes)
{
    ucp_dt_destroy(datatypes->nowhere);
    ucp_dt_destroy(datatypes->arriving);
    ucp_dt_destroy(datatypes->movable);
}
