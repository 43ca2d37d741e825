/* SPDX-License-Identifier: BSD-3-Clause */
/* bell.h: rounds of a wait that sleeps and a peer that ends it, in another
 * process, at any moment around the one in which the wait falls asleep.
 *
 * A program that runs rounds calls child_role() with BELL_ROLE. */
#ifndef BELL_H
#define BELL_H

#include "child.h"

#include <stdbool.h>

typedef struct bell_shape {
    const char *name;
    const char *tls;           /* NULL: UCX's choice */
    bool        is_registered; /* the owner executes, whatever the transport */
    /* The peer's endpoint leads to one worker, in a thread of its own, and
     * another one waits. */
    bool has_two_workers;
    /* The writer stores by itself, without a fence if the system allows that.
     */
    bool is_in_line;
} bell_shape;

enum {
    BELL_SHAPES = 8
};

extern const bell_shape bell_shapes[BELL_SHAPES];

/* Run `count` rounds; how many there were before a wake-up was lost: somebody
 * slept for `timeout_ns`, and the number was there. */
uint64_t bell_rounds(const bell_shape *shape, uint64_t count,
                     uint64_t timeout_ns);

int bell_writer(const char *arg);

#define BELL_ROLE             \
    {                         \
        "writer", bell_writer \
    }

#endif
