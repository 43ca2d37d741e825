/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_ucp.h: the part of UCX that libumx calls, without UCX.
 *
 * Every call succeeds at once unless told otherwise. What a test can decide:
 * which call that may fail does so (malloc and calloc, where the test wraps
 * them, are calls that may fail), whether operations stay pending until the
 * next progress, and what arrives. Objects are counted: what a test leaves
 * behind is a leak of libumx. Thread: one. */
#ifndef FAKE_UCP_H
#define FAKE_UCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

typedef struct fake_state {
    unsigned     calls;       /* calls that may fail, so far */
    unsigned     fail_at;     /* number of the call that fails; 0: none */
    ucs_status_t fail_status; /* how */
    int          error;       /* how a system call does: errno */
    bool         is_paused;   /* calls of the test itself do not count */
    const char  *failed;      /* name of the call that failed, or NULL */
    bool         is_pending;  /* operations wait for progress, and so do the
                                 second halves of messages that are received */
    bool        is_wedged;    /* operations stay pending, and arming is BUSY */
    unsigned    completions;  /* of pending operations, so far */
    unsigned    fail_completion_at;
    const char *transport;       /* of every lane; NULL: it is not told */
    const char *description;     /* of endpoints; NULL: a few words */
    unsigned    puts;            /* posted so far */
    unsigned    flushes;         /* of endpoints, likewise */
    unsigned    closed_in_flush; /* endpoints, while a flush was queued */
    unsigned queued_polls; /* progress calls until no flush is in the queue of
                              callbacks */
    ucp_mem_h memh;        /* of the operation posted last, or NULL */
    size_t    rkey_len;    /* of ucp_rkey_pack(); 0: a few bytes */
    unsigned  idle_polls;  /* progress calls that find nothing first */
    void (*on_step)(void); /* before each callback of UCX; or NULL */
    void (*on_post)(void); /* in each operation that is posted; or NULL */
    bool     moves_cuda;   /* contexts know device memory */
    bool     calls_at_end; /* destroying a worker completes operations */
    unsigned live;         /* objects of any kind that were not given back */
} fake_state;

extern fake_state fake;

/* True if the call that is made now is the one that fails. */
bool fake_fails(const char *name);

/* Forget everything. */
void fake_reset(void);

/* UCX's error handler. */
void fake_break(ucp_ep_h ep, ucs_status_t status);

/* Something arrives for `ep`, in the next progress. */
void fake_arrive(ucp_ep_h ep, unsigned id, const void *header,
                 size_t header_len, const void *data, size_t len, bool is_rndv);

/* Number of active messages sent with `id`; the last one's bytes. */
unsigned    fake_sent(unsigned id);
const void *fake_last_sent(size_t *len_p);

/* True if UCX's configuration was given `key`. */
bool fake_was_configured(const char *key);

/* The value that was given last with `key`; NULL: none. */
const char *fake_configured(const char *key);

#endif
