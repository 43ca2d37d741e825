/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* process_vm_readv() */
#include "ops/cma.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/endpoint.h"
#include "core/peer.h"
#include "mem/gather.h"
#include "mem/memtype.h"
#include "ops/post.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/process.h"

enum {
    HEADER_MAX = 32 /* of a data message, without one of the user's */
};

enum note_kind {
    NOTE_ASK = 1,
    NOTE_INVITE,
    NOTE_OFFER,
    NOTE_ACCEPT,
    NOTE_RETURN
};

typedef struct wire_loan {
    uint64_t id;
    uint64_t id_address;
    uint64_t address;
    uint64_t len;
} wire_loan;

typedef struct wire_note {
    uint64_t endpoint;
    uint32_t kind;
    int32_t  status;
    uint64_t a;
    uint64_t b;
    uint8_t  nonce[UMI_CMA_NONCE_SIZE];
} wire_note;

_Static_assert(sizeof(wire_loan) == 32 && sizeof(wire_note) == 48,
               "wire format");

/* What is lent. UCX reads `bytes` until it has sent them, which may be after
 * the loan has ended. */
typedef struct umi_loan {
    umi_link         link; /* ep->loans */
    _Atomic uint64_t id;   /* 0: ended. The peer reads it */
    uint64_t         slot; /* the same, in worker->loans */
    umx_worker      *worker;
    umx_request     *req;
    bool             is_sending;
    uint8_t          bytes[sizeof(wire_loan) + HEADER_MAX];
} umi_loan;

/* A note that UCX has not sent yet. */
typedef struct sent_note {
    umx_worker *worker;
    wire_note   note;
} sent_note;

/* What a peer lends. */
typedef struct borrowed {
    wire_loan loan;
    uint64_t  endpoint;
} borrowed;

/* All of these are of one size, in one pool. */
typedef union object {
    umi_loan  loan;
    sent_note note;
    borrowed  borrowed;
} object;

/* ---- notes ---------------------------------------------------------------
 */

static void
on_note_sent(void *request, ucs_status_t status, void *arg)
{
    sent_note *sent = arg;

    (void)status;
    ucp_request_free(request);
    umi_pool_put(&sent->worker->cma, sent);
}

/* Header only. True if UCX has it still, and calls `on_sent`. */
static ucs_status_ptr_t
send_header(umi_ep *ep, unsigned id, const void *header, size_t len,
            ucp_send_nbx_callback_t on_sent, void *arg)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags     = UCP_AM_SEND_FLAG_EAGER,
        .cb.send   = on_sent,
        .user_data = arg,
    };

    ep->worker->is_armed = false;
    return ucp_am_send_nbx(ep->handle, id, header, len, NULL, 0, &params);
}

/* One that cannot be sent is lost: its endpoint is as good as failed, or the
 * peer goes on without. */
static void
send_note(umi_ep *ep, const wire_note *note)
{
    umx_worker *worker = ep->worker;
    sent_note  *sent;

    if (ep->handle == NULL) {
        return;
    }
    sent = umi_pool_get(&worker->cma);
    if (sent == NULL) {
        return;
    }
    sent->worker        = worker;
    sent->note          = *note;
    sent->note.endpoint = ep->remote_id;
    if (!UCS_PTR_IS_PTR(send_header(ep, UMI_AM_NOTE, &sent->note,
                                    sizeof(sent->note), on_note_sent, sent))) {
        umi_pool_put(&worker->cma, sent);
    }
}

/* ---- lending -------------------------------------------------------------
 */

/* Memory that devices map may be out of reach. */
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
umi_cma_is_agreed(umi_ep *ep, size_t len)
{
    const umx_config *config = &ep->worker->context->config;
    umi_peer         *peer   = ep->peer;
    wire_note         ask    = {.kind = NOTE_ASK};

    if (len < config->cma_min || len > config->cma_max || len == 0 ||
        peer == NULL || !peer->has_shm) {
        return false;
    }
    if (!peer->cma.is_asked) {
        peer->cma.is_asked = true;
        send_note(ep, &ask);
    }
    return peer->cma.may_lend;
}

bool
umi_cma_may_lend(const umx_request *req, size_t header_len)
{
    return umi_cma_is_agreed(req->ep, req->buf.len) &&
           header_len <= HEADER_MAX && req->buf.memtype == UMX_MEMTYPE_HOST &&
           req->buf.layout == NULL && req->gather == NULL &&
           is_within_reach(&req->buf);
}

