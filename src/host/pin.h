/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* pin.h: have memory of the host registered with the driver, so that copies of
 * a device move it without the CPU: memory of the library's own, and what
 * programs have registered. To register takes milliseconds, so a thread does it,
 * for memory that is moved a second time:
 *
 *   NEW --moved--> SEEN --moved--> BEGUN --the memory goes--> NEW
 *
 * Until the thread is done the bytes go in other ways; from then on the driver
 * says of such memory that it is pinned. Thread: any. */
/* clang-format on */
#ifndef UMI_PIN_H
#define UMI_PIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum umi_pin_state {
    UMI_PIN_NEW,
    UMI_PIN_SEEN,
    UMI_PIN_BEGUN /* or done, or that has failed */
} umi_pin_state;

/* Of one memory; zeros: NEW. */
typedef struct umi_pin {
    atomic_int state;
    pthread_t  thread;     /* from BEGUN on */
    unsigned   generation; /* umi_fork_generation() then */
    void      *data;
    size_t     len;
    int        device; /* in whose context */
    bool       is_registered;
} umi_pin;

/* The memory is moved to, or from, a device. In a process that uses no device
 * it stays as it is. */
void umi_pin_use(umi_pin *pin, void *data, size_t len);

/* The memory goes: return when the driver knows it no more. */
void umi_pin_end(umi_pin *pin);

#endif
