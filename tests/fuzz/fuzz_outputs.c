/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_outputs.c: slots, overflows and messages of src/outputs. A message that
 * is accepted must encode to the very bytes that were decoded; of the other two
 * key and path must lie in the bytes. */
#include "outputs/slot.h"
#include "outputs/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Read key and path, which may lead nowhere else. */
static void
touch(const umi_outputs_where *where, const uint8_t *data, size_t len)
{
    const uint8_t *end = data + len;

    if ((where->key_len != 0 && where->key + where->key_len > end) ||
        (where->path_len != 0 &&
         (const uint8_t *)where->path + where->path_len > end)) {
        abort();
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t             place[UMI_OUTPUTS_PLACE] = {0};
    uint8_t             bytes[UMI_OUTPUTS_MESSAGE_MAX];
    umi_outputs_where   where = {0};
    umi_outputs_message message;

    memcpy(place, data, (len < sizeof(place)) ? len : sizeof(place));
    if (umi_outputs_slot_decode(&where, place)) {
        touch(&where, place, sizeof(place));
    }
    if (umi_outputs_overflow_decode(&where, data, len)) {
        touch(&where, data, len);
    }
    if (umi_outputs_message_decode(&message, data, len) &&
        (umi_outputs_message_encode(&message, bytes) != len ||
         memcmp(bytes, data, len) != 0)) {
        abort();
    }
    return 0;
}
