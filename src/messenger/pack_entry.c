/* SPDX-License-Identifier: BSD-3-Clause */
/* pack_entry.c: a message of the program's becomes an entry of a pack. */
#include "mem/memtype.h"
#include "messenger/sender.h"

size_t
umi_batch_entry_size(const umx_message_out *message)
{
    size_t size = 4 + message->metadata.len;

    if (message->num_buffers > UMI_PACK_ENTRY_MAX) {
        return 0;
    }
    for (size_t i = 0; i < message->num_buffers; i++) {
        const umx_buffer *buf = &message->buffers[i];

        if (buf->len > UMI_PACK_ENTRY_MAX ||
            !umi_memtype_is_host_readable(buf)) {
            return 0;
        }
        size += 2 + buf->len;
    }
    return (size <= UMI_PACK_ENTRY_MAX) ? size : 0;
}

umx_status
umi_batch_write(const umx_message_out *message, void *data, size_t size)
{
    umx_status status = UMX_OK;
    umi_writer w;

    umi_writer_init(&w, data, size);
    umi_write_u16(&w, (uint16_t)message->metadata.len);
    umi_write_bytes(&w, message->metadata.data, message->metadata.len);
    umi_write_u16(&w, (uint16_t)message->num_buffers);
    for (size_t i = 0; i < message->num_buffers; i++) {
        umi_write_u16(&w, (uint16_t)message->buffers[i].len);
    }
    for (size_t i = 0; i < message->num_buffers && status == UMX_OK; i++) {
        const umx_buffer *buf = &message->buffers[i];

        if (buf->len != 0) {
            status = umi_copy_out(buf, w.pos, buf->len);
            w.pos += buf->len;
        }
    }
    return status;
}
