/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/wire.h"

#include "util/bytes.h"

static bool
is_collective(uint8_t kind)
{
    return kind == UMI_COMM_COLLECTIVE;
}

static bool
is_known(uint8_t kind)
{
    return kind == UMI_COMM_MESSAGE || kind == UMI_COMM_COLLECTIVE ||
           (kind >= UMI_COMM_HELLO && kind <= UMI_COMM_DONE);
}

size_t
umi_comm_header_encode(const umi_comm_header *header, uint8_t *data)
{
    umi_writer w;

    umi_writer_init(&w, data, UMI_COMM_HEADER_MAX);
    umi_write_u8(&w, header->kind);
    umi_write_u8(&w, header->op);
    umi_write_u16(&w, header->round);
    umi_write_u32(&w, header->source);
    umi_write_u64(&w, header->comm);
    umi_write_u64(&w, header->number);
    if (is_collective(header->kind)) {
        umi_write_u64(&w, header->what);
        umi_write_u64(&w, header->bytes);
        umi_write_u64(&w, header->history);
    }
    return (size_t)(w.pos - data);
}

bool
umi_comm_header_decode(umi_comm_header *header, const void *data, size_t len)
{
    umi_reader r;

    umi_reader_init(&r, data, len);
    memset(header, 0, sizeof(*header));
    header->kind   = umi_read_u8(&r);
    header->op     = umi_read_u8(&r);
    header->round  = umi_read_u16(&r);
    header->source = umi_read_u32(&r);
    header->comm   = umi_read_u64(&r);
    header->number = umi_read_u64(&r);
    if (is_collective(header->kind)) {
        header->what    = umi_read_u64(&r);
        header->bytes   = umi_read_u64(&r);
        header->history = umi_read_u64(&r);
    }
    return !r.is_bad && r.pos == r.end && is_known(header->kind);
}

/* ---- texts ---------------------------------------------------------------
 */

static void
write_text(umi_writer *w, const umi_comm_text *text)
{
    if (text->len > UINT16_MAX) {
        w->is_full = true;
        return;
    }
    umi_write_u16(w, (uint16_t)text->len);
    umi_write_bytes(w, text->data, text->len);
}

static void
read_text(umi_reader *r, umi_comm_text *text)
{
    text->len  = umi_read_u16(r);
    text->data = umi_read_bytes(r, text->len);
    if (text->data == NULL) {
        text->len = 0;
    }
}

static size_t
length(const umi_writer *w, const uint8_t *data)
{
    return w->is_full ? 0 : (size_t)(w->pos - data);
}

static bool
is_whole(const umi_reader *r)
{
    return !r->is_bad && r->pos == r->end;
}

/* ---- payloads ------------------------------------------------------------
 */

size_t
umi_comm_hello_encode(const umi_comm_hello *hello, uint8_t *data, size_t size)
{
    umi_writer w;

    umi_writer_init(&w, data, size);
    umi_write_u32(&w, UMI_COMM_MAGIC);
    umi_write_u32(&w, (uint32_t)hello->rank);
    umi_write_u32(&w, hello->size);
    write_text(&w, &hello->name);
    write_text(&w, &hello->address);
    return length(&w, data);
}

bool
umi_comm_hello_decode(umi_comm_hello *hello, const void *data, size_t len)
{
    umi_reader r;
    uint32_t   magic;

    umi_reader_init(&r, data, len);
    magic       = umi_read_u32(&r);
    hello->rank = (int32_t)umi_read_u32(&r);
    hello->size = umi_read_u32(&r);
    read_text(&r, &hello->name);
    read_text(&r, &hello->address);
    return magic == UMI_COMM_MAGIC && is_whole(&r) &&
           hello->name.len <= UMX_COMM_NAME_MAX;
}

static void
write_call(umi_writer *w, const umi_comm_call *call)
{
    umi_write_u64(w, call->op);
    umi_write_u64(w, call->what);
    umi_write_u64(w, call->bytes);
    umi_write_u64(w, call->history);
}

static void
read_call(umi_reader *r, umi_comm_call *call)
{
    call->op      = umi_read_u64(r);
    call->what    = umi_read_u64(r);
    call->bytes   = umi_read_u64(r);
    call->history = umi_read_u64(r);
}

void
umi_comm_call_encode(const umi_comm_call *call, uint8_t *data)
{
    umi_writer w;

    umi_writer_init(&w, data, UMI_COMM_CALL_SIZE);
    write_call(&w, call);
}

bool
umi_comm_call_decode(umi_comm_call *call, const void *data, size_t len)
{
    umi_reader r;

    umi_reader_init(&r, data, len);
    read_call(&r, call);
    return is_whole(&r);
}

/* ---- lists of ranks ------------------------------------------------------
 */

umi_comm_numbers
umi_comm_numbers_encode(const int *ranks, int count, uint8_t *data)
{
    umi_writer w;

    umi_writer_init(&w, data, (size_t)count * UMI_COMM_NUMBER_SIZE);
    for (int i = 0; i < count; i++) {
        umi_write_u32(&w, (uint32_t)ranks[i]);
    }
    return (umi_comm_numbers){.data = data, .count = (uint32_t)count};
}

uint32_t
umi_comm_number_at(const umi_comm_numbers *numbers, uint32_t i)
{
    umi_reader r;

    umi_reader_init(&r, numbers->data + (size_t)i * UMI_COMM_NUMBER_SIZE,
                    UMI_COMM_NUMBER_SIZE);
    return umi_read_u32(&r);
}

static void
write_numbers(umi_writer *w, const umi_comm_numbers *numbers)
{
    umi_write_u32(w, numbers->count);
    umi_write_bytes(w, numbers->data,
                    (size_t)numbers->count * UMI_COMM_NUMBER_SIZE);
}

static void
read_numbers(umi_reader *r, umi_comm_numbers *numbers)
{
    numbers->count = umi_read_u32(r);
    if (numbers->count > UMX_COMM_LATE_MAX) {
        r->is_bad = true;
    }
    numbers->data = r->is_bad ? NULL :
                                umi_read_bytes(r, (size_t)numbers->count *
                                                      UMI_COMM_NUMBER_SIZE);
}

size_t
umi_comm_state_encode(const umi_comm_state *state, uint8_t *data, size_t size)
{
    umi_writer w;

    umi_writer_init(&w, data, size);
    write_call(&w, &state->call);
    write_numbers(&w, &state->late);
    return length(&w, data);
}

bool
umi_comm_state_decode(umi_comm_state *state, const void *data, size_t len)
{
    umi_reader r;

    umi_reader_init(&r, data, len);
    read_call(&r, &state->call);
    read_numbers(&r, &state->late);
    return is_whole(&r);
}

size_t
umi_comm_failed_encode(const umi_comm_failed *failed, uint8_t *data,
                       size_t size)
{
    umi_writer w;

    umi_writer_init(&w, data, size);
    umi_write_u32(&w, (uint32_t)failed->rank);
    umi_write_u32(&w, (uint32_t)failed->cause);
    umi_write_u64(&w, failed->number);
    write_text(&w, &failed->reason);
    write_numbers(&w, &failed->late);
    return length(&w, data);
}

bool
umi_comm_failed_decode(umi_comm_failed *failed, const void *data, size_t len)
{
    umi_reader r;

    umi_reader_init(&r, data, len);
    failed->rank   = (int32_t)umi_read_u32(&r);
    failed->cause  = (int32_t)umi_read_u32(&r);
    failed->number = umi_read_u64(&r);
    read_text(&r, &failed->reason);
    read_numbers(&r, &failed->late);
    return is_whole(&r);
}
