/* SPDX-License-Identifier: BSD-3-Clause */
/* lines.h: descriptions for people, line by line: umx/describe.h. */
#ifndef UMI_LINES_H
#define UMI_LINES_H

#include <stdarg.h>
#include <umx/describe.h>

enum {
    UMI_LINES_MAX = 1024 /* bytes of a line, with its end */
};

/* Where lines go. */
typedef struct umi_lines {
    umx_line_fn fn;
    void       *arg;
} umi_lines;

void umi_lines_add(const umi_lines *lines, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Copy a text, with control characters escaped as Python does, so that a line
 * stays one. One that is too long ends with dots. */
void umi_lines_escape(const char *from, char *to, size_t size);

/* Make a line of at most UMI_LINES_MAX bytes, which is escaped. */
void umi_lines_format(char *text, size_t size, const char *format,
                      va_list args);

#endif
