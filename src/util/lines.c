/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/lines.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    LINE_SIZE = 512
};

void
umi_lines_escape(const char *from, char *to, size_t size)
{
    static const char digits[] = "0123456789abcdef";

    size_t len = 0;

    for (; *from != '\0'; from++) {
        unsigned char c        = (unsigned char)*from;
        bool          is_plain = c >= ' ' && c != 0x7f;

        if (len + (is_plain ? 1 : 4) >= size) {
            memcpy(to + size - 4, "...", 3);
            len = size - 1;
            break;
        }
        if (is_plain) {
            to[len++] = *from;
            continue;
        }
        memcpy(to + len, "\\x", 2);
        to[len + 2] = digits[c >> 4];
        to[len + 3] = digits[c & 15];
        len += 4;
    }
    to[len] = '\0';
}

void
umi_lines_format(char *text, size_t size, const char *format, va_list args)
{
    char raw[UMI_LINES_MAX + 1]; /* one more tells that a text is too long */

    if (vsnprintf(raw, size + 1, format, args) < 0) {
        raw[0] = '\0';
    }
    umi_lines_escape(raw, text, size);
}

void
umi_lines_add(const umi_lines *lines, const char *format, ...)
{
    char    text[LINE_SIZE];
    va_list args;

    va_start(args, format);
    umi_lines_format(text, sizeof(text), format, args);
    va_end(args);
    lines->fn(text, lines->arg);
}
