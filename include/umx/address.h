/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file address.h  Worker addresses: bytes that say how to reach a worker
 * without a listener of the program's. Thread: the worker's owner.
 *
 * An address holds a number of the worker that no other one has, the network
 * addresses of its host, and a port on which the library listens from the first
 * umx_worker_get_address() on. What it gives both sides is an endpoint as any
 * other, with handshake, token and heartbeat. The bytes may be kept, and travel
 * by any means, to any host that reaches this one.
 */
#ifndef UMX_ADDRESS_H
#define UMX_ADDRESS_H

#include <umx/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UMX_ADDRESS_MAX = 1024 /* bytes */
};

/**
 * Give the address of `worker`: equal bytes at each call, which live as long as
 * the worker. The first call starts to listen, on all network addresses.
 * @return UMX_OK; UMX_ERR_CLOSED: withdrawn; UMX_ERR_IO_ERROR: no network;
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_worker_get_address(
    umx_worker *worker, const void **address_p, size_t *len_p);

/**
 * Check that the bytes are an address. Zeros may follow it.
 *
 * @param[out] len_p  length of the address alone
 * @param[out] why_p  what is wrong, static; written on UMX_ERR_INVALID_ADDR
 * @return UMX_OK or UMX_ERR_INVALID_ADDR
 */
UMX_API UMX_MUST_CHECK umx_status umx_address_check(const void  *data,
                                                    size_t       len,
                                                    size_t      *len_p,
                                                    const char **why_p);

/**
 * Start connecting to the worker of that address, which may be `worker` itself.
 * The endpoint is usable at once: sends wait for the handshake. As
 * umx_ep_connect(), whose parameters these are but for the socket addresses;
 * nobody at the address is FAILED with UMX_ERR_WORKER_GONE.
 * @return UMX_OK; UMX_ERR_INVALID_ADDR: not an address; UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_ep_connect_address(
    umx_worker *worker, const void *address, size_t len,
    const umx_connect_params *params, umx_ep **ep_p);

/**
 * The next endpoint that a peer made from the address of `worker`, in their
 * order, as `on_accept` would give it; NULL if there is none. Until then the
 * worker keeps it, so that its peer can send to the worker (umx/tag.h); one
 * that ends meanwhile goes, or while it has messages to read stays, the last
 * 64 of such.
 */
UMX_API umx_ep *umx_worker_take_addressed(umx_worker *worker);

/** Called in a (P) call when umx_worker_take_addressed() has another one. */
typedef void (*umx_addressed_fn)(umx_worker *worker, void *arg);
/** Set that function; NULL: none. */
UMX_API UMX_MUST_CHECK umx_status umx_worker_set_on_addressed(
    umx_worker *worker, umx_addressed_fn fn, void *arg);

/** Stop listening on the address; endpoints that were not taken close in the
 * background. For good. */
UMX_API void umx_worker_withdraw_address(umx_worker *worker);

/**
 * Take an endpoint that a peer has made from the worker's address, as
 * umx_worker_take_addressed() does, wherever it is in the queue.
 * @return true: the caller has a reference; false: it is not in the queue
 */
UMX_API bool umx_ep_claim(umx_ep *ep);

/**
 * Find an endpoint that a peer has made from the worker's address and that
 * nobody has taken yet; it stays in the queue.
 * @param worker_id of the peer, UMX_WORKER_ID_SIZE bytes
 * @param after     the endpoint that was found before, or NULL
 * @return NULL: there is no other
 */
UMX_API umx_ep *umx_worker_find_addressed(const umx_worker *worker,
                                          const uint8_t    *worker_id,
                                          const umx_ep     *after);

enum {
    UMX_WORKER_ID_SIZE = 16 /* bytes */
};

/** The number of the peer's worker, which the handshake has proved to be the
 * peer's. False: `ep` is not open. */
UMX_API bool umx_ep_peer_worker_id(const umx_ep *ep, uint8_t *id);

/** Are these the addresses of workers in one network namespace, and so on one
 * host? False also where a system has not said, or a side is no address. */
UMX_API bool umx_address_is_beside(const void *address, size_t len,
                                   const void *other, size_t other_len);

/** The number of the worker whose address it is. False: it is no address. */
UMX_API bool umx_address_worker_id(const void *address, size_t len,
                                   uint8_t *id);

#ifdef __cplusplus
}
#endif
#endif
