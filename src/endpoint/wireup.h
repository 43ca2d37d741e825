/* SPDX-License-Identifier: BSD-3-Clause */
/* wireup.h: the parts of a handshake. wireup.c has its messages. Thread: the
 * worker's owner. */
#ifndef UMI_WIREUP_H
#define UMI_WIREUP_H

#include "endpoint/endpoint.h"

static inline const umx_config *
umi_endpoint_config(const umx_ep *ep)
{
    return &umi_endpoint_worker(ep)->context->config;
}

/* ---- where.c -------------------------------------------------------------
 */

/* Write who and where this side is. */
umx_status umi_where_fill(umx_ep *ep, umi_where *where);

/* Keep who and where the peer says it is, as the handshake's claim; `features`
 * are what it says beside that. A status and its reason. */
umx_status umi_where_keep(umx_ep *ep, const umi_where *where, uint64_t features,
                          const char **reason_p);

/* ---- proof.c -------------------------------------------------------------
 */

/* Make the HMAC of AUTH: the connecting side knows the token. */
void umi_proof_of_token(const umx_ep *ep, uint8_t *mac);

/* Make the HMAC of WELCOME, which is all at `welcome` but for the HMAC: the
 * listening side has the secret key to the public one it names, and the token.
 */
void umi_proof_of_server(const umx_ep *ep, const uint8_t *welcome, size_t len,
                         uint8_t *mac);

/* Make the HMAC of OPEN: the connecting side has its secret key, and the token;
 * `link` is the number that it has chosen. */
void umi_proof_of_client(const umx_ep *ep, uint64_t link, uint8_t *mac);

/* ---- peer_address.c ------------------------------------------------------
 */

/* Check that UCX can be given the address in `where`. If so UCX's number of the
 * peer's worker goes into the handshake's claim. A status and its reason. */
umx_status umi_peer_address_check(umx_ep *ep, const umi_where *where,
                                  const char **reason_p);

/* ---- apart.c -------------------------------------------------------------
 */

/* The features of HELLO and WELCOME that say that the two are apart. */
uint64_t umi_apart_features(const umx_ep *ep);

/* True if numbers of processes mean the same at both sides. */
bool umi_apart_shares_pids(const umx_ep *ep, const umi_where *where);

/* Check that UCX may map the memory that the peer's address names, and leave
 * shared memory out of the claim's address where the two are apart. Looking
 * takes as long as the rest of a handshake, and is done only if UCX is going to
 * be given the address: not where the link `id` (0: any) to that worker is
 * there. A status and its reason; on the connecting side `must_say_apart`
 * besides, if it is of use to connect again. */
umx_status umi_apart_check(umx_ep *ep, uint64_t id, const char **reason_p);

/* ---- connect.c -----------------------------------------------------------
 */

/* Forget what a handshake has brought: another one begins. */
void umi_handshake_reset(umx_ep *ep);

/* Connect once more to the same peer, by another engine of this worker: with
 * this engine UCX cannot make an endpoint to the peer, or HELLO has to say that
 * the two are apart. A connection that has been begun again before, or for
 * which there can be no other engine, fails with `status` and `why`. */
void umi_connect_again(umx_ep *ep, umx_status status, const char *why);

/* What WELCOME says will not do: connect again if HELLO `must_say_apart`, else
 * fail. */
void umi_connect_give_up(umx_ep *ep, umx_status status, const char *why);

/* Tell what the peer sent instead of a message, as far as it can be shown. */
const char *umi_handshake_name_foreign(umx_ep *ep);

#endif
