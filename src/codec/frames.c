/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "util/bytes.h"
#include "channel/frames.h"

size_t
umi_varint_size(uint64_t value)
{
    size_t size = 1;

    while (value >>= 7) {
        size++;
    }
    return size;
}

uint8_t *
umi_varint_write(uint8_t *pos, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        *pos++ = (uint8_t)(value | 0x80);
    }
    *pos++ = (uint8_t)value;
    return pos;
}

static uint64_t
read_varint(umi_reader *r)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = umi_read_u8(r);

        if (shift == 63 && byte > 1) {
            break; /* more than 64 bits */
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            r->is_bad |= (byte == 0 && shift != 0); /* not the shortest */
            return value;
        }
    }
    r->is_bad = true;
    return 0;
}

size_t
umi_frames_head_max(const umi_frames_limits *limits)
{
    return (size_t)UMI_VARINT_MAX * (2 + (size_t)limits->frames) +
           UMX_FRAMES_HEADER_MAX + UMI_FRAMES_PACKED_MAX;
}

void
umi_frames_fini(umi_frames *frames)
{
    if (frames->frames != frames->own) {
        free(frames->frames);
    }
    free(frames->buffers);
}

static const char *
check_place(umi_frames *frames, const umx_frame *frame)
{
    if (frame->place > UMI_FRAME_GOES_ON) {
        return "a frame in no known place";
    }
    if (frame->place == UMI_FRAME_IN_HEAD) {
        return NULL;
    }
    if (frame->len == 0) {
        return "a part for a frame without bytes";
    }
    if (frame->place == UMI_FRAME_GOES_ON && frames->num_parts == 0) {
        return "a frame in a part that does not begin";
    }
    frames->num_parts += (frame->place == UMI_FRAME_BEGINS);
    return NULL;
}

/* One entry; `*packed_p` counts the bytes in the head. */
static const char *
decode_entry(umi_frames *frames, umi_reader *r, uint64_t max, size_t *packed_p)
{
    uint64_t   entry = read_varint(r);
    umx_frame *frame = &frames->frames[frames->info.count++];

    if (r->is_bad) {
        return "a head of frames that is cut";
    }
    *frame = (umx_frame){.len       = entry >> 3,
                         .is_device = (entry & 1) != 0,
                         .place     = (entry >> 1) & 3};
    if (frame->len > max - frames->info.len) {
        return "more bytes of frames than the limit";
    }
    frames->info.len += frame->len;
    if (frame->place == UMI_FRAME_IN_HEAD) {
        *packed_p += frame->len;
    }
    return check_place(frames, frame);
}

static const char *
decode_entries(umi_frames *frames, umi_reader *r, size_t count, uint64_t max,
               size_t *packed_p)
{
    const char *why = NULL;

    if (count > UMI_FRAMES_INLINE) {
        frames->frames = malloc(count * sizeof(*frames->frames));
        if (frames->frames == NULL) {
            frames->frames = frames->own;
            return "out of memory for a message";
        }
    }
    frames->info.frames = frames->frames;
    while (frames->info.count < count && why == NULL) {
        why = decode_entry(frames, r, max, packed_p);
    }
    return why;
}

const char *
umi_frames_decode(umi_frames *frames, const void *data, size_t len,
                  const umi_frames_limits *limits)
{
    umi_reader  r;
    uint64_t    count, header_len;
    size_t      packed = 0;
    const char *why;

    *frames = (umi_frames){0};
    umi_list_init(&frames->parts);
    frames->frames = frames->own;
    umi_reader_init(&r, data, len);
    count      = read_varint(&r);
    header_len = read_varint(&r);
    /* Each entry has a byte at least: a count that lies costs nothing. */
    if (r.is_bad || count > (size_t)(r.end - r.pos)) {
        return "a head of frames that is cut";
    }
    if (count > limits->frames) {
        return "more frames than the limit";
    }
    if (header_len > UMX_FRAMES_HEADER_MAX) {
        return "a header of frames that is too long";
    }
    why = decode_entries(frames, &r, (size_t)count, limits->bytes, &packed);
    if (why != NULL) {
        return why;
    }
    if (packed > UMI_FRAMES_PACKED_MAX ||
        (size_t)(r.end - r.pos) != header_len + packed) {
        return "frames whose sizes lie";
    }
    frames->info.header     = r.pos;
    frames->info.header_len = (size_t)header_len;
    frames->packed          = r.pos + header_len;
    frames->num_missing     = frames->num_parts;
    return NULL;
}

void
umi_frames_part(const umi_frames *frames, size_t first, umi_part *part)
{
    const umx_frame *frame = frames->frames;
    size_t           i     = first;

    while (frame[i].place != UMI_FRAME_BEGINS) {
        i++;
    }
    *part = (umi_part){.first = i, .count = 1, .len = frame[i].len};
    for (i++; i < frames->info.count && frame[i].place != UMI_FRAME_BEGINS;
         i++) {
        if (frame[i].place == UMI_FRAME_GOES_ON) {
            part->count++;
            part->len += frame[i].len;
        }
    }
    part->end = i;
}
