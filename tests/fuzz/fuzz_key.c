/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_key.c: umi_key_decode(). What is accepted must encode to the very bytes
 * that were decoded. Inputs are tried as they are and with their hash put
 * right, which no mutation finds. */
#include "keys/key.h"

#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void
check(const uint8_t *data, size_t len)
{
    umi_key key;
    uint8_t again[UMI_KEY_MAX];

    if (umi_key_decode(&key, data, len) &&
        (umi_key_encode(&key, again) != len || memcmp(again, data, len) != 0)) {
        abort();
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint64_t hash;
    uint8_t *right;

    check(data, len);
    if (len < sizeof(hash)) {
        return 0;
    }
    right = malloc(len);
    if (right == NULL) {
        return 0;
    }
    memcpy(right, data, len);
    hash = umi_siphash(data, len - sizeof(hash));
    memcpy(right + len - sizeof(hash), &hash, sizeof(hash));
    check(right, len);
    free(right);
    return 0;
}
