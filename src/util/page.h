/* SPDX-License-Identifier: BSD-3-Clause */
/* page.h: the counters of this process, in memory that other processes of the
 * user read by /proc/PID/fd, without the help of this one: also if it hangs.
 *
 * The memory is a memfd of the name UMI_PAGE_NAME. It begins with a
 * umi_page_header; a slot of each worker follows, in use or not. A number is
 * written by one thread, in one store, and read in one load: each is right by
 * itself at any time, while two that are read together may be of two moments.
 * UCP_STATS=0 in the environment: there is no such memory, and slots are
 * memory like any other, as also where memory for it is not to be had, or more
 * workers are than it has slots.
 *
 * Thread: any; the numbers of a slot: its owner. A forked child has none of its
 * parent's: what it writes to them goes nowhere. */
#ifndef UMI_PAGE_H
#define UMI_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include <umx/observe.h>

#include "util/list.h"

#define UMI_PAGE_NAME "ucp-stats"

enum {
    UMI_PAGE_VERSION     = 1,
    UMI_PAGE_HEADER_SIZE = 4096,
    UMI_PAGE_SLOT_SIZE   = 512,
    UMI_PAGE_SLOTS       = 2040
};

/* What tells readers how to read the rest. */
typedef struct umi_page_header {
    char     magic[8]; /* "ucpstats", written last */
    uint32_t version;
    uint32_t header_size;
    uint32_t slot_size;
    uint32_t num_slots;
    uint64_t pid;
    uint64_t begun_ns;         /* CLOCK_REALTIME */
    uint64_t ticks;            /* umi_ticks() ... */
    uint64_t ticks_ns;         /* ... at this time of CLOCK_REALTIME */
    uint64_t ticks_per_second; /* of umi_ticks() */
    char     umx_version[16];
    char     spare[48];
    char     names[1024]; /* of the numbers of a slot, by commas; with a zero */
} umi_page_header;

typedef struct umi_page_slot {
    /* Odd: in use. Grows when that begins, and ends. */
    uint64_t         turn;
    uint64_t         number;   /* of the worker, in this process; from 1 */
    uint64_t         begun_ns; /* CLOCK_REALTIME */
    uint64_t         drained;  /* ticks of the last drain; 0: none */
    umx_worker_stats stats;
    uint64_t         rank;
    uint64_t         num_ranks;        /* 0: the worker is no rank */
    char             communicator[64]; /* its name, with a zero */
} umi_page_slot;

_Static_assert(sizeof(umi_page_header) <= UMI_PAGE_HEADER_SIZE, "it fits");
_Static_assert(sizeof(umi_page_slot) <= UMI_PAGE_SLOT_SIZE, "it fits");

/* Read the slots that are in use: at most `max`. Returns how many there are. */
size_t umi_page_read(umx_worker_numbers *numbers, size_t max);

/* A slot of a worker: all zeros but what tells it from others. NULL: out of
 * memory. */
umi_page_slot *umi_page_take(void);
void           umi_page_give_back(umi_page_slot *slot);

/* The worker is `rank` of the `num_ranks` ranks of a communicator. */
void umi_page_set_rank(umi_page_slot *slot, const char *name, uint64_t rank,
                       uint64_t num_ranks);

#endif
