/* SPDX-License-Identifier: BSD-3-Clause */
/* address_kind.h: which addresses of peers are alike to UCX. Thread: the
 * worker's owner. */
#ifndef UMI_ENDPOINT_ADDRESS_KIND_H
#define UMI_ENDPOINT_ADDRESS_KIND_H

#include "util/hash.h"
#include "worker/worker.h"

/* Compute a digest of the kind of a peer's UCX address: all of it but for who
 * and where the peer is, and how this host reaches each of its devices. UCX
 * needs the same configuration for addresses of one kind. It is zeros for
 * addresses whose form is not known here. */
void umi_endpoint_address_kind(umx_worker *worker, const void *address,
                               size_t len, uint8_t digest[UMI_SHA256_SIZE]);

#endif
