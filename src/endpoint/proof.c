/* SPDX-License-Identifier: BSD-3-Clause */
/* proof.c: the HMACs of a handshake, by which each side shows who it is. */
#include "endpoint/wireup.h"
#include "util/bytes.h"
#include "util/hash.h"

/* HMAC over a role, a nonce or nothing, hashes of what was said, and a number
 * or nothing. Who and where each side claims to be is in what was said, so that
 * nobody in the middle can put another worker, address or number in its place.
 */
typedef struct proof {
    uint8_t    text[10 + UMI_NONCE_SIZE + 2 * UMI_SHA256_SIZE];
    umi_writer writer;
} proof;

static void
proof_init(proof *p, const char *role, const umx_ep *ep)
{
    umi_writer_init(&p->writer, p->text, sizeof(p->text));
    umi_write_bytes(&p->writer, role, 10);
    umi_write_bytes(&p->writer, ep->handshake->hello_hash, UMI_SHA256_SIZE);
}

static void
proof_make(const proof *p, const uint8_t *key, size_t key_len, uint8_t *mac)
{
    umi_hmac_sha256(key, key_len, p->text, (size_t)(p->writer.pos - p->text),
                    mac);
}

void
umi_proof_of_token(const umx_ep *ep, uint8_t *mac)
{
    proof p;

    proof_init(&p, "umx token ", ep);
    umi_write_bytes(&p.writer, ep->handshake->challenge, UMI_NONCE_SIZE);
    proof_make(&p, umi_endpoint_config(ep)->token,
               umi_endpoint_config(ep)->token_len, mac);
}

void
umi_proof_of_server(const umx_ep *ep, const uint8_t *welcome, size_t len,
                    uint8_t *mac)
{
    proof   p;
    uint8_t hash[UMI_SHA256_SIZE];

    umi_sha256(welcome, len, hash);
    proof_init(&p, "umx server", ep);
    umi_write_bytes(&p.writer, hash, sizeof(hash));
    proof_make(&p, ep->handshake->secret, UMI_SHA256_SIZE, mac);
}

void
umi_proof_of_client(const umx_ep *ep, uint64_t link, uint8_t *mac)
{
    proof p;

    proof_init(&p, "umx client", ep);
    umi_write_bytes(&p.writer, ep->handshake->welcome_hash, UMI_SHA256_SIZE);
    umi_write_u64(&p.writer, link);
    proof_make(&p, ep->handshake->secret, UMI_SHA256_SIZE, mac);
}
