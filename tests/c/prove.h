/* SPDX-License-Identifier: BSD-3-Clause */
/* prove.h: a test that is a peer itself shows that it has the key that it
 * names. Needs no test framework: fuzz targets use it. */
#ifndef PROVE_H
#define PROVE_H

#include <string.h>
#include <umx/version.h>

#include "endpoint/endpoint.h"

/* Fill in the identity of a test peer; `number` tells several peers apart. */
static inline void
stranger(uint8_t number, umi_where *where)
{
    static const uint8_t address[8];

    uint8_t secret[UMI_KEY_SIZE];

    memset(secret, number, sizeof(secret));
    memset(where, 0, sizeof(*where));
    umi_x25519_public(secret, where->key);
    umi_worker_id_of(number, where->key, where->worker_id);
    where->endpoint    = number;
    where->pid         = 7;
    where->address     = address;
    where->address_len = sizeof(address);
}

/* The key to a proof comes from both sides': here from the secret one of `ep`.
 */
static inline void
prove_welcome(const umx_ep *ep, umi_control *welcome)
{
    const umx_config *config = &ep->base.worker->context->config;
    uint8_t           bytes[UMI_CONTROL_MAX], shared[UMI_KEY_SIZE];
    uint8_t           secret[UMI_SHA256_SIZE];
    uint8_t           text[10 + 2 * UMI_SHA256_SIZE];
    size_t            len = umi_control_encode(welcome, bytes);

    (void)umi_x25519_shared(ep->base.worker->secret,
                            welcome->u.welcome.where.key, shared);
    umi_hmac_sha256(config->token, config->token_len, shared, sizeof(shared),
                    secret);
    memcpy(text, "umx server", 10);
    memcpy(text + 10, ep->handshake->hello_hash, UMI_SHA256_SIZE);
    umi_sha256(bytes, len - UMI_MAC_SIZE, text + 10 + UMI_SHA256_SIZE);
    umi_hmac_sha256(secret, sizeof(secret), text, sizeof(text),
                    welcome->u.welcome.mac);
}

static inline void
prove_open(const umx_ep *ep, umi_control *open)
{
    const umi_handshake *handshake = ep->handshake;
    uint8_t              text[10 + 2 * UMI_SHA256_SIZE + 8];

    memcpy(text, "umx client", 10);
    memcpy(text + 10, handshake->hello_hash, UMI_SHA256_SIZE);
    memcpy(text + 10 + UMI_SHA256_SIZE, handshake->welcome_hash,
           UMI_SHA256_SIZE);
    memcpy(text + 10 + 2 * UMI_SHA256_SIZE, &open->u.open.peer, 8);
    umi_hmac_sha256(handshake->secret, UMI_SHA256_SIZE, text, sizeof(text),
                    open->u.open.mac);
}

/* AUTH: the listening side of `ep` has asked for the token. */
static inline void
prove_token(const umx_ep *ep, umi_control *auth)
{
    const umx_config *config = &ep->base.worker->context->config;
    uint8_t           text[10 + UMI_SHA256_SIZE + UMI_NONCE_SIZE];

    memcpy(text, "umx token ", 10);
    memcpy(text + 10, ep->handshake->hello_hash, UMI_SHA256_SIZE);
    memcpy(text + 10 + UMI_SHA256_SIZE, ep->handshake->challenge,
           UMI_NONCE_SIZE);
    umi_hmac_sha256(config->token, config->token_len, text, sizeof(text),
                    auth->u.auth.mac);
}

/* The mac of AUTH, WELCOME or OPEN to `ep`, whose handshake goes on. */
static inline void
prove(const umx_ep *ep, umi_control *control)
{
    if (control->kind == UMI_WELCOME &&
        control->u.welcome.major == UMX_WIRE_VERSION) {
        prove_welcome(ep, control);
    } else if (control->kind == UMI_OPEN) {
        prove_open(ep, control);
    } else if (control->kind == UMI_AUTH) {
        prove_token(ep, control);
    }
}

#endif
