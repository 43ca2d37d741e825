/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* agree.h: who may be read by whom.
 *
 * A reader follows addresses in the memory of another process, so the kernel
 * has to say which process that is. Anything that a peer says or shows may be
 * somebody else's: a peer in the middle passes notes on, and what is to be
 * found in memory can be put there by sending it.
 *
 *   lender                                    reader
 *     ASK                              -->
 *                                      <--    INVITE (name, nonce)
 *     connects to the abstract Unix socket of that name:
 *     introduction (nonce, public keys, where its table is)
 *                                      -->    pid and user of that connection,
 *                                             from the kernel
 *                                      <--    1: may be lent to
 *
 * The reader refuses a process of another user, of another namespace of
 * processes (pid 0) and its own. It invites one lender a peer, whose
 * introduction must show the nonce, and a table that it can read. It must name
 * two public keys as well: the one that the handshake has shown to be the
 * peer's, and the reader's. So a lender that has got the invitation from
 * somebody in the middle is not the peer. The reader takes one connection at a
 * time: one that says nothing is dropped after CALLER_MS, and after MAX_REFUSED
 * of them the invitation is over. The name is no secret, the nonce is.
 *
 * The agreement is as good as the connection: who ends it, or dies, is not
 * read any more. The lender keeps it as long as its table. Since a process may
 * leave a connection to a child and have its number given to another, the
 * reader looks at the process itself as well (pidfd), where the system has
 * that.
 *
 * A lender asks once an endpoint, so that neither a refusal nor a connection
 * that was over too soon has it ask for ever, or never again. A reader that
 * does not want to leaves ASK unanswered.
 *
 * Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_LEND_AGREE_H
#define UMI_LEND_AGREE_H

#include "host/watch.h"
#include "lend/note.h"
#include "worker/link.h"

/* The agreement with one peer; it lies behind the umi_link. */
typedef struct umi_lend_agreement {
    umi_link *link;
    /* as a lender */
    umi_lend_table *table;    /* NULL before the first introduction */
    umi_watch       reader;   /* the connection to the reader's socket */
    bool            may_lend; /* the reader has said so there */
    /* as a reader */
    umi_watch           socket;  /* listens; for `invitation` */
    umi_watch           lender;  /* its connection, */
    umi_watch           process; /* its pidfd (-1: this system has none), */
    umi_lend_source     source;  /* and its table; size 0 without */
    umi_timer           timer;   /* until `lender` has introduced itself */
    umi_lend_invitation invitation;
    unsigned            num_refused;
    bool                has_borrowed; /* there has been a lender */
} umi_lend_agreement;

_Static_assert(sizeof(umi_link) % _Alignof(umi_lend_agreement) == 0,
               "behind it");

static inline umi_lend_agreement *
umi_lend_agreement_of(const umi_link *link)
{
    return (umi_lend_agreement *)(uintptr_t)(link + 1);
}

/* umi_worker_hooks.init_link and fini_link */
void umi_lend_init_link(umi_link *link);
void umi_lend_fini_link(umi_link *link);

/* True if `ep` may lend. Asks its peer if need be. */
bool umi_lend_is_agreed_on(umi_ep_base *ep);

void umi_lend_on_ask(umi_ep_base *ep);
void umi_lend_on_invite(umi_ep_base *ep, const umi_lend_invitation *invitation);

/* True if the lender's connection and its process have been there all the time
 * until now. */
bool umi_lend_has_lender(const umi_lend_agreement *agreement);

#endif
