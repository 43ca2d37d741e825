/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.h: UCX's calls are counted, and at the k-th something happens.
 *
 * A program that is linked with steps.c, or that has it as a shared library in
 * LD_PRELOAD (tests/steps.py), calls UCX through it. A step is a call that
 * hands something to UCX or begins something, or progress that has moved
 * something. What UCX does is real: tests/c/fake_ucp.h is for programs without
 * UCX.
 *
 * To cancel at step k, a test looks at steps_reached() between two calls of
 * progress: there a program can, within a call of UCX none can. */
#ifndef STEPS_H
#define STEPS_H

#include <stdbool.h>

enum {
    STEPS_COUNT, /* nothing happens */
    STEPS_FAIL,  /* the call fails: UCS_ERR_NO_MEMORY */
    STEPS_DELAY, /* the next 20 calls of progress of its worker find nothing */
};

/* Count from 1, until steps_end(); `at` 0 is never reached. */
void steps_begin(unsigned at, int fault);

/* How many there were. */
unsigned steps_end(void);

/* True if step `at` has been. */
bool steps_reached(void);

/* True if the fault has happened: progress, for one, cannot fail. */
bool steps_happened(void);

#endif
