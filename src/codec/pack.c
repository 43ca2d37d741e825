/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/pack.h"

const char *
umi_pack_read(umi_reader *r, umi_pack_entry *entry)
{
    entry->metadata.len  = umi_read_u16(r);
    entry->metadata.data = umi_read_bytes(r, entry->metadata.len);
    entry->num_buffers   = umi_read_u16(r);
    entry->lens          = umi_read_bytes(r, 2 * entry->num_buffers);
    entry->len           = 0;
    if (r->is_bad) {
        return "a message in a pack is cut";
    }
    if (!umx_metadata_is_valid(&entry->metadata)) {
        return "the metadata in a pack is malformed";
    }
    for (size_t i = 0; i < entry->num_buffers; i++) {
        entry->len += umi_pack_len(entry, i);
    }
    entry->bytes = umi_read_bytes(r, entry->len);
    return r->is_bad ? "a message in a pack is cut" : NULL;
}
