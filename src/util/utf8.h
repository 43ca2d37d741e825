/* SPDX-License-Identifier: BSD-3-Clause */
/* utf8.h: is it text? Thread: any. */
#ifndef UMI_UTF8_H
#define UMI_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Shortest forms only, and no surrogates: what Python decodes. */
bool umi_utf8_is_valid(const void *data, size_t len);

/* Cut off a character of which a text, cut by bytes, has the beginning only. */
void umi_utf8_end(char *text);

#endif
