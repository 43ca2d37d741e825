/* SPDX-License-Identifier: BSD-3-Clause */
#include "keys/key.h"

#include "util/bytes.h"
#include "util/hash.h"

size_t
umi_key_encode(const umi_key *key, uint8_t *data)
{
    umi_writer w;

    if (key->rkey_len > UMI_RKEY_MAX) {
        return 0;
    }
    umi_writer_init(&w, data, UMI_KEY_MAX);
    umi_write_u32(&w, UMI_KEY_MAGIC);
    umi_write_u16(&w, UMI_KEY_VERSION);
    umi_write_u16(&w, key->flags);
    umi_write_u64(&w, key->context);
    umi_write_u64(&w, key->memory);
    umi_write_u64(&w, key->address);
    umi_write_u64(&w, key->length);
    umi_write_u32(&w, (uint32_t)key->segment);
    umi_write_u16(&w, key->rkey_len);
    umi_write_bytes(&w, key->rkey, key->rkey_len);
    if (key->flags & UMI_KEY_SLAB) {
        umi_write_u32(&w, key->place);
    }
    umi_write_u64(&w, umi_siphash(data, (size_t)(w.pos - data)));
    return (size_t)(w.pos - data);
}

/* True if the numbers of a key are possible. */
static bool
is_plausible(const umi_key *key)
{
    bool is_mapped  = (key->flags & UMI_KEY_SEGMENT) != 0;
    bool is_in_slab = (key->flags & UMI_KEY_SLAB) != 0;

    return (key->flags &
            ~(UMI_KEY_READONLY | UMI_KEY_SEGMENT | UMI_KEY_SLAB)) == 0 &&
           key->memory != 0 && key->length <= UINT64_MAX - key->address &&
           key->rkey_len <= UMI_RKEY_MAX &&
           (is_mapped ? key->segment >= 0 : key->segment == 0) &&
           (is_in_slab ? is_mapped && key->place != 0 : key->place == 0);
}

bool
umi_key_decode(umi_key *key, const void *data, size_t len)
{
    umi_reader r;
    uint32_t   magic;
    uint16_t   version;
    size_t     checked_len;

    if (len < UMI_KEY_MIN) {
        return false;
    }
    umi_reader_init(&r, data, len);
    magic         = umi_read_u32(&r);
    version       = umi_read_u16(&r);
    key->flags    = umi_read_u16(&r);
    key->context  = umi_read_u64(&r);
    key->memory   = umi_read_u64(&r);
    key->address  = umi_read_u64(&r);
    key->length   = umi_read_u64(&r);
    key->segment  = (int32_t)umi_read_u32(&r);
    key->rkey_len = umi_read_u16(&r);
    key->rkey     = umi_read_bytes(&r, key->rkey_len);
    key->place    = (key->flags & UMI_KEY_SLAB) ? umi_read_u32(&r) : 0;
    checked_len   = (size_t)(r.pos - (const uint8_t *)data);
    return umi_read_u64(&r) == umi_siphash(data, checked_len) && !r.is_bad &&
           r.pos == r.end && magic == UMI_KEY_MAGIC &&
           version == UMI_KEY_VERSION && is_plausible(key);
}
