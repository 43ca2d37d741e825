/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/datatype.h"

#include "mem/gather.h"
#include "mem/layout.h"

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
    return ((const umx_buffer *)state)->len;
}

static size_t
pack(void *state, size_t offset, void *dest, size_t max_length)
{
    const umx_buffer *buf = state;
    size_t            len = buf->len - offset;

    if (len > max_length) {
        len = max_length;
    }
    umi_layout_read(buf, offset, dest, len);
    return len;
}

static ucs_status_t
unpack(void *state, size_t offset, const void *src, size_t length)
{
    umi_layout_write(state, offset, src, length);
    return UCS_OK;
}

static void
finish(void *state)
{
    (void)state;
}

umx_status
umi_strided_create(ucp_datatype_t *datatype_p)
{
    static const ucp_generic_dt_ops_t ops = {
        .start_pack   = start_pack,
        .start_unpack = start_unpack,
        .packed_size  = packed_size,
        .pack         = pack,
        .unpack       = unpack,
        .finish       = finish,
    };

    return (umx_status)ucp_dt_create_generic(&ops, NULL, datatype_p);
}

/* ---- several buffers -----------------------------------------------------
 */

static size_t
gather_size(void *state)
{
    return ((const umi_gather *)state)->len;
}

/* Pack bytes for UCX. Nothing is packed of a piece that cannot be read, which
 * fails the send. */
static size_t
gather_pack(void *state, size_t offset, void *dest, size_t max_length)
{
    umi_gather *gather = state;
    size_t      len    = gather->len - offset;

    if (len > max_length) {
        len = max_length;
    }
    return (umi_gather_read(gather, offset, dest, len) == UMX_OK) ? len : 0;
}

static ucs_status_t
gather_unpack(void *state, size_t offset, const void *src, size_t length)
{
    return (ucs_status_t)umi_gather_write(state, offset, src, length);
}

umx_status
umi_gathered_create(ucp_datatype_t *datatype_p)
{
    static const ucp_generic_dt_ops_t ops = {
        .start_pack   = start_pack,
        .start_unpack = start_unpack,
        .packed_size  = gather_size,
        .pack         = gather_pack,
        .unpack       = gather_unpack,
        .finish       = finish,
    };

    return (umx_status)ucp_dt_create_generic(&ops, NULL, datatype_p);
}
