/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file control.h  What an endpoint knows of its peer, and what it may ask.
 *
 * Questions travel on the control channel, beside the data. The peer's library
 * answers them when its worker makes progress, its program takes no part. A
 * question of a connecting endpoint waits until it is open. Some are on their
 * way at a time, the others wait here: a peer that does not answer is not
 * flooded. Thread: the worker's owner.
 *
 * Each ends with UMX_ERR_PEER_CLOSED when either side closes, with the
 * endpoint's status when it fails, with UMX_ERR_CANCELED when cancelled: the
 * answer is ignored then. A peer that never answers is waited for.
 */
#ifndef UMX_CONTROL_H
#define UMX_CONTROL_H

#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Ask for a sign of life. UMX_OK: umx_request_time_ns() is the time from
 * sending to the answer.
 * @return UMX_INPROGRESS, UMX_ERR_CLOSED, UMX_ERR_PEER_CLOSED, the status of a
 *         failed endpoint, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_ep_ping(umx_ep              *ep,
                                              const umx_op_params *params,
                                              umx_request        **req_p);

/** Give the time that a completed umx_ep_ping() took, in ns. */
UMX_API uint64_t umx_request_time_ns(const umx_request *req);

/**
 * Ask what the peer is and how it fares. UMX_OK: umx_ep_peer_info_text() has
 * it; UMX_ERR_NO_MEMORY: the answer has come and could not be kept. Returns as
 * umx_ep_ping().
 */
UMX_API UMX_MUST_CHECK umx_status umx_ep_peer_info(umx_ep              *ep,
                                                   const umx_op_params *params,
                                                   umx_request **req_p);

/**
 * The peer's last answer to umx_ep_peer_info(), NULL before the first: JSON,
 * an object of `umx` and `ucx` (versions), `pid`, `host` (name), `memory` (rss
 * and peak of the process, total and available of its host, bytes), `worker`
 * (endpoints, requests, unexpected_messages, unexpected_bytes) and `transports`
 * (pairs of transport and device of the lanes to us). Valid until the next
 * answer. The peer's words: they may be wrong, or no JSON.
 */
UMX_API const char *umx_ep_peer_info_text(const umx_ep *ep);

/**
 * Close the peer's listener that accepted this endpoint; open endpoints live
 * on. UMX_OK: nobody listens there any more. UMX_ERR_REJECTED: it does not
 * allow that (UMX_LISTENER_FLAG_REMOTE_CLOSE). UMX_ERR_INVALID_PARAM: this side
 * accepted the peer. Returns as umx_ep_ping().
 */
UMX_API UMX_MUST_CHECK umx_status
umx_ep_close_listener(umx_ep *ep, const umx_op_params *params,
                      umx_request **req_p);

/** The peer's process and version, as the peer said in the handshake. */
typedef struct umx_peer_id {
    uint32_t pid;
    unsigned version[3]; /* of its libumx: major, minor, patch */
} umx_peer_id;

/** UMX_ERR_NOT_CONNECTED before the handshake's end. */
UMX_API UMX_MUST_CHECK umx_status umx_ep_peer_id(const umx_ep *ep,
                                                 umx_peer_id  *peer);

/** Payload of all channels, since the endpoint was made. */
typedef struct umx_ep_stats {
    uint64_t sent_messages; /* handed to UCX */
    uint64_t sent_bytes;
    uint64_t received_messages; /* arrived or announced, read or not */
    uint64_t received_bytes;
    uint64_t waiting_sends; /* now, for credit or the handshake's end */
    uint64_t unexpected_messages; /* now: no receive has asked for them */
    uint64_t unexpected_bytes;
    uint64_t dropped_messages; /* received ones: umx_channel_keep_last() */
} umx_ep_stats;

/** Fill in what the endpoint has counted so far. */
UMX_API void umx_ep_query(const umx_ep *ep, umx_ep_stats *stats);

/** Which calls receive a message. */
typedef enum umx_unread_kind {
    UMX_UNREAD_MESSAGE, /* umx/channel.h */
    UMX_UNREAD_AM,      /* umx/am.h; the number is the id */
    UMX_UNREAD_STREAM,  /* umx/stream.h: bytes */
    UMX_UNREAD_FRAMES   /* umx/frames.h */
} umx_unread_kind;

typedef struct umx_unread {
    umx_unread_kind kind;
    uint16_t        number; /* of the channel */
    uint64_t        tag;    /* MESSAGE */
    bool            is_untagged;
} umx_unread;

/**
 * Tell of a message that no receive has asked for: a receive of another kind,
 * channel or tag waits for ever although the peer has sent. False: there is
 * none.
 */
UMX_API bool umx_ep_unread(const umx_ep *ep, umx_unread *unread);

#ifdef __cplusplus
}
#endif
#endif
