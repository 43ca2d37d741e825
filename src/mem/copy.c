/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>

static void
copy_line(char *to, const char *from)
{
    const __m128i *in  = (const __m128i *)(const void *)from;
    __m128i       *out = (__m128i *)(void *)to;
    __m128i        a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    __m128i        c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);

    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
}

void
umi_copy_streaming(void *to, const void *from, size_t len)
{
    char       *out  = to;
    const char *in   = from;
    size_t      head = (size_t)(-(uintptr_t)to % UMI_COPY_LINE);

    memcpy(out, in, head);
    out += head;
    in += head;
    len -= head;
    for (; len >= UMI_COPY_LINE; len -= UMI_COPY_LINE) {
        copy_line(out, in);
        out += UMI_COPY_LINE;
        in += UMI_COPY_LINE;
    }
    _mm_sfence(); /* such stores are in no order with others */
    memcpy(out, in, len);
}

#else

void
umi_copy_streaming(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
}

#endif

void
umi_copy_in_parts(void *to, const void *from, size_t len)
{
    char       *out = to;
    const char *in  = from;

    for (; len > UMI_COPY_SHORT; len -= UMI_COPY_SHORT) {
        memcpy(out, in, UMI_COPY_SHORT);
        out += UMI_COPY_SHORT;
        in += UMI_COPY_SHORT;
    }
    memcpy(out, in, len);
}
