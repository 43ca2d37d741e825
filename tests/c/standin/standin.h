/* SPDX-License-Identifier: BSD-3-Clause */
/* standin.h: a stand-in for NVIDIA's driver, which can fail.
 *
 * A test in C whose line `link:` says `standin` finds it by
 * dlopen("libcuda.so.1"). tests/gpu.py builds that library of it for programs
 * in Python, and for UCX, whose own CUDA transports run on it.
 *
 * Memory of a device lies in a file of memory and has an address that the CPU
 * cannot touch. A stream has a thread, which does what is queued: copies in
 * steps of 64 KiB. Memory of the host that is neither pinned nor registered is
 * staged, as by the driver: a copy out of a device into it has been made when
 * the call returns. Thread: any.
 *
 * The environment, which is read when the library is loaded:
 *   STANDIN_DEVICES    how many there are (4)
 *   STANDIN_MEMORY     bytes of each (4 GiB)
 *   STANDIN_STEP_US    microseconds before each step of a copy (0)
 *   STANDIN_GBS        how fast copies are, in GB/s (as fast as the host's)
 *   STANDIN_OPEN=1     the CPU can touch memory of devices
 *   STANDIN_IPC=0      no memory is exported to other processes; =export: none
 *                      of theirs is opened
 *   STANDIN_PEER=0     devices do not reach each other's memory
 *   STANDIN_FAIL=F:E:K,...  the K-th call of F returns E, as standin_fail()
 *   STANDIN_ENGINE=1   what is queued is done even while the process is
 * stopped, and when it was killed STANDIN_LOG=1      the name of each call is
 * written to standard error CUDA_VISIBLE_DEVICES    ordinals, or uuids as
 * "GPU-01..." */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "standin/driver.h"

enum {
    STANDIN_DEVICES     = 4, /* by default */
    STANDIN_MAX_DEVICES = 8
};

typedef struct standin_state {
    unsigned pushes; /* of contexts, ... */
    unsigned pops;
    unsigned copies;         /* queued */
    unsigned launches;       /* of kernels */
    unsigned strays;         /* copies in a default stream by calls that name
                              * a stream, or in a context of neither memory */
    unsigned    waits;       /* for streams but those of the thread's copies */
    unsigned    allocations; /* not freed */
    const void *waited;      /* the newest stream */
    int         allocated;   /* the newest's device */
    unsigned    retained[STANDIN_MAX_DEVICES];
    bool        is_missing;    /* no library, for dlopen() in C */
    bool        is_deviceless; /* cuInit() fails */
    const char *no_symbol; /* a symbol that the library lacks, for dlsym() */
} standin_state;

extern standin_state standin;

/* Forget what was counted, memory that was added, and errors; nothing is slow,
 * nothing is held. What programs keep stays: contexts, streams, allocations. */
void standin_reset(void);

/* ---- memory --------------------------------------------------------------
 */

/* Say that `len` bytes at `data` are of `device`; -1: pinned, of none. The CPU
 * can still touch them. */
void standin_add(void *data, size_t len, int device, bool is_managed);

/* Forget the memory that standin_add() was told of at `data`. */
void standin_remove(const void *data);

/* The context of this thread, by its device; -1: none. */
int standin_current(void);

/* ---- errors --------------------------------------------------------------
 */

/* Have the `at`-th call of `name` from now on return `result`; `at` 0: each
 * call. `name` "copy": the copy that is executed then fails, and what asks next
 * is told. Errors after which the driver knows no other answer (700, 702, 710,
 * 714 to 719, and each of "copy") stay until standin_reset(). `result` 0 takes
 * it back; `name` NULL: for all. */
void standin_fail(const char *name, int result, unsigned at);

/* How often `name` was called since standin_reset(). */
unsigned standin_num_calls(const char *name);

/* The `i`-th function, in order of first calls, that was called since
 * standin_reset(), and how often; NULL: there were no more. */
const char *standin_called(unsigned i, unsigned *count_p);

/* ---- time ----------------------------------------------------------------
 */

/* Copies wait that long before each step, and are at most so fast; 0: no
 * limit. */
void standin_set_speed(double step_us, double gbs);

/* Queue a kernel that sets `len` bytes to `value` after `delay_us`. In a
 * default stream it is of the memory's device. What the driver says. */
int standin_launch(void *stream, void *data, size_t len, int value,
                   double delay_us);

/* While this is on no kernel begins: those that are queued never end. */
void standin_hold(bool is_on);

#endif