static void
put_loan(umi_loan *loan)
{
    umi_pool_put(&loan->worker->cma, loan);
}

/* Nobody may read any more. */
static void
end_loan(umi_loan *loan, umx_status status)
{
    umx_request *req = loan->req;

    umi_link_remove(&loan->link);
    atomic_store(&loan->id, 0);
    umi_slots_remove(&loan->worker->loans, loan->slot);
    if (!loan->is_sending) {
        put_loan(loan);
    } else {
        loan->req = NULL;
    }
    umi_request_complete(req, status);
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
new_loan(umx_request *req, const void *header, size_t header_len)
{
    umx_worker *worker = req->worker;
    umi_loan   *loan   = umi_pool_get(&worker->cma);
    wire_loan   wire;

    if (loan == NULL) {
        return NULL;
    }
    loan->slot = umi_slots_add(&worker->loans, loan, ++worker->loan_nonce);
    if (loan->slot == 0) {
        umi_pool_put(&worker->cma, loan);
        return NULL;
    }
    loan->worker     = worker;
    loan->req        = req;
    loan->is_sending = false;
    atomic_store(&loan->id, loan->slot);
    wire = (wire_loan){
        .id         = loan->slot,
        .id_address = (uintptr_t)&loan->id,
        .address    = (uintptr_t)req->buf.data,
        .len        = req->buf.len,
    };
    memcpy(loan->bytes, &wire, sizeof(wire));
    memcpy(loan->bytes + sizeof(wire), header, header_len);
    return loan;
}

umx_status
umi_cma_lend(umx_request *req, const void *header, size_t header_len)
{
    umi_ep          *ep   = req->ep;
    umi_loan        *loan = new_loan(req, header, header_len);
    ucs_status_ptr_t result;

    if (loan == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    result = send_header(ep, UMI_AM_LENT, loan->bytes,
                         sizeof(wire_loan) + header_len, on_loan_sent, loan);
    if (UCS_PTR_IS_ERR(result)) {
        umi_slots_remove(&req->worker->loans, loan->slot);
        put_loan(loan);
        return umi_ep_status(UCS_PTR_STATUS(result));
    }
    req->worker->stats.loans++;
    loan->is_sending = result != NULL;
    req->is_posted   = true;
    umi_list_append(&ep->loans, &loan->link);
    umi_list_append(&ep->inflight, &req->link);
    return UMX_INPROGRESS;
}

void
umi_cma_end(umi_ep *ep, umx_status status)
{
    while (!umi_list_is_empty(&ep->loans)) {
        end_loan(umi_container_of(ep->loans.next, umi_loan, link), status);
    }
}

/* ---- borrowing -----------------------------------------------------------
 */

static borrowed *
borrowed_of(void *desc)
{
    return (borrowed *)((uintptr_t)desc - UMI_CMA_MARK);
}

/* Done with it. Its memory is the note's: there is always some. */
static void
give_back(umx_worker *worker, void *desc, umx_status status)
{
    borrowed *it   = borrowed_of(desc);
    umi_ep   *ep   = umi_ids_get(&worker->eps_by_id, it->endpoint);
    wire_note note = {.kind = NOTE_RETURN, .status = status, .a = it->loan.id};

    umi_pool_put(&worker->cma, it);
    if (ep != NULL) {
        send_note(ep, &note);
    }
    if (worker->arriving == desc) {
        worker->arriving = NULL;
    }
}

void
umi_cma_release(umx_worker *worker, void *desc)
{
    give_back(worker, desc, UMX_OK);
}

/* Does that process show the proof, and is `loan`, unless NULL, not over? */
static bool
is_lender(pid_t pid, uint64_t proof_address, const umi_cma_proof *proof,
          const wire_loan *loan)
{
    umi_cma_proof shown;
    uint64_t      id;
    struct iovec  local[]  = {{&shown, sizeof(shown)}, {&id, sizeof(id)}};
    struct iovec  remote[] = {
         {(void *)(uintptr_t)proof_address, sizeof(shown)},
         {(loan != NULL) ? (void *)(uintptr_t)loan->id_address : NULL,
          sizeof(id)}};
    unsigned long count = (loan != NULL) ? 2 : 1;
    size_t        size  = sizeof(shown) + ((loan != NULL) ? sizeof(id) : 0);

    return process_vm_readv(pid, local, count, remote, count, 0) ==
               (ssize_t)size &&
           memcmp(&shown, proof, sizeof(shown)) == 0 &&
           (loan == NULL || id == loan->id);
}

/* All of it, or it is of no use. */
static bool
read_bytes(const umi_cma *cma, const wire_loan *loan, void *data)
{
    char    *pos     = data;
    uint64_t address = loan->address;
    uint64_t left    = loan->len;

    while (left != 0) {
        struct iovec local  = {pos, left};
        struct iovec remote = {(void *)(uintptr_t)address, left};
        ssize_t      n;

        n = process_vm_readv(cma->pid, &local, 1, &remote, 1, 0);
        if (n <= 0) {
            return false;
        }
        pos += n;
        address += (uint64_t)n;
        left -= (uint64_t)n;
    }
    return is_lender(cma->pid, cma->proof_address, &cma->invitation, loan);
}

/* The memory itself, if it is plain; else NULL. */
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
read_elsewhere(umx_request *req, const umi_cma *cma, const wire_loan *loan)
{
    void      *bytes  = malloc(loan->len);
    umx_status status = UMX_ERR_CONNECTION_RESET;

    if (bytes == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (read_bytes(cma, loan, bytes)) {
        status = (req->gather != NULL) ?
                     umi_gather_write(req->gather, 0, bytes, loan->len) :
                     umi_copy_in(&req->buf, bytes, loan->len);
    }
    free(bytes);
    return status;
}

umx_status
umi_cma_read(umx_request *req, void *desc)
{
    const wire_loan *loan   = &borrowed_of(desc)->loan;
    umi_peer        *peer   = req->ep->peer;
    void            *memory = plain_memory(req);
    umx_status       status = UMX_ERR_CONNECTION_RESET;

    if (peer != NULL && memory != NULL) {
        status = read_bytes(&peer->cma, loan, memory) ? UMX_OK : status;
    } else if (peer != NULL) {
        status = read_elsewhere(req, &peer->cma, loan);
    }
    give_back(req->worker, desc,
              (status == UMX_OK) ? UMX_OK : UMX_ERR_CANCELED);
    return status;
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

static void
refuse(umi_ep *ep, const char *why)
{
    umi_log(UMI_LOG_WARN, "endpoint %llu: %s", (unsigned long long)ep->id, why);
    ep->worker->stats.protocol_errors++;
    ep->ucx_error = UMX_ERR_PROTOCOL;
    umi_ep_raise(ep, UMI_EP_EVENT_ERROR);
}

/* As the data message that it stands for. False: dropped, or refused. */
static bool
borrow(umx_worker *worker, const umi_am_arrival *arrival,
       umi_am_arrival *message)
{
    borrowed *it;
    umi_ep   *ep;
    wire_loan loan;
    uint64_t  endpoint;

    if (arrival->header_len <
        sizeof(loan) + UMI_AM_ENDPOINT_AT + sizeof(endpoint)) {
        return false;
    }
    memcpy(&loan, arrival->header, sizeof(loan));
    message->header     = (const char *)arrival->header + sizeof(loan);
    message->header_len = arrival->header_len - sizeof(loan);
    memcpy(&endpoint, (const char *)message->header + UMI_AM_ENDPOINT_AT,
           sizeof(endpoint));
    ep = umi_ids_get(&worker->eps_by_id, endpoint);
    if (ep == NULL) {
        umi_worker_stray(worker, endpoint);
        return false;
    }
    if (ep->peer == NULL || ep->peer->cma.pid == 0 || loan.len == 0 ||
        loan.len > SIZE_MAX / 2 || arrival->len != 0) {
        refuse(ep, "a loan that was not agreed on");
        return false;
    }
    it = umi_pool_get(&worker->cma);
    if (it == NULL) {
        refuse(ep, "out of memory for a loan");
        return false;
    }
    it->loan          = loan;
    it->endpoint      = endpoint;
    message->data     = (void *)((uintptr_t)it + UMI_CMA_MARK);
    message->len      = loan.len;
    message->is_rndv  = true;
    message->can_keep = true;
    return true;
}

static int
on_lent(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_am_arrival message;
    int            verdict;

    if (!borrow(worker, arrival, &message)) {
        return UMI_AM_CONSUMED;
    }
    worker->arriving = message.data;
    verdict          = worker->am_handlers[UMI_AM_DATA].fn(worker, &message);
    if (worker->arriving != NULL && verdict != UMI_AM_KEPT) {
        give_back(worker, message.data,
                  (verdict == UMI_AM_REFUSED) ? UMX_ERR_CANCELED : UMX_OK);
    }
    worker->arriving = NULL;
    return UMI_AM_CONSUMED;
}

/* ---- coming to terms -----------------------------------------------------
 */

static void
fill_proof(umi_cma_proof *proof, const uint8_t *nonce, const uint8_t *lender,
           const uint8_t *reader)
{
    memcpy(proof->nonce, nonce, sizeof(proof->nonce));
    memcpy(proof->lender, lender, sizeof(proof->lender));
    memcpy(proof->reader, reader, sizeof(proof->reader));
}

static void
on_ask(umi_ep *ep)
{
    wire_note invite = {.kind = NOTE_INVITE};
    umi_peer *peer   = ep->peer;
    umi_cma  *cma    = &peer->cma;

    if (ep->worker->context->config.cma_max == 0 || !peer->has_shm ||
        cma->is_invited ||
        !umi_random_bytes(invite.nonce, sizeof(invite.nonce))) {
        return;
    }
    cma->is_invited = true;
    fill_proof(&cma->invitation, invite.nonce, peer->worker_id, ep->worker->id);
    send_note(ep, &invite);
}

static void
on_invite(umi_ep *ep, const wire_note *invite)
{
    umi_peer *peer  = ep->peer;
    umi_cma  *cma   = &peer->cma;
    wire_note offer = {.kind = NOTE_OFFER,
                       .a    = (uint64_t)getpid(),
                       .b    = (uintptr_t)&cma->shown};

    if (cma->is_asked && !cma->is_shown) {
        cma->is_shown = true;
        fill_proof(&cma->shown, invite->nonce, ep->worker->id, peer->worker_id);
        send_note(ep, &offer);
    }
}

static void
on_offer(umi_ep *ep, const wire_note *offer)
{
    umi_cma  *cma    = &ep->peer->cma;
    pid_t     pid    = (pid_t)offer->a;
    wire_note accept = {.kind = NOTE_ACCEPT};

    if (!cma->is_invited || cma->is_offered) {
        return;
    }
    cma->is_offered = true; /* guessing is for nobody */
    if (pid <= 0 || umi_process_is_self(pid) ||
        !is_lender(pid, offer->b, &cma->invitation, NULL)) {
        return;
    }
    cma->pid           = pid;
    cma->proof_address = offer->b;
    send_note(ep, &accept);
}

static void
on_return(umi_ep *ep, const wire_note *note)
{
    umi_loan *loan = umi_slots_get(&ep->worker->loans, note->a);

    if (loan != NULL && loan->req->ep == ep) {
        end_loan(loan, (note->status == UMX_OK) ? UMX_OK : UMX_ERR_CANCELED);
    }
}

static int
on_note(umx_worker *worker, const umi_am_arrival *arrival)
{
    wire_note note;
    umi_ep   *ep;

    if (arrival->header_len != sizeof(note)) {
        return UMI_AM_CONSUMED;
    }
    memcpy(&note, arrival->header, sizeof(note));
    ep = umi_ids_get(&worker->eps_by_id, note.endpoint);
    if (ep == NULL) {
        umi_worker_stray(worker, note.endpoint);
    }
    if (ep == NULL || ep->peer == NULL) {
        return UMI_AM_CONSUMED;
    }
    switch ((enum note_kind)note.kind) {
    case NOTE_ASK:
        on_ask(ep);
        break;
    case NOTE_INVITE:
        on_invite(ep, &note);
        break;
    case NOTE_OFFER:
        on_offer(ep, &note);
        break;
    case NOTE_ACCEPT:
        ep->peer->cma.may_lend = ep->peer->cma.is_asked;
        break;
    case NOTE_RETURN:
        on_return(ep, &note);
        break;
    default:
        refuse(ep, "an unknown note");
        break;
    }
    return UMI_AM_CONSUMED;
}

umx_status
umi_cma_init(umx_worker *worker)
{
    umx_status status;

    umi_pool_init(&worker->cma, sizeof(object));
    umi_slots_init(&worker->loans);
    if (!umi_random_bytes(&worker->loan_nonce, sizeof(worker->loan_nonce))) {
        return UMX_ERR_IO_ERROR;
    }
    status = umi_am_set_handler(worker, UMI_AM_LENT, on_lent);
    return (status == UMX_OK) ?
               umi_am_set_handler(worker, UMI_AM_NOTE, on_note) :
               status;
}
