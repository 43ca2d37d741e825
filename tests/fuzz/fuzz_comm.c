/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_comm.c: decoders of src/comm/wire.h. The first byte chooses one. What is
 * accepted must encode to the very bytes that were decoded. */
#include "comm/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void
expect_same(const uint8_t *data, size_t len, const uint8_t *encoded,
            size_t encoded_len)
{
    if (len != encoded_len || memcmp(data, encoded, len) != 0) {
        abort();
    }
}

static void
check_header(const uint8_t *data, size_t len)
{
    umi_comm_header header;
    uint8_t         bytes[UMI_COMM_HEADER_MAX];

    if (umi_comm_header_decode(&header, data, len)) {
        expect_same(data, len, bytes, umi_comm_header_encode(&header, bytes));
    }
}

static void
check_hello(const uint8_t *data, size_t len)
{
    umi_comm_hello hello;
    uint8_t       *bytes;

    if (umi_comm_hello_decode(&hello, data, len)) {
        bytes = malloc(len);
        if (umi_comm_hello_encode(&hello, bytes, len - 1) != 0) {
            abort(); /* the buffer is a byte too short */
        }
        expect_same(data, len, bytes,
                    umi_comm_hello_encode(&hello, bytes, len));
        free(bytes);
    }
}

static void
check_failed(const uint8_t *data, size_t len)
{
    umi_comm_failed failed;
    uint8_t        *bytes;

    if (umi_comm_failed_decode(&failed, data, len)) {
        bytes = malloc(len);
        expect_same(data, len, bytes,
                    umi_comm_failed_encode(&failed, bytes, len));
        free(bytes);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0) {
        return 0;
    }
    switch (data[0] % 3) {
    case 0:
        check_header(data + 1, len - 1);
        break;
    case 1:
        check_hello(data + 1, len - 1);
        break;
    default:
        check_failed(data + 1, len - 1);
    }
    return 0;
}
