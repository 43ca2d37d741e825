/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file loan.h  Memory that is lent to a peer on this host, which reads it
 * without a message.
 *
 * Thread: the worker's owner.
 */
#ifndef UMX_LOAN_H
#define UMX_LOAN_H

#include <umx/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Take loans of peers (UMX_OP_FLAG_LEND), also if umx_config.cma_max is 0. */
UMX_API void umx_worker_take_loans(umx_worker *worker);

/** Memory that a peer on this host may read. */
typedef struct umx_loan {
    uint64_t id;
    uint64_t len; /* bytes */
    uint32_t slot;
    uint32_t zero;
} umx_loan;

/**
 * Lend memory to the peer of `ep`, which must be told the loan somehow.
 *
 * Ownership: lent until umx_loan_end(), or the end of `ep`
 * @return UMX_OK; UMX_ERR_UNSUPPORTED: the peer does not read it, or not yet
 */
UMX_API UMX_MUST_CHECK umx_status umx_loan_begin(umx_ep           *ep,
                                                 const umx_buffer *buf,
                                                 umx_loan         *loan);

/** Nobody may read any more. */
UMX_API void umx_loan_end(umx_ep *ep, const umx_loan *loan);

/**
 * Read what the peer of `ep` lends; `loan` is what it has told, true or not.
 * @return UMX_OK; UMX_ERR_WITHDRAWN: it lends no such thing, or no longer, and
 *         `buf` holds zeros; UMX_ERR_CONNECTION_RESET: it is gone;
 *         UMX_ERR_NO_MEMORY; what a device's driver says
 */
UMX_API UMX_MUST_CHECK umx_status umx_loan_read(umx_ep           *ep,
                                                const umx_loan   *loan,
                                                const umx_buffer *buf);

#ifdef __cplusplus
}
#endif
#endif
