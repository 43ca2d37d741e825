/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_ucx_address.c: umi_ucx_address_decode(). What is refused is so for a
 * reason; what is taken has entries that UCX has room for. */
#include "codec/ucx_address.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    umi_ucx_address address;
    const char     *why     = NULL;
    bool            is_good = umi_ucx_address_decode(&address, data, len, &why);

    if (is_good != (why == NULL) ||
        (is_good && (address.version == 0 || address.num_transports > 128))) {
        abort();
    }
    return 0;
}
