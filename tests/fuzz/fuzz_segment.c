/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_segment.c: umi_segment_map() of a key to a slab, whose headers and whose
 * key are the input. What it gives lies within the slab's data, and belongs to
 * a header that says what the key says. Input:
 *
 *   place u32 | length u64 | memory u64 | slab's context u64 | header ...
 *
 * The header is the one at the place that the key names, and behind it. */
#include "keys/segment.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLAB_SIZE = 1 << 17,
    CONTEXT   = 7
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void
check(const umi_key *key)
{
    char        *data;
    umi_segment *header = umi_segment_map(key, &data);
    char        *base;

    if (header == NULL) {
        return;
    }
    base = (char *)header - (size_t)key->place * UMI_SLAB_CELL;
    if (key->place == 0 || key->place >= UMI_SLAB_CELLS ||
        data < base + UMI_SLAB_TABLE || key->length > SLAB_SIZE ||
        data + key->length > base + SLAB_SIZE ||
        header->memory != key->memory || header->length != key->length ||
        header->context != CONTEXT || umi_segment_is_closed(header) ||
        ((umi_slab_header *)(void *)base)->context != CONTEXT) {
        abort();
    }
    umi_segment_unmap(header, key->place);
}

static size_t
take(void *to, size_t size, const uint8_t **data, size_t *len)
{
    size_t taken = (*len < size) ? *len : size;

    if (taken != 0) {
        memcpy(to, *data, taken);
    }
    *data += taken;
    *len -= taken;
    return taken;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static void *slab;
    static int   number;

    umi_key key = {.flags = UMI_KEY_SEGMENT | UMI_KEY_SLAB, .context = CONTEXT};
    umi_slab_header *own;
    size_t           offset;

    if (slab == NULL &&
        umi_segment_create_slab(SLAB_SIZE, CONTEXT, &slab, &number) != UMX_OK) {
        abort();
    }
    memset(slab, 0, SLAB_SIZE);
    own         = slab;
    own->magic  = UMI_SLAB_MAGIC;
    key.segment = number;
    (void)take(&key.place, sizeof(key.place), &data, &len);
    (void)take(&key.length, sizeof(key.length), &data, &len);
    (void)take(&key.memory, sizeof(key.memory), &data, &len);
    (void)take(&own->context, sizeof(own->context), &data, &len);
    offset = (size_t)key.place * UMI_SLAB_CELL;
    if (offset != 0 && offset < SLAB_SIZE) { /* 0: no key of a slab */
        (void)take((char *)slab + offset, SLAB_SIZE - offset, &data, &len);
    }
    check(&key);
    return 0;
}
