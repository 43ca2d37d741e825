/* SPDX-License-Identifier: BSD-3-Clause */
/* child.h: the test's own program again, as another process.
 *
 * main(argc, argv) calls child_role(): in the child it runs the role and ends
 * there. Roles talk to the test through pipes: CHILD_IN and CHILD_OUT. */
#ifndef CHILD_H
#define CHILD_H

#include "unit.h"

#include <sys/types.h>

enum {
    CHILD_IN  = 3,
    CHILD_OUT = 4
};

typedef struct child {
    pid_t pid;
    int   in;  /* what the child writes */
    int   out; /* what the child reads */
} child;

/* `arg` may be NULL. */
child child_start(const char *role, const char *arg);
/* Kill it if `signal` is not 0; wait for it. Its wait status. */
int child_end(child *c, int signal);

/* Exactly `len` bytes, or the test (the child) fails. */
void child_read(int fd, void *data, size_t len);
void child_write(int fd, const void *data, size_t len);

typedef struct child_entry {
    const char *role;
    int (*run)(const char *arg);
} child_entry;

/* In a child: run the role and exit. In the test: return. */
void child_role(int argc, char **argv, const child_entry *entries, int count);

#endif
