/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file proxy.h  A proxy: a thread that carries out the commands of rings
 * (ring.h), so that threads without a worker, and kernels of a GPU, write to the
 * memory of other ranks.
 *
 * A proxy has a worker and a communicator of its own. The memory that its
 * commands reach are its regions: one memory a rank, which every rank gives in
 * the same order. The commands of a ring begin in their order. A put or a signal
 * is retired when it has been handed over: its bytes may still be read until a
 * quiet that follows is retired. A signal is seen after the puts of its ring to
 * the same rank that precede it.
 *
 * What goes wrong ends the ring whose command it was, and no other one: the ring
 * takes no further commands, and umx_proxy_ring_get_error() says why. So a rank
 * that has ended ends the rings whose commands need it.
 *
 * Thread: the owner of the communicator's worker, unless marked "any thread".
 * Everything but umx_proxy_create() and umx_proxy_add_region() concerns this rank
 * only.
 */
#ifndef UMX_PROXY_H
#define UMX_PROXY_H

#include <umx/comm.h>
#include <umx/joint.h>
#include <umx/ring.h>
#include <umx/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_proxy      umx_proxy;
typedef struct umx_proxy_ring umx_proxy_ring;

enum {
    UMX_PROXY_REGIONS_MAX = 256,
    UMX_PROXY_GROUPS_MAX  = 256, /* of barriers */
    /* Puts and signals of a ring that are under way at the same time: for many
     * small ones, and for few large ones. */
    UMX_PROXY_LATENCY     = 32,
    UMX_PROXY_BULK        = 8,
    UMX_PROXY_IN_FLIGHT_MAX = 65536
};

/* ---- proxies -------------------------------------------------------------
 */

enum umx_proxy_field {
    UMX_PROXY_FIELD_CPU     = 1u << 0, /* absent: the thread is not pinned */
    UMX_PROXY_FIELD_SPIN    = 1u << 1, /* absent: 50 us, or 0 with one CPU */
    UMX_PROXY_FIELD_TIMEOUT = 1u << 2  /* absent: that of the communicator */
};

typedef struct umx_proxy_params {
    uint64_t field_mask;
    unsigned cpu;        /* the thread runs on that CPU only */
    uint64_t spin_ns;    /* how long it looks for commands before it sleeps */
    uint64_t timeout_ns; /* of the whole: until the proxies of all have met */
} umx_proxy_params;

/**
 * Make a proxy on every rank of `comm`; a collective operation, for which `comm`
 * is used no more when it has completed.
 *
 * Ownership: the caller's reference, which umx_proxy_destroy() gives back, also
 *            if the request fails.
 * @param params  NULL: the defaults
 * @return UMX_INPROGRESS; UMX_ERR_OUT_OF_RANGE: the process may not run on that
 *         CPU; UMX_ERR_THREAD_LIMIT; UMX_ERR_NO_RESOURCE: the system has no
 *         descriptor left; UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY. If one rank
 *         fails, all do; umx_proxy_reason() says why.
 *         Completion: also UMX_ERR_TIMED_OUT.
 */
UMX_API UMX_MUST_CHECK umx_status umx_proxy_create(
    umx_comm *comm, const umx_proxy_params *params, const umx_op_params *op,
    umx_proxy **proxy_p, umx_request **req_p);

/** How it is made, and which rank has failed. It is the proxy's. */
UMX_API umx_joint *umx_proxy_joint(umx_proxy *proxy);

/** umx_joint_reason(): why it was not made, for people; "" if it was. */
UMX_API const char *umx_proxy_reason(const umx_proxy *proxy);

/**
 * Carry out what the rings hold now, then end the proxy; what is written later
 * is lost. Meanwhile others' puts are still answered; afterwards commands of other ranks that need this one fail. Its
 * rings end with UMX_ERR_CLOSED.
 *
 * Completion: UMX_OK; UMX_ERR_TIMED_OUT: some commands are left, which are lost.
 * Cancelled, it ends at once, as with a timeout of 0.
 * @return UMX_INPROGRESS; UMX_OK: it has ended; UMX_ERR_BUSY: it is closing;
 *         UMX_ERR_NO_MEMORY, UMX_ERR_FORKED
 */
UMX_API UMX_MUST_CHECK umx_status umx_proxy_close(umx_proxy *proxy,
                                                  uint64_t   timeout_ns,
                                                  const umx_op_params *op,
                                                  umx_request        **req_p);

/** Give it back. One that is not closed ends now, without waiting for its
 * commands; this waits for its thread. In a forked child nothing is freed. */
UMX_API void umx_proxy_destroy(umx_proxy *proxy);

/**
 * Add a region, whose number is how many there were before; a collective
 * operation, called in the same order on each rank.
 *
 * Ownership: the proxy keeps the memories, not their being open, until it ends.
 * Completion: as umx_region_create(); a region that fails has its number all the
 *             same. Cancelled, the region is made nevertheless.
 * @param memh      what the commands of other ranks write; NULL: this rank has
 *                  none
 * @param source    what this rank's puts read; NULL: `memh`
 * @param[out] number_p  its number
 * @return UMX_INPROGRESS; UMX_ERR_EXCEEDS_LIMIT: there are 256;
 *         UMX_ERR_INVALID_PARAM: memory of another context; UMX_ERR_CLOSED,
 *         UMX_ERR_NO_MEMORY, UMX_ERR_FORKED
 */
UMX_API UMX_MUST_CHECK umx_status umx_proxy_add_region(
    umx_proxy *proxy, umx_memh *memh, umx_memh *source,
    const umx_op_params *op, unsigned *number_p, umx_request **req_p);

