/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_control.c: umi_control_decode(). What is accepted must encode to the
 * very bytes that were decoded; what is refused, for a reason. */
#include "codec/control.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    umi_control control;
    uint8_t     again[UMI_CONTROL_MAX];
    const char *why = NULL;

    if (!umi_control_decode(&control, data, len, &why)) {
        if (why == NULL) {
            abort();
        }
        return 0;
    }
    if (umi_control_encode(&control, again) != len ||
        memcmp(again, data, len) != 0) {
        abort();
    }
    return 0;
}
