/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* note.h: what loans put on the wire. Both sides are on one host: numbers
 * are in its order.
 *
 *   UMI_AM_LENT  loan | the header of the data message
 *   UMI_AM_NOTE  note
 *
 *   loan  id u64 | length u64 | slot u32 | 0 u32
 *   note  receiver's endpoint u64 | kind u32 | status i32 | body 32
 *
 *   kind    body
 *   ASK     0               may I lend to you?
 *   INVITE  name 16 | nonce 16   come to the socket of that name, and show the
 *                           nonce
 *   RETURN  id u64 | slot u32 | 0   I am done with that loan (status)
 *
 * What a lender writes to that socket:
 *
 *   introduction  nonce 16 | lender's public key 32 | reader's 32 |
 *                 address of its table u64 | slots of it u32 | 0 u32
 *
 * and the reader's answer: one byte, 1.
 *
 * Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_LEND_NOTE_H
#define UMI_LEND_NOTE_H

#include "lend/loans.h"
#include "worker/worker.h"

enum {
    UMI_LEND_NAME_SIZE  = 16,
    UMI_LEND_NONCE_SIZE = 16,
    UMI_LEND_WELCOME    = 1, /* the answer to an introduction */
    /* The longest header of a data message that travels with a loan. */
    UMI_LEND_HEADER_MAX = 96
};

typedef enum umi_lend_kind {
    UMI_LEND_ASK = 1,
    UMI_LEND_INVITE,
    UMI_LEND_RETURN
} umi_lend_kind;

typedef struct umi_lend_invitation {
    uint8_t name[UMI_LEND_NAME_SIZE];
    uint8_t nonce[UMI_LEND_NONCE_SIZE];
} umi_lend_invitation;

typedef struct umi_lend_note {
    uint64_t endpoint;
    uint32_t kind;
    int32_t  status;
    union {
        umi_lend_invitation invite;
        struct {
            uint64_t id;
            uint32_t slot;
            uint8_t  zeros[20];
        } loan;
    } u;
} umi_lend_note;

typedef struct umi_lend_introduction {
    uint8_t  nonce[UMI_LEND_NONCE_SIZE];
    uint8_t  lender[UMI_X25519_SIZE];
    uint8_t  reader[UMI_X25519_SIZE];
    uint64_t table;
    uint32_t size;
    uint32_t zero;
} umi_lend_introduction;

_Static_assert(sizeof(umi_lend_loan) == 24 && sizeof(umi_lend_note) == 48 &&
                   sizeof(umi_lend_introduction) == 96,
               "wire format");

/* The loans of a worker. */
typedef struct umi_lend {
    umi_pool objects;     /* loans, what is borrowed, notes */
    void    *arriving;    /* the loan whose handler runs; or NULL */
    bool     takes_loans; /* whatever config.cma_max is */
} umi_lend;

/* What this side of an endpoint has done about lending. */
typedef enum umi_lend_step {
    UMI_LEND_NOT_ASKED,
    UMI_LEND_ASKED,
    UMI_LEND_ANSWERED /* and has had an INVITE */
} umi_lend_step;

/* What an endpoint has of loans. */
typedef struct umi_lend_ep {
    umi_list      loans; /* umi_loan.node; their requests are `inflight` */
    umi_lend_step step;
    unsigned      num_asks; /* that the peer has sent */
} umi_lend_ep;

/* A note that UCX has not sent yet; of umi_lend.objects. */
typedef struct umi_lend_sent {
    umx_worker   *worker;
    umi_lend_note note;
} umi_lend_sent;

/* Send a note to the peer's end of `ep`. A note that cannot be sent is lost:
 * its endpoint is as good as failed, or the peer goes on without. */
void umi_lend_send_note(umi_ep_base *ep, const umi_lend_note *note);

/* Send a message that is all header, as ucp_am_send_nbx() does. */
ucs_status_ptr_t umi_lend_send_header(umi_ep_base *ep, unsigned id,
                                      const void *header, size_t len,
                                      ucp_send_nbx_callback_t on_sent,
                                      void                   *arg);

#endif
