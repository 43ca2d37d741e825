/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_near.c: umi_codec_near_decode(), and a ring of which the bytes are any:
 * what is taken of it lies within it. */
#include "codec/near.h"
#include "near/ring.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void
decode(const uint8_t *data, size_t len)
{
    umi_near_note note;

    if (umi_codec_near_decode(&note, data, len) &&
        (len != sizeof(note) || memcmp(&note, data, len) != 0 ||
         note.max > UMX_NEAR_MAX)) {
        abort();
    }
}

/* Each cell is filled from the input, which begins anew at its end. */
static void
take(const uint8_t *data, size_t len)
{
    umi_near_ring *ring = calloc(1, sizeof(*ring));
    umi_near_in    in   = {.ring = ring, .max = UMX_NEAR_MAX};
    umi_near_taken taken;
    size_t         at = 0;

    while (ring != NULL && at < 4 * len) {
        umi_near_cell *cell = &ring->cells[in.seen % UMI_NEAR_CELLS];

        for (size_t i = sizeof(cell->stamp); i < sizeof(*cell); i++) {
            ((uint8_t *)cell)[i] = data[at++ % len];
        }
        atomic_store(&cell->stamp, in.seen + 1);
        if (umi_near_ring_take(&in, &taken) != UMI_NEAR_MESSAGE) {
            break;
        }
        for (size_t i = 0; i < taken.cell.len; i++) {
            const uint8_t *byte = (const uint8_t *)taken.bytes + i;

            if (*byte == 0 && i > UMX_NEAR_MAX) {
                abort();
            }
        }
        umi_near_ring_read(&in);
    }
    free(ring);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    decode(data, len);
    take(data, len);
    return 0;
}
