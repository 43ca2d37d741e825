/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_message.c: umx_metadata_is_valid() and umi_pack_read(). What is accepted
 * must encode to the very bytes that were read; what is refused, for a reason.
 */
#include "messenger/sender.h"

#include <stdlib.h>
#include <string.h>
#include <umx/buffer.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Check that a dictionary built anew from `metadata` is the same. */
static void
check_metadata(const umx_metadata *metadata)
{
    umx_metadata_builder builder;
    umx_metadata_item    item, found;
    size_t               pos = 0;

    umx_metadata_init(&builder);
    while (umx_metadata_next(metadata, &pos, &item)) {
        if (umx_metadata_add(&builder, &item) != UMX_OK ||
            !umx_metadata_find(metadata, item.key, item.key_len, &found) ||
            found.data != item.data || found.number != item.number) {
            abort();
        }
    }
    if (builder.metadata.len != metadata->len ||
        (metadata->len != 0 &&
         memcmp(builder.metadata.data, metadata->data, metadata->len) != 0)) {
        abort();
    }
    umx_metadata_fini(&builder);
}

static void
check_entry(const umi_pack_entry *entry, const uint8_t *bytes, size_t size)
{
    umx_buffer     *buffers = calloc(entry->num_buffers + 1, sizeof(*buffers));
    uint8_t        *again   = malloc(size);
    const uint8_t  *pos     = entry->bytes;
    umx_message_out message = {.metadata    = entry->metadata,
                               .buffers     = buffers,
                               .num_buffers = entry->num_buffers};

    if (buffers == NULL || again == NULL) {
        abort();
    }
    for (size_t i = 0; i < entry->num_buffers; i++) {
        size_t length = umi_pack_len(entry, i);

        buffers[i] = umx_host_buffer(pos, length);
        pos += length;
    }
    if (umi_batch_write(&message, again, size) != UMX_OK ||
        memcmp(again, bytes, size) != 0 ||
        (size <= UMI_PACK_ENTRY_MAX &&
         umi_batch_entry_size(&message) != size)) {
        abort();
    }
    free(buffers);
    free(again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    umx_metadata   metadata = {data, len};
    umi_pack_entry entry;
    umi_reader     r;

    if (umx_metadata_is_valid(&metadata)) {
        check_metadata(&metadata);
    }
    umi_reader_init(&r, data, len);
    while (r.pos != r.end) {
        const uint8_t *start = r.pos;

        if (umi_pack_read(&r, &entry) != NULL) {
            break;
        }
        check_metadata(&entry.metadata);
        check_entry(&entry, start, (size_t)(r.pos - start));
    }
    return 0;
}
