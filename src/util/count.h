/* SPDX-License-Identifier: BSD-3-Clause */
/* count.h: counts that never go below zero. */
#ifndef UMI_COUNT_H
#define UMI_COUNT_H

#include <assert.h>

/* Decrement a count; gives what is left. The argument has no side effects. */
#define UMI_DECREMENT(count) (assert((count) != 0), --(count))

#endif
