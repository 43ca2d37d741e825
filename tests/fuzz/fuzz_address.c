/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_address.c: umi_address_decode(). What is accepted must encode to the
 * very bytes that were decoded; what is refused, for a reason. The input is
 * tried as it is, and again with the checksum that it should have: no mutation
 * would get past that otherwise. */
#include "codec/address.h"

#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

enum {
    LENGTH_OFFSET = 6,
    CHECKSUM_SIZE = 8
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void
check(const uint8_t *data, size_t len)
{
    umi_address address;
    uint8_t     again[UMX_ADDRESS_MAX];
    const char *why  = NULL;
    size_t      said = 0;

    if (!umi_address_decode(&address, data, len, &said, &why)) {
        if (why == NULL) {
            abort();
        }
        return;
    }
    if (said > len || umi_address_encode(&address, again) != said ||
        memcmp(again, data, said) != 0) {
        abort();
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *sealed;
    uint64_t checksum;
    uint16_t said = (uint16_t)len;

    check(data, len);
    if (len < LENGTH_OFFSET + 2 + CHECKSUM_SIZE || len > UINT16_MAX) {
        return 0;
    }
    sealed = malloc(len);
    if (sealed == NULL) {
        return 0;
    }
    memcpy(sealed, data, len);
    memcpy(sealed + LENGTH_OFFSET, &said, sizeof(said));
    checksum = umi_siphash(sealed, len - CHECKSUM_SIZE);
    memcpy(sealed + len - CHECKSUM_SIZE, &checksum, CHECKSUM_SIZE);
    check(sealed, len);
    free(sealed);
    return 0;
}
