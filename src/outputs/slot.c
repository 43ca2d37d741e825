/* SPDX-License-Identifier: BSD-3-Clause */
/* slot.c: encode and decode slots of the table, and overflows. */
#include "outputs/slot.h"

#include <string.h>
#include <umx/outputs.h>

#include "util/bytes.h"
#include "util/hash.h"

enum {
    CHECK = 8 /* bytes of the hash at the beginning */
};

static void
write_check(uint8_t *data, size_t len)
{
    uint64_t check = umi_siphash(data + CHECK, len - CHECK);

    memcpy(data, &check, sizeof(check));
}

static bool
has_check(const uint8_t *data, size_t len)
{
    uint64_t check;

    memcpy(&check, data, sizeof(check));
    return check == umi_siphash(data + CHECK, len - CHECK);
}

size_t
umi_outputs_slot_encode(const umi_outputs_where *where, uint8_t *place)
{
    size_t len = UMI_OUTPUTS_FIXED + (size_t)where->key_len + where->path_len;
    umi_writer w;

    umi_writer_init(&w, place + CHECK, UMI_OUTPUTS_PLACE - CHECK);
    umi_write_u64(&w, where->epoch);
    umi_write_u64(&w, where->len);
    umi_write_u32(&w, where->rank);
    umi_write_u8(&w, where->kind);
    umi_write_u8(&w, where->flags);
    umi_write_u16(&w, where->key_len);
    umi_write_u16(&w, where->path_len);
    umi_write_u16(&w, 0);
    umi_write_u32(&w, 0);
    umi_write_u64(&w, where->device);
    umi_write_u64(&w, where->inode);
    umi_write_u64(&w, where->mtime_ns);
    umi_write_bytes(&w, where->key, where->key_len);
    umi_write_bytes(&w, where->path, where->path_len);
    write_check(place, len);
    return len;
}

/* Are the numbers such as a slot may have? */
static bool
is_possible(const umi_outputs_where *where)
{
    return umi_outputs_attempt(where->epoch) != 0 &&
           (where->kind == UMX_OUTPUTS_MEMORY ||
            where->kind == UMX_OUTPUTS_FILE) &&
           (where->epoch & ((1u << UMI_OUTPUTS_RANK_BITS) - 1)) ==
               where->rank &&
           (size_t)where->key_len + where->path_len <= UMI_OUTPUTS_ROOM;
}

bool
umi_outputs_slot_decode(umi_outputs_where *where, const uint8_t *place)
{
    umi_reader r;

    umi_reader_init(&r, place + CHECK, UMI_OUTPUTS_PLACE - CHECK);
    where->epoch    = umi_read_u64(&r);
    where->len      = umi_read_u64(&r);
    where->rank     = umi_read_u32(&r);
    where->kind     = umi_read_u8(&r);
    where->flags    = umi_read_u8(&r);
    where->key_len  = umi_read_u16(&r);
    where->path_len = umi_read_u16(&r);
    (void)umi_read_u16(&r);
    (void)umi_read_u32(&r);
    where->device   = umi_read_u64(&r);
    where->inode    = umi_read_u64(&r);
    where->mtime_ns = umi_read_u64(&r);
    if (!is_possible(where)) {
        return false;
    }
    where->key  = umi_read_bytes(&r, where->key_len);
    where->path = (const char *)umi_read_bytes(&r, where->path_len);
    return has_check(place, UMI_OUTPUTS_FIXED + (size_t)where->key_len +
                                where->path_len);
}

size_t
umi_outputs_overflow_size(const umi_outputs_where *where)
{
    return UMI_OUTPUTS_OVERFLOW_MIN + (size_t)where->key_len + where->path_len;
}

void
umi_outputs_overflow_encode(const umi_outputs_where *where, uint8_t *data)
{
    size_t     len = umi_outputs_overflow_size(where);
    umi_writer w;

    umi_writer_init(&w, data + CHECK, len - CHECK);
    umi_write_u16(&w, where->key_len);
    umi_write_u16(&w, where->path_len);
    umi_write_bytes(&w, where->key, where->key_len);
    umi_write_bytes(&w, where->path, where->path_len);
    write_check(data, len);
}

bool
umi_outputs_overflow_decode(umi_outputs_where *where, const uint8_t *data,
                            size_t len)
{
    umi_reader r;

    if (len < UMI_OUTPUTS_OVERFLOW_MIN || len > UMI_OUTPUTS_OVERFLOW_MAX ||
        !has_check(data, len)) {
        return false;
    }
    umi_reader_init(&r, data + CHECK, len - CHECK);
    where->key_len  = umi_read_u16(&r);
    where->path_len = umi_read_u16(&r);
    where->key      = umi_read_bytes(&r, where->key_len);
    where->path     = (const char *)umi_read_bytes(&r, where->path_len);
    return !r.is_bad && r.pos == r.end;
}
