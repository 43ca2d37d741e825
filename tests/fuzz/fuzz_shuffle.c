/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_shuffle.c: records of src/shuffle/wire.h, one after the other. What is
 * accepted must encode to the very bytes that were decoded, as many as it says.
 */
#include "shuffle/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t           *bytes = malloc(len + 1);
    umi_reader         r;
    umi_shuffle_record record;
    umi_writer         w;

    if (bytes == NULL) {
        return 0;
    }
    umi_reader_init(&r, data, len);
    while (r.pos != r.end) {
        const uint8_t *begin = r.pos;
        size_t         size;

        if (!umi_shuffle_record_decode(&record, &r)) {
            break;
        }
        size = (size_t)(r.pos - begin);
        if (umi_shuffle_record_size(&record) != size) {
            abort();
        }
        umi_writer_init(&w, bytes, size);
        umi_shuffle_record_encode(&record, &w);
        if (w.pos != w.end || memcmp(bytes, begin, size) != 0) {
            abort();
        }
    }
    free(bytes);
    return 0;
}
