/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_header.c: umi_header_decode(), against the layout drawn in header.h. */
#include "codec/header.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uint64_t
little_endian(const uint8_t *data, unsigned len)
{
    uint64_t value = 0;

    while (len-- > 0) {
        value = value << 8 | data[len];
    }
    return value;
}

static bool
is_valid(const uint8_t *data, size_t len)
{
    size_t size = (len > 1 && (data[1] & UMI_FLAG_UNTAGGED)) ? 16 : 24;

    if (len < size || data[1] > 7) { /* three flags */
        return false;
    }
    if (data[0] == UMI_KIND_AM) {
        return len <= size + UMX_AM_HEADER_MAX;
    }
    return len == size &&
           (data[0] == UMI_KIND_MESSAGE || data[0] == UMI_KIND_STREAM ||
            data[0] == UMI_KIND_FRAMES);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    umi_header header;

    if (umi_header_decode(&header, data, len) != is_valid(data, len)) {
        abort();
    }
    if (!is_valid(data, len)) {
        return 0;
    }
    if (header.kind != data[0] || header.flags != data[1] ||
        header.channel != little_endian(data + 2, 2) ||
        header.seq != little_endian(data + 4, 4) ||
        header.endpoint != little_endian(data + 8, 8) ||
        header.tag !=
            ((data[1] & UMI_FLAG_UNTAGGED) ? 0 : little_endian(data + 16, 8))) {
        abort();
    }
    return 0;
}
