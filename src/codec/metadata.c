/* SPDX-License-Identifier: BSD-3-Clause */
/* metadata.c: dictionaries; see pack.h for what they look like. */
#include <stdlib.h>
#include <string.h>
#include <umx/messenger.h>

#include "util/bytes.h"
#include "util/utf8.h"

/* ---- decoding ------------------------------------------------------------
 */

static void
read_item(umi_reader *r, umx_metadata_item *item)
{
    uint8_t type;

    item->key_len = umi_read_u8(r);
    item->key     = (const char *)umi_read_bytes(r, item->key_len);
    type          = umi_read_u8(r);
    item->type    = (umx_metadata_type)type;
    item->number  = 0;
    item->data    = NULL;
    item->len     = 0;
    if (type == UMX_METADATA_INT) {
        item->number = (int64_t)umi_read_u64(r);
        return;
    }
    item->len  = umi_read_u16(r);
    item->data = umi_read_bytes(r, item->len);
}

static bool
item_is_valid(const umx_metadata_item *item)
{
    if (item->key_len == 0 || item->key_len > UMX_METADATA_KEY_MAX ||
        item->key == NULL || !umi_utf8_is_valid(item->key, item->key_len)) {
        return false;
    }
    switch (item->type) {
    case UMX_METADATA_INT:
        return true;
    case UMX_METADATA_STR:
        return (item->data != NULL || item->len == 0) &&
               umi_utf8_is_valid(item->data, item->len);
    case UMX_METADATA_BYTES:
        return item->data != NULL || item->len == 0;
    }
    return false;
}

bool
umx_metadata_next(const umx_metadata *metadata, size_t *pos_p,
                  umx_metadata_item *item)
{
    umi_reader r;

    if (*pos_p >= metadata->len) {
        return false;
    }
    umi_reader_init(&r, (const uint8_t *)metadata->data + *pos_p,
                    metadata->len - *pos_p);
    read_item(&r, item);
    *pos_p = metadata->len - (size_t)(r.end - r.pos);
    return !r.is_bad;
}

bool
umx_metadata_find(const umx_metadata *metadata, const char *key, size_t key_len,
                  umx_metadata_item *item)
{
    size_t pos = 0;

    while (umx_metadata_next(metadata, &pos, item)) {
        if (item->key_len == key_len && memcmp(item->key, key, key_len) == 0) {
            return true;
        }
    }
    return false;
}

/* True if `key`, after its length, is among the first `count`. */
static bool
has_key(const uint8_t *const *keys, size_t count, const uint8_t *key)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i][0] == key[0] && memcmp(keys[i], key, key[0] + 1u) == 0) {
            return true;
        }
    }
    return false;
}

bool
umx_metadata_is_valid(const umx_metadata *metadata)
{
    const uint8_t *keys[UMX_METADATA_ITEMS_MAX];
    size_t         count = 0;
    umi_reader     r;

    if (metadata->len > UMX_METADATA_MAX) {
        return false;
    }
    umi_reader_init(&r, metadata->data, metadata->len);
    for (; r.pos < r.end; count++) {
        umx_metadata_item item;
        const uint8_t    *key = r.pos;

        read_item(&r, &item);
        if (r.is_bad || !item_is_valid(&item) ||
            count == UMX_METADATA_ITEMS_MAX || has_key(keys, count, key)) {
            return false;
        }
        keys[count] = key;
    }
    return true;
}

/* ---- encoding ------------------------------------------------------------
 */

void
umx_metadata_init(umx_metadata_builder *builder)
{
    builder->memory   = builder->few;
    builder->metadata = (umx_metadata){.data = builder->few};
    builder->capacity = sizeof(builder->few);
    builder->count    = 0;
}

void
umx_metadata_fini(umx_metadata_builder *builder)
{
    if (builder->memory != builder->few) {
        free(builder->memory);
    }
    umx_metadata_init(builder);
}

static bool
make_room(umx_metadata_builder *builder, size_t len)
{
    size_t   capacity = builder->capacity;
    uint8_t *memory;

    if (len <= capacity) {
        return true;
    }
    while (capacity < len) {
        capacity *= 2;
    }
    memory = malloc(capacity);
    if (memory == NULL) {
        return false;
    }
    memcpy(memory, builder->memory, builder->metadata.len);
    if (builder->memory != builder->few) {
        free(builder->memory);
    }
    builder->memory        = memory;
    builder->metadata.data = memory;
    builder->capacity      = capacity;
    return true;
}

static void
write_item(umi_writer *w, const umx_metadata_item *item)
{
    umi_write_u8(w, (uint8_t)item->key_len);
    umi_write_bytes(w, item->key, item->key_len);
    umi_write_u8(w, (uint8_t)item->type);
    if (item->type == UMX_METADATA_INT) {
        umi_write_u64(w, (uint64_t)item->number);
    } else {
        umi_write_u16(w, (uint16_t)item->len);
        umi_write_bytes(w, item->data, item->len);
    }
}

umx_status
umx_metadata_add(umx_metadata_builder *builder, const umx_metadata_item *item)
{
    size_t            used = builder->metadata.len, len;
    umx_metadata_item other;
    umi_writer        w;

    if (item->key_len > UMX_METADATA_KEY_MAX || item->len > UMX_METADATA_MAX ||
        builder->count == UMX_METADATA_ITEMS_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (!item_is_valid(item)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (umx_metadata_find(&builder->metadata, item->key, item->key_len,
                          &other)) {
        return UMX_ERR_ALREADY_EXISTS;
    }
    len = used + 2 + item->key_len +
          (item->type == UMX_METADATA_INT ? 8 : 2 + item->len);
    if (len > UMX_METADATA_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (!make_room(builder, len)) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_writer_init(&w, builder->memory + used, len - used);
    write_item(&w, item);
    builder->metadata.len = len;
    builder->count++;
    return UMX_OK;
}
