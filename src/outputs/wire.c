/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.c: encode and decode what ranks say about windows of files. */
#include "outputs/wire.h"

#include "util/bytes.h"

size_t
umi_outputs_message_encode(const umi_outputs_message *message, uint8_t *data)
{
    umi_writer w;

    umi_writer_init(&w, data, UMI_OUTPUTS_MESSAGE_MAX);
    umi_write_u8(&w, message->kind);
    umi_write_u64(&w, message->to);
    switch (message->kind) {
    case UMI_OUTPUTS_ASK:
        umi_write_u64(&w, message->seq);
        umi_write_u64(&w, message->from);
        umi_write_u64(&w, message->epoch);
        umi_write_u32(&w, message->map);
        umi_write_u64(&w, message->offset);
        break;
    case UMI_OUTPUTS_ANSWER:
        umi_write_u64(&w, message->seq);
        umi_write_u64(&w, message->window);
        umi_write_u64(&w, message->offset);
        umi_write_u64(&w, message->len);
        umi_write_u32(&w, (uint32_t)message->status);
        break;
    default:
        umi_write_u64(&w, message->window);
    }
    return (size_t)(w.pos - data);
}

bool
umi_outputs_message_decode(umi_outputs_message *message, const void *data,
                           size_t len)
{
    umi_reader r;

    umi_reader_init(&r, data, len);
    *message    = (umi_outputs_message){.kind = umi_read_u8(&r)};
    message->to = umi_read_u64(&r);
    switch (message->kind) {
    case UMI_OUTPUTS_ASK:
        message->seq    = umi_read_u64(&r);
        message->from   = umi_read_u64(&r);
        message->epoch  = umi_read_u64(&r);
        message->map    = umi_read_u32(&r);
        message->offset = umi_read_u64(&r);
        break;
    case UMI_OUTPUTS_ANSWER:
        message->seq    = umi_read_u64(&r);
        message->window = umi_read_u64(&r);
        message->offset = umi_read_u64(&r);
        message->len    = umi_read_u64(&r);
        message->status = (int32_t)umi_read_u32(&r);
        break;
    case UMI_OUTPUTS_RETURN:
        message->window = umi_read_u64(&r);
        break;
    default:
        return false;
    }
    return !r.is_bad && r.pos == r.end;
}
