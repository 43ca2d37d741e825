/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file endpoint.h  A connection to one peer. Thread: the worker's owner.
 *
 *  CONNECTING --WELCOME--> OPEN --close--> DRAINING --acked--> CLOSED
 *      |                     |                 |
 *      +------- error -------+------ error ----+------------> FAILED
 *
 * Ownership: umx_ep_connect() and `on_accept` give one reference, which
 * umx_ep_destroy() (owner) or umx_ep_retire() (any thread) gives back. Giving
 * back an open endpoint closes it in the background, with the deadline
 * `config.close_timeout_ns`: what was sent still arrives.
 */
#ifndef UMX_ENDPOINT_H
#define UMX_ENDPOINT_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sockaddr;

typedef enum umx_ep_state {
    UMX_EP_CONNECTING, /* handshake posted; sends wait for its end */
    UMX_EP_OPEN,       /* both directions usable */
    UMX_EP_DRAINING,   /* umx_ep_close() called: no new work, the old is
                          settled with the peer */
    UMX_EP_CLOSED,     /* closed by agreement; unread messages stay readable if
                          the peer closed */
    UMX_EP_FAILED      /* umx_ep_error() says why; unread eager messages stay
                          readable */
} umx_ep_state;

/** Runs in a (P) call after each change to OPEN, CLOSED or FAILED, and when
 * the peer's GOODBYE has been processed (state stays OPEN then,
 * umx_ep_is_peer_closed() is true). `status` is why. */
typedef void (*umx_ep_state_fn)(umx_ep *ep, umx_ep_state state,
                                umx_status status, void *arg);

enum umx_connect_field {
    UMX_CONNECT_FIELD_LOCAL    = 1u << 0, /* absent: the system's choice */
    UMX_CONNECT_FIELD_TIMEOUT  = 1u << 1, /* absent: config's */
    UMX_CONNECT_FIELD_ON_STATE = 1u << 2, /* absent: poll umx_ep_get_state() */
    UMX_CONNECT_FIELD_WINDOW   = 1u << 3  /* absent: config's credit_* */
};

typedef struct umx_connect_params {
    uint64_t               field_mask;
    const struct sockaddr *addr;
    size_t                 addr_len;
    const struct sockaddr *local; /* source address, port 0 */
    size_t                 local_len;
    uint64_t               timeout_ns; /* for the whole handshake */
    umx_ep_state_fn        on_state;
    void                  *arg;
    umx_window             window;
} umx_connect_params;

/**
 * Start connecting. The end of it is a state change: OPEN, or FAILED with
 * UMX_ERR_NOT_CONNECTED (refused), UMX_ERR_TIMED_OUT (mute),
 * UMX_ERR_UNREACHABLE, UMX_ERR_REJECTED, UMX_ERR_VERSION, UMX_ERR_AUTH,
 * UMX_ERR_CONNECTION_RESET. umx_ep_reason() names the address and the cause.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_ep_connect(umx_worker *worker, const umx_connect_params *params,
               umx_ep **ep_p);

/** Replace the callback, as `on_accept` does for an endpoint it was given. */
UMX_API void umx_ep_set_on_state(umx_ep *ep, umx_ep_state_fn fn, void *arg);

/** Give the `arg` of the endpoint's callback; NULL without one. */
UMX_API void *umx_ep_get_arg(const umx_ep *ep);

/** Tell the state of the endpoint. */
UMX_API umx_ep_state umx_ep_get_state(const umx_ep *ep);

/**
 * Tell why the endpoint is FAILED or CLOSED: UMX_OK after a graceful close of
 * ours, UMX_ERR_PEER_CLOSED after the peer's.
 */
UMX_API umx_status umx_ep_error(const umx_ep *ep);

/** True once the peer's GOODBYE has been processed: sends fail, receives get
 * what is queued, then UMX_ERR_PEER_CLOSED. */
UMX_API bool umx_ep_is_peer_closed(const umx_ep *ep);

/** Tell in words why a handshake FAILED, the peer's or ours; never NULL. */
UMX_API const char *umx_ep_reason(const umx_ep *ep);

/**
 * Give the system's error number if a handshake FAILED because its socket could
 * not be connected, else 0.
 */
UMX_API int umx_ep_errno(const umx_ep *ep);

/**
 * Close gracefully: refuse new work, deliver what was sent, agree with the
 * peer, disconnect. Receives pending here fail with UMX_ERR_PEER_CLOSED at
 * once, but for those whose bytes are on their way: they are waited for, and the
 * peer's send succeeds. At the deadline: by force. A peer whose program does not
 * run is waited for only while something needs it: announced messages, messages
 * without credit, bytes that its system has no room for, receives here. An
 * endpoint that is connecting goes on with that if sends wait for it; else it is
 * aborted.
 *
 * Completion: UMX_OK; UMX_ERR_TIMED_OUT (closed by force, see
 * umx_ep_unsent_bytes(); umx_ep_reason() says what was waited for); UMX_ERR_CONNECTION_RESET (the peer went first).
 * A second close waits for the first.
 * @return UMX_OK if closed already; UMX_INPROGRESS
 */