typedef struct umx_proxy_stats {
    uint64_t rings; /* now */
    uint64_t regions;
    uint64_t sleeps;   /* how often the thread has gone to sleep */
    uint64_t wakeups;  /* ... and producers have woken it */
} umx_proxy_stats;

/** Any thread. */
UMX_API void umx_proxy_query(const umx_proxy *proxy, umx_proxy_stats *stats);

/* ---- rings ---------------------------------------------------------------
 */

enum umx_proxy_ring_field {
    UMX_PROXY_RING_FIELD_KIND      = 1u << 0, /* absent: one producer */
    UMX_PROXY_RING_FIELD_IN_FLIGHT = 1u << 1, /* absent: UMX_PROXY_LATENCY */
    UMX_PROXY_RING_FIELD_MEMORY    = 1u << 2, /* absent: the library's own */
    UMX_PROXY_RING_FIELD_DEVICE    = 1u << 3, /* absent: false */
    UMX_PROXY_RING_FIELD_FIRST     = 1u << 4  /* absent: 0 */
};

typedef struct umx_proxy_ring_params {
    uint64_t     field_mask;
    unsigned     capacity;  /* commands; a power of two, 2 to 2**20 */
    umx_ring_u32 kind;      /* 0, or UMX_RING_SEVERAL */
    unsigned     in_flight; /* 1 to UMX_PROXY_IN_FLIGHT_MAX */
    /* Where the ring lies, at its beginning: host memory of at least
     * UMX_RING_BYTES(capacity) bytes, pinned for producers on a device. */
    umx_memh    *memh;
    /* Producers may be on a device, which wakes nobody: the proxy looks at the
     * ring from time to time, after pauses of a 64th of the time for which
     * nothing has come, and 10 ms at most. */
    bool         is_device;
    umx_ring_u64 first; /* the number of the first command, for tests */
} umx_proxy_ring_params;

/**
 * Make a ring of this rank.
 *
 * @return UMX_OK; UMX_ERR_INVALID_PARAM: the capacity, or memory that is not the
 *         host's; UMX_ERR_OUT_OF_RANGE: `in_flight`; UMX_ERR_BUFFER_TOO_SMALL:
 *         the memory; UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY, UMX_ERR_FORKED
 */
UMX_API UMX_MUST_CHECK umx_status umx_proxy_ring_create(
    umx_proxy *proxy, const umx_proxy_ring_params *params,
    umx_proxy_ring **ring_p);

/** Give it back. Producers have stopped. What they wrote and the proxy has not
 * begun is lost. It may outlive the proxy. Any thread. */
UMX_API void umx_proxy_ring_destroy(umx_proxy_ring *ring);

/** The ring as its producers see it, as long as it lives. Any thread. */
UMX_API const umx_ring *umx_proxy_ring_get(const umx_proxy_ring *ring);

/**
 * Complete when all commands that were written to these rings before are over,
 * and the bytes of their puts in the ranks' memory. Cancelled, it changes
 * nothing.
 *
 * @return UMX_INPROGRESS; UMX_OK; the status that has ended one of the rings,
 *         such as UMX_ERR_CLOSED; UMX_ERR_INVALID_PARAM: rings of several
 *         proxies; UMX_ERR_NO_MEMORY, UMX_ERR_FORKED
 */
UMX_API UMX_MUST_CHECK umx_status
umx_proxy_quiet(umx_proxy_ring *const *rings, size_t count,
                const umx_op_params *op, umx_request **req_p);

/** Complete when the command `number` of a ring is retired. As
 * umx_proxy_quiet(). */
UMX_API UMX_MUST_CHECK umx_status umx_proxy_ring_retire(
    umx_proxy_ring *ring, umx_ring_u64 number, const umx_op_params *op,
    umx_request **req_p);

/** umx_proxy_quiet() that blocks; any thread. UMX_ERR_TIMED_OUT changes nothing.
 */
UMX_API UMX_MUST_CHECK umx_status umx_proxy_quiet_wait(
    umx_proxy_ring *const *rings, size_t count, uint64_t timeout_ns);

/** umx_proxy_ring_retire() that blocks; any thread. */
UMX_API UMX_MUST_CHECK umx_status umx_proxy_ring_wait(umx_proxy_ring *ring,
                                                      umx_ring_u64    number,
                                                      uint64_t timeout_ns);

/** What has ended a ring. */
typedef struct umx_proxy_error {
    umx_status       status;
    int              rank;    /* whose fault it is; -1: no rank's */
    umx_status       cause;   /* UMX_ERR_RANK_FAILED: what has ended that rank */
    umx_ring_u64     number;  /* of the command */
    umx_ring_command command; /* as it was given; zeros: none */
    const char      *reason;  /* for people; it lasts as long as the ring */
} umx_proxy_error;

/** True if the ring has ended; then `*error` says why. Any thread. */
UMX_API bool umx_proxy_ring_get_error(const umx_proxy_ring *ring,
                                      umx_proxy_error      *error);

typedef struct umx_proxy_ring_stats {
    uint64_t puts; /* commands that have begun */
    uint64_t signals;
    uint64_t quiets;
    uint64_t barriers;
    uint64_t nops;
    uint64_t bytes;     /* of puts */
    uint64_t fences;    /* before signals, as puts were under way */
    uint64_t in_flight; /* puts and signals under way now ... */
    uint64_t in_flight_peak;
    uint64_t stalls; /* how often that limit has made a command wait */
} umx_proxy_ring_stats;

/** Any thread. */
UMX_API void umx_proxy_ring_query(const umx_proxy_ring *ring,
                                  umx_proxy_ring_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
