/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.c: encode and decode what ranks of a shuffle send each other. */
#include "shuffle/wire.h"

enum {
    KEY_SIZE    = 7, /* without the key */
    INLINE_SIZE = 9  /* without the bytes */
};

size_t
umi_shuffle_record_size(const umi_shuffle_record *record)
{
    switch (record->kind) {
    case UMI_SHUFFLE_RECORD_KEY:
        return KEY_SIZE + (size_t)record->len;
    case UMI_SHUFFLE_RECORD_CHUNK:
        return UMI_SHUFFLE_CHUNK_SIZE;
    case UMI_SHUFFLE_RECORD_INLINE:
        return INLINE_SIZE + (size_t)record->len;
    case UMI_SHUFFLE_RECORD_TAKEN:
    case UMI_SHUFFLE_RECORD_RELEASED:
        return 9;
    default:
        return 5;
    }
}

void
umi_shuffle_record_encode(const umi_shuffle_record *record, umi_writer *w)
{
    umi_write_u8(w, record->kind);
    switch (record->kind) {
    case UMI_SHUFFLE_RECORD_KEY:
        umi_write_u32(w, record->key);
        umi_write_u16(w, (uint16_t)record->len);
        umi_write_bytes(w, record->data, (size_t)record->len);
        return;
    case UMI_SHUFFLE_RECORD_CHUNK:
        umi_write_u64(w, record->id);
        umi_write_u32(w, record->partition);
        umi_write_u32(w, record->key);
        umi_write_u64(w, record->offset);
        umi_write_u64(w, record->len);
        return;
    case UMI_SHUFFLE_RECORD_INLINE:
        umi_write_u32(w, record->partition);
        umi_write_u32(w, (uint32_t)record->len);
        umi_write_bytes(w, record->data, (size_t)record->len);
        return;
    case UMI_SHUFFLE_RECORD_FINISHED:
        umi_write_u32(w, record->partition);
        return;
    case UMI_SHUFFLE_RECORD_FORGET:
        umi_write_u32(w, record->key);
        return;
    default:
        umi_write_u64(w, record->id);
    }
}

bool
umi_shuffle_record_decode(umi_shuffle_record *record, umi_reader *r)
{
    *record = (umi_shuffle_record){.kind = umi_read_u8(r)};
    switch (record->kind) {
    case UMI_SHUFFLE_RECORD_KEY:
        record->key  = umi_read_u32(r);
        record->len  = umi_read_u16(r);
        record->data = umi_read_bytes(r, (size_t)record->len);
        break;
    case UMI_SHUFFLE_RECORD_CHUNK:
        record->id        = umi_read_u64(r);
        record->partition = umi_read_u32(r);
        record->key       = umi_read_u32(r);
        record->offset    = umi_read_u64(r);
        record->len       = umi_read_u64(r);
        break;
    case UMI_SHUFFLE_RECORD_INLINE:
        record->partition = umi_read_u32(r);
        record->len       = umi_read_u32(r);
        record->data      = umi_read_bytes(r, (size_t)record->len);
        break;
    case UMI_SHUFFLE_RECORD_FINISHED:
        record->partition = umi_read_u32(r);
        break;
    case UMI_SHUFFLE_RECORD_TAKEN:
    case UMI_SHUFFLE_RECORD_RELEASED:
        record->id = umi_read_u64(r);
        break;
    case UMI_SHUFFLE_RECORD_FORGET:
        record->key = umi_read_u32(r);
        break;
    default:
        return false;
    }
    return !r->is_bad;
}
