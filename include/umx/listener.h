/* SPDX-License-Identifier: BSD-3-Clause */
/** @file listener.h  Accepting connections. Thread: the worker's owner. */
#ifndef UMX_LISTENER_H
#define UMX_LISTENER_H

#include <umx/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sockaddr;

/**
 * A peer has completed its handshake; `ep` is open and the callee's (see
 * endpoint.h on ownership). Runs in a (P) call.
 */
typedef void (*umx_accept_fn)(umx_listener *listener, umx_ep *ep, void *arg);

/** Hear that umx_listener_take() has another endpoint. Runs in a (P) call. */
typedef void (*umx_accept_ready_fn)(umx_listener *listener, void *arg);

/**
 * Hear that a peer which the listener had accepted has closed it
 * (umx_ep_close_listener()): it listens no more, and is still to be destroyed.
 * Runs in a (P) call.
 */
typedef void (*umx_remote_close_fn)(umx_listener *listener, void *arg);

enum umx_listener_field {
    UMX_LISTENER_FIELD_BACKLOG = 1u << 0, /* absent: 4096 */
    UMX_LISTENER_FIELD_TIMEOUT = 1u << 1, /* absent: config's
                                             connect_timeout_ns */
    UMX_LISTENER_FIELD_ON_REMOTE_CLOSE = 1u << 2, /* absent: peers may not close
                                                     it */
    UMX_LISTENER_FIELD_ON_READY = 1u << 3,        /* absent: `on_accept` gets
                                                     each endpoint */
    UMX_LISTENER_FIELD_PORT = 1u << 4, /* without `addr`; absent: the system's
                                          choice */
    UMX_LISTENER_FIELD_WINDOW = 1u << 5 /* absent: config's credit_* */
};

typedef struct umx_listener_params {
    uint64_t               field_mask;
    const struct sockaddr *addr; /* IPv4 or IPv6; port 0: the system's choice.
                                    "::" is all addresses of both families.
                                    NULL: as "::" where the system has IPv6,
                                    else all IPv4 addresses */
    size_t                 addr_len;
    umx_accept_fn          on_accept;
    void                  *arg;
    int                    backlog;
    uint64_t               timeout_ns; /* a peer that has not completed its
                                          handshake by then is dropped */
    umx_remote_close_fn on_remote_close; /* gets `arg`, too */
    /* Instead of `on_accept`: endpoints wait for umx_listener_take(). */
    umx_accept_ready_fn on_ready; /* gets `arg`, too */
    uint16_t            port; /* in the host's byte order */
    umx_window          window; /* of each endpoint */
} umx_listener_params;

/**
 * Start listening.
 * @return UMX_OK; UMX_ERR_BUSY: address in use, if for both families in one of
 *         them; UMX_ERR_INVALID_PARAM;
 *         UMX_ERR_INVALID_ADDR: not an address of this host;
 *         UMX_ERR_IO_ERROR: a port that needs rights; UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status
umx_listener_create(umx_worker *worker, const umx_listener_params *params,
                    umx_listener **listener_p);

/**
 * Take the next endpoint whose peer has completed its handshake, in their
 * order, as `on_accept` would give it; for listeners with `on_ready`. NULL if
 * there is none. What is not taken is closed with the listener, or with the
 * worker.
 */
UMX_API umx_ep *umx_listener_take(umx_listener *listener);

/** Replace the callback; NULL: peers are dropped, and may not close it. */
UMX_API void umx_listener_set_on_accept(umx_listener *listener,
                                        umx_accept_fn fn, void *arg);

/** Stop listening. Open endpoints live on; half-done handshakes are dropped. */
UMX_API void umx_listener_destroy(umx_listener *listener);

/** Any thread: ask the owner to destroy it. */
UMX_API void umx_listener_retire(umx_listener *listener);

/** The bound address; the IPv4 one of a listener made without an address.
 * `*len_p` is in and out, bytes. */
UMX_API UMX_MUST_CHECK umx_status
umx_listener_address(const umx_listener *listener, struct sockaddr *addr,
                     size_t *len_p);

/** True if IPv4 and IPv6 peers reach the listener, by its one port. */
UMX_API bool umx_listener_is_dual(const umx_listener *listener);

#ifdef __cplusplus
}
#endif
#endif
