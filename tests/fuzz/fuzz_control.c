/* fuzz_control.c: libFuzzer target for umi_control_decode(). What is accepted
 * must encode to the very bytes that were decoded. To run, from the root:
 *
 *   clang -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined \
 *       -fno-sanitize-recover=all -Iinclude -Isrc \
 *       tests/fuzz/fuzz_control.c src/wire/control.c -o fuzz_control
 *   ./fuzz_control -max_len=4096 -max_total_time=60
 */
#include "wire/control.h"

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
