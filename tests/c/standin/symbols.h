/* SPDX-License-Identifier: BSD-3-Clause */
/* symbols.h: the stand-in's functions by name. */
#ifndef STANDIN_SYMBOLS_H
#define STANDIN_SYMBOLS_H

/* NULL: it has none of that name. */
void *standin_symbol(const char *name);

#endif
