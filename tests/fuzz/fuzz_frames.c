/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_frames.c: umi_frame_head_decode(). What is accepted must encode to the
 * very bytes that were decoded, and add up; what is refused, for a reason. */
#include "codec/frames.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* The head that `frames` was decoded from; its length. */
static size_t
encode(const umi_frame_head *frames, uint8_t *bytes)
{
    uint8_t *pos    = bytes;
    size_t   packed = 0;

    pos = umi_varint_write(pos, frames->info.count);
    pos = umi_varint_write(pos, frames->info.header_len);
    for (size_t i = 0; i < frames->info.count; i++) {
        const umx_frame *frame = &frames->frames[i];

        pos = umi_varint_write(
            pos, umi_frame_entry(frame->len, frame->place, frame->is_device));
        packed += (frame->place == UMI_FRAME_IN_HEAD) ? frame->len : 0;
    }
    memcpy(pos, frames->info.header, frames->info.header_len + packed);
    return (size_t)(pos - bytes) + frames->info.header_len + packed;
}

/* The parts are as many as were counted, and have all bytes not in the head. */
static void
check_parts(const umi_frame_head *frames)
{
    size_t   len = 0, first = 0;
    umi_part part;

    for (size_t i = 0; i < frames->num_parts; i++) {
        umi_frame_part(frames, first, &part);
        if (part.first < first || part.end > frames->info.count ||
            part.count == 0 || part.len == 0) {
            abort();
        }
        first = part.end;
        len += part.len;
    }
    for (size_t i = 0; i < frames->info.count; i++) {
        if (frames->frames[i].place == UMI_FRAME_IN_HEAD) {
            len += frames->frames[i].len;
        }
    }
    if (len != frames->info.len) {
        abort();
    }
}

static void
check(const uint8_t *data, size_t len, const umi_frame_limits *limits)
{
    umi_frame_head frames;
    const char    *why   = umi_frame_head_decode(&frames, data, len, limits);
    uint8_t       *again = malloc(len + 1);

    if (why == NULL && again != NULL) {
        if (frames.info.count > limits->frames ||
            frames.info.len > limits->bytes ||
            len > umi_frame_head_max(limits) || encode(&frames, again) != len ||
            memcmp(again, data, len) != 0) {
            abort();
        }
        check_parts(&frames);
    }
    free(again);
    umi_frame_head_fini(&frames);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const umi_frame_limits none = {UINT32_MAX, UINT64_MAX};
    static const umi_frame_limits few  = {20, 100000};

    check(data, len, &none);
    check(data, len, &few);
    return 0;
}
