/* SPDX-License-Identifier: BSD-3-Clause */
/* page.h: the counters of this process, in memory that other processes of the
 * user read by /proc/PID/fd, without the help of this one: also if it hangs.
 *
 * The memory is a memfd of the name UMI_PAGE_NAME. It begins with a
 * umi_page_header; a slot of each worker follows, in use or not, and then rows
 * of the hosts with which workers exchange messages. A number is
 * written by one thread, in one store, and read in one load: each is right by
 * itself at any time, while two that are read together may be of two moments.
 *
 * Messages and bytes are counted once for each worker: in the row of the peer's
 * host, or in the slot, if the host has no row. A worker has UMI_PAGE_HOSTS_MAX
 * rows at most and keeps them as long as it lives: each number only grows. What
 * a worker has sent altogether is the sum, which who reads makes.
 *
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
    UMI_PAGE_VERSION     = 2,
    UMI_PAGE_HEADER_SIZE = 4096,
    UMI_PAGE_SLOT_SIZE   = 512,
    UMI_PAGE_SLOTS       = 2040,
    UMI_PAGE_HOST_SIZE   = 192,
    UMI_PAGE_HOSTS       = 680, /* rows of all workers */
    UMI_PAGE_HOSTS_MAX   = 64   /* of one worker */
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
    uint64_t hosts_offset; /* of the first row; 0: there are none */
    uint32_t host_size;    /* of a row */
    uint32_t num_hosts;
    char     spare[32];
    char     names[1024]; /* of the numbers of a slot, by commas; with a zero */
} umi_page_header;

/* Messages of channels, and their bytes. */
typedef struct umi_traffic {
    uint64_t sent_messages;
    uint64_t sent_bytes;
    uint64_t received_messages;
    uint64_t received_bytes;
} umi_traffic;

/* What a worker exchanges with the processes of one host. */
typedef struct umi_page_host {
    /* Odd: in use. Grows when that begins, and ends. */
    uint64_t    turn;
    uint64_t    worker; /* umi_page_slot.number */
    umi_traffic traffic;
    char        name[64];       /* its address, or "localhost"; with a zero */
    char        transports[80]; /* by commas; with a zero */
} umi_page_host;

typedef struct umi_page_slot {
    /* Odd: in use. Grows when that begins, and ends. */
    uint64_t         turn;
    uint64_t         number;   /* of the worker, in this process; from 1 */
    uint64_t         begun_ns; /* CLOCK_REALTIME */
    uint64_t         drained;  /* ticks of the last drain; 0: none */
    umx_worker_stats stats;    /* without what umi_traffic counts */
    umi_traffic      others;   /* with hosts that have no row */
    uint64_t         rank;
    uint64_t         num_ranks;        /* 0: the worker is no rank */
    char             communicator[64]; /* its name, with a zero */
} umi_page_slot;

_Static_assert(sizeof(umi_page_header) <= UMI_PAGE_HEADER_SIZE, "it fits");
_Static_assert(sizeof(umi_page_slot) <= UMI_PAGE_SLOT_SIZE, "it fits");
_Static_assert(sizeof(umi_page_host) == UMI_PAGE_HOST_SIZE,
               "rows are adjacent");

/* Read the slots that are in use: at most `max`. Returns how many there are. */
size_t umi_page_read(umx_worker_numbers *numbers, size_t max);

/* A slot of a worker: all zeros but what tells it from others. NULL: out of
 * memory. */
umi_page_slot *umi_page_take(void);
void           umi_page_give_back(umi_page_slot *slot);

/* Enter into `stats` what the worker has exchanged with all hosts. */
void umi_page_add_traffic(const umi_page_slot *slot, umx_worker_stats *stats);

/* Find or take the row of the host `name` among those of a worker. NULL: all
 * are taken, or there is no file; its traffic belongs into slot->others. The
 * row is given back with the slot. */
umi_page_host *umi_page_host_of(umi_page_slot *slot, const char *name);

/* Note that messages go to the host by `transport`, unless that is noted. */
void umi_page_host_add_transport(umi_page_host *host, const char *transport);

/* The worker is `rank` of the `num_ranks` ranks of a communicator. */
void umi_page_set_rank(umi_page_slot *slot, const char *name, uint64_t rank,
                       uint64_t num_ranks);

#endif
