/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* process_vm_readv() */
#include "lend/lend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "codec/header.h"
#include "lend/agree.h"
#include "mem/gather.h"
#include "mem/memtype.h"
#include "ops/post.h"
#include "ops/transfer.h"
#include "worker/ep_base.h"
#include "worker/link.h"

/* A loan, at its lender. UCX reads `bytes` until it has sent them, which may be
 * after the loan has ended. */
typedef struct umi_loan {
    umi_node        node; /* umi_lend_ep.loans */
    umi_lend_table *table;
    umi_lend_loan   name;
    umx_worker     *worker;
    umx_request    *req; /* NULL: ended, or a layer's */
    bool            is_sending;
    bool            is_layers;
    uint8_t         bytes[sizeof(umi_lend_loan) + UMI_LEND_HEADER_MAX];
} umi_loan;

/* A loan, at its reader. */
typedef struct borrowed {
    umi_lend_loan loan;
    uint64_t      endpoint;
} borrowed;

/* What the pool holds: objects of one size. */
typedef union object {
    umi_loan      loan;
    umi_lend_sent note;
    borrowed      borrowed;
} object;

/* ---- lending -------------------------------------------------------------
 */

/* True if another process can read the memory: what devices map may be out of
 * reach. */
static bool
is_within_reach(const umx_buffer *buf)
{
    char         bytes[2];
    struct iovec local     = {bytes, sizeof(bytes)};
    struct iovec remote[2] = {{buf->data, 1},
                              {(char *)buf->data + buf->len - 1, 1}};

    return process_vm_readv(getpid(), &local, 1, remote, 2, 0) ==
           (ssize_t)sizeof(bytes);
}

bool
umi_lend_is_agreed(umi_ep_base *ep, size_t len, bool is_asked_for)
{
    const umx_config *config = &ep->worker->context->config;

    return (is_asked_for ||
            (len >= config->cma_min && len <= config->cma_max)) &&
           len != 0 && ep->link != NULL && ep->link->has_shm &&
           umi_lend_is_agreed_on(ep);
}

static bool
may_lend(umi_ep_base *ep, const umx_buffer *buf, bool is_asked_for)
{
    return umi_lend_is_agreed(ep, buf->len, is_asked_for) &&
           umi_lend_agreement_of(ep->link)->table->num_free != 0 &&
           buf->memtype == UMX_MEMTYPE_HOST && buf->layout == NULL &&
           is_within_reach(buf);
}

bool
umi_lend_may_send(const umx_request *req, size_t header_len, bool is_asked_for)
{
    return header_len <= UMI_LEND_HEADER_MAX && req->gather == NULL &&
           may_lend(req->ep, &req->buf, is_asked_for);
}

static void
put_loan(umi_loan *loan)
{
    umi_pool_put(&loan->worker->lend->objects, loan);
}

/* End a loan: nobody may read from now on. */
static void
end_loan(umi_loan *loan, umx_status status)
{
    umx_request *req = loan->req;

    umi_node_remove(&loan->node);
    umi_lend_table_remove(loan->table, loan->name.slot);
    if (!loan->is_sending) {
        put_loan(loan);
    } else {
        loan->req = NULL;
    }
    if (req != NULL) {
        umi_request_complete(req, status);
    }
}

static void
on_loan_sent(void *request, ucs_status_t status, void *arg)
{
    umi_loan *loan = arg;

    ucp_request_free(request);
    loan->is_sending = false;
    if (loan->req == NULL) {
        put_loan(loan);
    } else if (status != UCS_OK) {
        end_loan(loan, umi_ep_status(status));
    }
}

static umi_loan *
lend(umi_ep_base *ep, const umx_buffer *buf)
{
    umi_loan *loan = umi_pool_get(&ep->worker->lend->objects);

    if (loan == NULL) {
        return NULL;
    }
    umi_worker_expect_copy(ep->worker, buf->len);
    loan->worker     = ep->worker;
    loan->table      = umi_lend_agreement_of(ep->link)->table;
    loan->req        = NULL;
    loan->is_sending = false;
    loan->is_layers  = false;
    if (!umi_lend_table_add(loan->table, buf->data, buf->len, loan,
                            &loan->name)) {
        put_loan(loan);
        return NULL;
    }
    return loan;
}