UMX_API UMX_MUST_CHECK umx_status
umx_ep_close(umx_ep *ep, uint64_t timeout_ns,
             const struct umx_op_params *params, umx_request **req_p);

/** Payload bytes of sends that had not completed when a close was forced. */
UMX_API uint64_t umx_ep_unsent_bytes(const umx_ep *ep);

/** Disconnect now. Everything pending completes with UMX_ERR_CANCELED in the
 * following (P) calls; the state becomes CLOSED. Never blocks. */
UMX_API void umx_ep_abort(umx_ep *ep);

/** Close once `n` messages have been received on channel 0 and as active
 * messages of UMX_AM_ID_PLAIN, those before this call included.
 * UMX_ERR_INVALID_PARAM if more have been; UMX_ERR_BUSY if set already. */
UMX_API UMX_MUST_CHECK umx_status umx_ep_close_after_recv(umx_ep  *ep,
                                                          uint64_t n);

/** Messages received so. */
UMX_API uint64_t umx_ep_recv_count(const umx_ep *ep);

/** Give the reference back; closes in the background. */
UMX_API void umx_ep_destroy(umx_ep *ep);

/** umx_ep_destroy() for any thread. */
UMX_API void umx_ep_retire(umx_ep *ep);

/**
 * Complete when all that was sent before is in the peer's memory, messages
 * excepted that wait for their receive whatever credit there is: those that are
 * lent, of device memory, or as long as umx_config.rndv_thresh_shm or
 * rndv_thresh_net. They are there when their send completes. A shorter message
 * that lacks credit waits here, or is announced; either is waited for, which is
 * until the peer has received earlier ones, and perhaps the message itself. With
 * UMX_OP_FLAG_MEMORY no message is waited for.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_ep_flush(umx_ep *ep, const struct umx_op_params *params,
             umx_request **req_p);

/** Bytes of channel sends that are not complete: posted, or waiting. */
UMX_API uint64_t umx_ep_pending_bytes(const umx_ep *ep);

/**
 * Complete once umx_ep_pending_bytes() is at most `low`: backpressure for a
 * program that sends without waiting for each send. Fails as the endpoint does.
 * @return UMX_OK if it is so already; UMX_INPROGRESS
 */
UMX_API UMX_MUST_CHECK umx_status
umx_ep_drain(umx_ep *ep, uint64_t low, const struct umx_op_params *params,
             umx_request **req_p);

/** Peer's and own address of the connection; UMX_ERR_UNSUPPORTED if UCX knows
 * none. `*len_p` in and out. */
UMX_API UMX_MUST_CHECK umx_status umx_ep_peer_address(const umx_ep    *ep,
                                                      struct sockaddr *addr,
                                                      size_t *len_p);
/** Give the address of this side of the connection. */
UMX_API UMX_MUST_CHECK umx_status umx_ep_local_address(const umx_ep    *ep,
                                                       struct sockaddr *addr,
                                                       size_t *len_p);

/** A way in which bytes of messages go, and how many messages went so. */
typedef struct umx_way {
    const char *name; /* static, like the next */
    const char *how;  /* a message that goes so is ... */
    uint64_t    sent;
    uint64_t    received;
} umx_way;

enum {
    UMX_WAYS_MAX = 16
};

/**
 * Tell by which ways the messages of an endpoint went, to find out why they are
 * slow. A message in memory of a device that the receiver fetches is counted
 * twice: as "bounce" and, once its bytes come, under the way of the bytes.
 *
 * @return the number of ways
 */
UMX_API size_t umx_ep_ways(const umx_ep *ep, umx_way ways[UMX_WAYS_MAX]);

/** Take one lane in use: its transport and its device. */
typedef void (*umx_transport_fn)(const char *transport, const char *device,
                                 void *arg);

/** Walk the lanes. */
UMX_API UMX_MUST_CHECK umx_status umx_ep_transports(const umx_ep    *ep,
                                                    umx_transport_fn fn,
                                                    void            *arg);

/** UCX's own description; free() the text. */
UMX_API UMX_MUST_CHECK umx_status umx_ep_info(const umx_ep *ep, char **text_p);

/** UCX's `ucp_ep_h`; NULL once closed. */
UMX_API void *umx_ep_handle(const umx_ep *ep);

/** A number no other endpoint of this process has or had. */
UMX_API uint64_t umx_ep_id(const umx_ep *ep);

/**
 * Tell on how many channels, besides channel 0, the peer lets us send; 0 before
 * the handshake has told.
 */
UMX_API uint32_t umx_ep_channels_max(const umx_ep *ep);

/** Tell the worker of the endpoint. */
UMX_API umx_worker *umx_ep_worker(const umx_ep *ep);

#ifdef __cplusplus
}
#endif
#endif