static umi_loan *
new_loan(umx_request *req, const void *header, size_t header_len)
{
    umi_loan *loan = lend(req->ep, &req->buf);

    if (loan == NULL) {
        return NULL;
    }
    loan->req = req;
    memcpy(loan->bytes, &loan->name, sizeof(loan->name));
    memcpy(loan->bytes + sizeof(loan->name), header, header_len);
    return loan;
}

umx_status
umi_lend_send(umx_request *req, const void *header, size_t header_len)
{
    umi_ep_base     *ep   = req->ep;
    umi_loan        *loan = new_loan(req, header, header_len);
    ucs_status_ptr_t result;

    if (loan == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    result = umi_lend_send_header(ep, UMI_AM_LENT, loan->bytes,
                                  sizeof(umi_lend_loan) + header_len,
                                  on_loan_sent, loan);
    if (UCS_PTR_IS_ERR(result)) {
        umi_lend_table_remove(loan->table, loan->name.slot);
        put_loan(loan);
        return umi_ep_status(UCS_PTR_STATUS(result));
    }
    req->worker->stats->loans++;
    loan->is_sending = result != NULL;
    umi_request_posted(req);
    req->is_movable = true; /* umi_lend_turn() */
    umi_list_append(&ep->lend->loans, &loan->node);
    umi_list_append(&ep->inflight, &req->node);
    return UMX_INPROGRESS;
}

static umi_loan *
loan_of(const umx_request *req)
{
    UMI_LIST_FOREACH(node, &req->ep->lend->loans) {
        umi_loan *loan = umi_container_of(node, umi_loan, node);

        if (loan->req == req) {
            return loan;
        }
    }
    return NULL;
}

void
umi_lend_turn(umx_request *req)
{
    const umi_loan *loan = loan_of(req);

    if (loan != NULL) {
        umi_lend_table_turn(loan->table, loan->name.slot, req->buf.data);
    }
}

void
umi_lend_withdraw(umx_request *req)
{
    umi_loan *loan = loan_of(req);

    if (loan != NULL) {
        end_loan(loan, UMX_ERR_CANCELED);
    }
}

void
umi_lend_begin(umi_ep_base *ep, umi_lend_ep *lend)
{
    *lend = (umi_lend_ep){.step = UMI_LEND_NOT_ASKED};
    umi_list_init(&lend->loans);
    ep->lend = lend;
}

void
umi_lend_end(umi_ep_base *ep, umx_status status)
{
    while (!umi_list_is_empty(&ep->lend->loans)) {
        end_loan(umi_container_of(ep->lend->loans.next, umi_loan, node),
                 status);
    }
}

/* ---- borrowing -----------------------------------------------------------
 */

/* Give a loan back. Its memory is the note's: there is always some. */
static void
give_back(umx_worker *worker, void *desc, umx_status status)
{
    borrowed     *it   = desc;
    umi_ep_base  *ep   = umi_ids_get(&worker->eps_by_id, it->endpoint);
    umi_lend_note note = {.kind = UMI_LEND_RETURN, .status = status};

    note.u.loan.id   = it->loan.id;
    note.u.loan.slot = it->loan.slot;
    umi_pool_put(&worker->lend->objects, it);
    if (ep != NULL) {
        umi_lend_send_note(ep, &note);
    }
    if (worker->lend->arriving == desc) {
        worker->lend->arriving = NULL;
    }
}

static void
loan_release(const umi_ep_base *ep, void *desc)
{
    give_back(ep->engine->worker, desc, UMX_OK);
}

/* Read what the peer of `link` lends; NULL: it is gone. What has been read of a
 * loan that was none is nobody's. UMX_ERR_WITHDRAWN: the loan has ended, and
 * its lender is there; UMX_ERR_CONNECTION_RESET. */
static umx_status
read_loan(const umi_link *link, const umi_lend_loan *loan, void *data)
{
    umi_lend_reading reading = UMI_LEND_UNREADABLE;

    if (link != NULL) {
        const umi_lend_agreement *agreement = umi_lend_agreement_of(link);

        reading = umi_lend_source_read(&agreement->source, loan, data);
        if (!umi_lend_has_lender(agreement)) {
            reading = UMI_LEND_UNREADABLE;
        }
    }
    if (reading == UMI_LEND_READ) {
        return UMX_OK;
    }
    memset(data, 0, loan->len);
    return (reading == UMI_LEND_ENDED) ? UMX_ERR_WITHDRAWN :
                                         UMX_ERR_CONNECTION_RESET;
}

/* Give the memory of the buffer itself, if it is plain; else NULL. */
static void *
plain_memory(const umx_request *req)
{
    const umx_buffer *buf = &req->buf;

    if (req->gather != NULL) {
        buf = &req->gather->pieces[0];
        if (req->gather->count != 1) {
            return NULL;
        }
    }
    return (buf->memtype == UMX_MEMTYPE_HOST && buf->layout == NULL) ?
               buf->data :
               NULL;
}

static umx_status
read_elsewhere(umx_request *req, const umi_link *link,
               const umi_lend_loan *loan)
{
    void      *bytes = malloc(loan->len);
    umx_status status;

    if (bytes == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = read_loan(link, loan, bytes);
    if (status == UMX_OK) {
        status = (req->gather != NULL) ?
                     umi_gather_write(req->gather, 0, bytes, loan->len) :
                     umi_copy_in(&req->buf, bytes, loan->len);
    }
    free(bytes);
    return status;
}

static umx_status
loan_recv(umx_request *req, void *desc, size_t len)
{
    const umi_lend_loan *loan   = &((const borrowed *)desc)->loan;
    const umi_link      *link   = req->ep->link;
    void                *memory = plain_memory(req);
    umx_status           status;

    (void)len;
    status = (memory == NULL) ? read_elsewhere(req, link, loan) :
                                read_loan(link, loan, memory);
    give_back(req->worker, desc,
              (status == UMX_OK) ? UMX_OK : UMX_ERR_CANCELED);
    return status;
}

const umi_way umi_way_loan = {
    .is_announced = true,
    .recv         = loan_recv,
    .release      = loan_release,
};

/* ---- loans of layers ------------------------------------------------------
 */

bool
umi_lend_memory(umi_ep_base *ep, const umx_buffer *buf, umi_lend_loan *name)
{
    umi_loan *loan;

    if (!may_lend(ep, buf, true)) {
        return false;
    }
    loan = lend(ep, buf);
    if (loan == NULL) {
        return false;
    }
    loan->is_layers = true;
    umi_list_append(&ep->lend->loans, &loan->node);
    ep->worker->stats->loans++;
    *name = loan->name;
    return true;
}

void
umi_lend_take_back(umi_ep_base *ep, const umi_lend_loan *name)
{
    umi_lend_table *table = (ep->link != NULL) ?
                                umi_lend_agreement_of(ep->link)->table :
                                NULL;
    umi_loan       *loan  = NULL;

    if (table != NULL) {
        loan = umi_lend_table_find(table, name->slot, name->id);
    }
    if (loan != NULL && loan->is_layers) {
        end_loan(loan, UMX_OK);
    }
}

umx_status
umi_lend_read_memory(umi_ep_base *ep, const umi_lend_loan *name,
                     const umx_buffer *buf)
{
    void      *bytes  = buf->data;
    bool       is_far = buf->memtype > UMX_MEMTYPE_HOST || buf->layout != NULL;
    umx_status status;

    if (ep->link == NULL || !umi_lend_agreement_of(ep->link)->has_borrowed ||
        name->len != buf->len || name->len == 0) {
        return UMX_ERR_CONNECTION_RESET;
    }
    if (is_far) {
        bytes = malloc(name->len);
        if (bytes == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
    }
    status = read_loan(ep->link, name, bytes);
    if (is_far) {
        if (status == UMX_OK) {
            status = umi_copy_in(buf, bytes, name->len);
        }
        free(bytes);
    }
    return status;
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

/* Turn a loan into the data message that it stands for. False: dropped, or
 * refused. */
static bool
borrow(umx_worker *worker, const umi_am_arrival *arrival,
       umi_am_arrival *message)
{
    borrowed     *it;
    umi_ep_base  *ep;
    umi_lend_loan loan;
    uint64_t      endpoint;

    if (arrival->header_len < sizeof(loan) + UMI_HEADER_MIN) {
        return false;
    }
    memcpy(&loan, arrival->header, sizeof(loan));
    message->header     = (const char *)arrival->header + sizeof(loan);
    message->header_len = arrival->header_len - sizeof(loan);
    memcpy(&endpoint,
           (const char *)message->header + offsetof(umi_header, endpoint),
           sizeof(endpoint));
    ep = umi_ids_get(&worker->eps_by_id, endpoint);
    if (ep == NULL) {
        umi_worker_stray(worker, endpoint);
        return false;
    }
    if (ep->link == NULL || !umi_lend_agreement_of(ep->link)->has_borrowed ||
        loan.len == 0 || loan.len > SIZE_MAX / 2 || arrival->len != 0) {
        umi_ep_base_refuse(ep, "a loan that was not agreed on");
        return false;
    }
    it = umi_pool_get(&worker->lend->objects);
    if (it == NULL) {
        umi_ep_base_refuse(ep, "out of memory for a loan");
        return false;
    }
    it->loan          = loan;
    it->endpoint      = endpoint;
    message->way      = &umi_way_loan;
    message->data     = it;
    message->len      = loan.len;
    message->can_keep = true;
    return true;
}

static int
on_lent(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_am_arrival message = {0};
    int            verdict;

    if (!borrow(worker, arrival, &message)) {
        return UMI_AM_CONSUMED;
    }
    worker->lend->arriving = message.data;
    verdict = worker->am_handlers[UMI_AM_DATA].fn(worker, &message);
    if (worker->lend->arriving != NULL && verdict != UMI_AM_KEPT) {
        give_back(worker, message.data,
                  (verdict == UMI_AM_REFUSED) ? UMX_ERR_CANCELED : UMX_OK);
    }
    worker->lend->arriving = NULL;
    return UMI_AM_CONSUMED;
}

static void
on_return(umi_ep_base *ep, const umi_lend_note *note)
{
    umi_lend_table *table = umi_lend_agreement_of(ep->link)->table;
    umi_loan       *loan  = NULL;

    if (table != NULL) {
        loan = umi_lend_table_find(table, note->u.loan.slot, note->u.loan.id);
    }
    if (loan != NULL && !loan->is_layers && loan->req->ep == ep) {
        end_loan(loan, (note->status == UMX_OK) ? UMX_OK : UMX_ERR_CANCELED);
    }
}

static int
on_note(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_lend_note note;
    umi_ep_base  *ep;

    if (arrival->header_len != sizeof(note)) {
        return UMI_AM_CONSUMED;
    }
    memcpy(&note, arrival->header, sizeof(note));
    ep = umi_transfer_find_ep(worker, &note.endpoint);
    if (ep == NULL) {
        return UMI_AM_CONSUMED;
    }
    switch ((umi_lend_kind)note.kind) {
    case UMI_LEND_ASK:
        umi_lend_on_ask(ep);
        break;
    case UMI_LEND_INVITE:
        umi_lend_on_invite(ep, &note.u.invite);
        break;
    case UMI_LEND_RETURN:
        on_return(ep, &note);
        break;
    default:
        umi_ep_base_refuse(ep, "an unknown note");
        break;
    }
    return UMI_AM_CONSUMED;
}

void
umi_lend_init(umx_worker *worker, umi_lend *lend)
{
    umi_pool_init(&lend->objects, sizeof(object));
    worker->lend = lend;
}

void
umi_lend_fini(umi_lend *lend)
{
    umi_pool_fini(&lend->objects);
}

umx_status
umi_lend_listen(umx_worker *worker)
{
    umx_status status = umi_am_set_handler(worker, UMI_AM_LENT, on_lent);

    return (status == UMX_OK) ?
               umi_am_set_handler(worker, UMI_AM_NOTE, on_note) :
               status;
}
