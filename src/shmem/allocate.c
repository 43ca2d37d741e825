/* SPDX-License-Identifier: BSD-3-Clause */
/* allocate.c: collective allocation. The ranks exchange what each wants, and
 * what its allocator has answered; all have the same records then, and so come
 * to the same result. Nothing is allocated, or free, before that. One exchange
 * is under way at a time: the allocators of all ranks are then in the same
 * state when they are asked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umx/collective.h>

#include "shmem/shmem.h"
#include "util/utf8.h"

enum {
    WHAT_SIZE = 104 /* bytes, of a call, or of why it is refused */
};

typedef enum wish_kind {
    WISH_ALLOC = 1,
    WISH_FREE,
    WISH_REFUSED /* the arguments of this rank are bad */
} wish_kind;

/* What a rank wants: the same on all, up to `offset`. */
typedef struct wish {
    uint64_t kind; /* wish_kind */
    uint64_t size;
    uint64_t align;
    uint64_t place;     /* of WISH_FREE; UINT64_MAX: NULL */
    uint64_t is_zeroed; /* 0, 1 */
    uint64_t hash;      /* of what does not fit in `what` */
    char     what[WHAT_SIZE];
    uint64_t offset; /* of WISH_ALLOC: what the allocator has given */
    int64_t  status; /* of the allocator */
} wish;

typedef struct umi_shmem_proposal {
    umi_node     node;      /* shmem->proposals */
    umx_shmem   *shmem;     /* held; NULL: it is closed */
    umx_request *req;       /* or NULL */
    umx_request *part;      /* the exchange; or NULL */
    void       **address_p; /* or NULL */
    bool         is_begun;
    bool         is_given_up; /* cancelled before its turn: the others hear of
                                 it then */
    bool is_allocated;        /* a block at own.offset, which is freed unless
                                 all ranks have one there */
    size_t *counts; /* of bytes of each rank's wish; behind `wishes` */
    wish    own;
    wish    wishes[]; /* of all ranks */
} umi_shmem_proposal;

/* ---- comparing -----------------------------------------------------------
 */

static void
describe(const wish *it, char *text, size_t size)
{
    if (it->kind == WISH_FREE) {
        (void)snprintf(text, size, "free() at offset %" PRId64,
                       (int64_t)it->place);
    } else if (it->what[0] != '\0') {
        (void)snprintf(text, size, "%.*s", WHAT_SIZE - 1, it->what);
    } else {
        (void)snprintf(
            text, size, "%s() of %" PRIu64 " bytes aligned to %" PRIu64,
            (it->is_zeroed != 0) ? "calloc" : "malloc", it->size, it->align);
    }
}

static const char *
cause_of(const wish *it)
{
    if (it->status == UMX_ERR_INVALID_PARAM) {
        return (it->kind == WISH_FREE) ? "nothing is allocated there" :
                                         "that is no power of two up to 65536";
    }
    return "there is no room for it";
}

static umx_status
compare_calls(umx_shmem *shmem, const wish *wishes)
{
    char first[WHAT_SIZE], other[WHAT_SIZE];

    for (int i = 1; i < shmem->joint.size; i++) {
        if (memcmp(&wishes[0], &wishes[i], offsetof(wish, offset)) != 0) {
            describe(&wishes[0], first, sizeof(first));
            describe(&wishes[i], other, sizeof(other));
            (void)snprintf(shmem->joint.reason, sizeof(shmem->joint.reason),
                           "rank 0 calls %s, and rank %d %s", first, i, other);
            return UMX_ERR_INVALID_PARAM;
        }
    }
    return UMX_OK;
}

/* Compare the wishes. The result is the same on every rank. */
static umx_status
compare(umx_shmem *shmem, const wish *wishes)
{
    char       text[WHAT_SIZE];
    umx_status status;

    for (int i = 0; i < shmem->joint.size; i++) {
        if (wishes[i].kind == WISH_REFUSED) {
            (void)snprintf(shmem->joint.reason, sizeof(shmem->joint.reason),
                           "the call of rank %d is refused there: %.*s", i,
                           WHAT_SIZE, wishes[i].what);
            return UMX_ERR_INVALID_PARAM;
        }
    }
    status = compare_calls(shmem, wishes);
    for (int i = 0; i < shmem->joint.size && status == UMX_OK; i++) {
        if (wishes[i].status != UMX_OK) {
            describe(&wishes[i], text, sizeof(text));
            (void)snprintf(shmem->joint.reason, sizeof(shmem->joint.reason),
                           "%s: %s", text, cause_of(&wishes[i]));
            status = (umx_status)wishes[i].status;
        }
    }
    return status;
}

/* ---- the end of one ------------------------------------------------------
 */

/* Do what all want, or undo what this rank has begun. */
static umx_status
carry_out(umi_shmem_proposal *it, umx_status status)
{
    umx_shmem  *shmem = it->shmem;
    const wish *own   = &it->own;

    if (status == UMX_OK) {
        status = compare(shmem, it->wishes);
    }
    if (own->kind == WISH_FREE) {
        if (status == UMX_OK && own->place != UINT64_MAX) {
            umi_shmem_block_free(&shmem->blocks, own->place);
        }
        return status;
    }
    if (status != UMX_OK && it->is_allocated) {
        umi_shmem_block_free(&shmem->blocks, own->offset);
    }
    if (status == UMX_OK && it->address_p != NULL) {
        *it->address_p = (own->size == 0) ? NULL : shmem->base + own->offset;
    }
    return status;
}

/* The communicator of allocations has ended: so have the other calls of all
 * ranks, who cannot be known to meet again. */
static void
end_all(umx_shmem *shmem)
{
    umx_comm_failure failure;

    if (shmem->joint.comm != NULL && shmem->allocations != NULL &&
        umx_comm_get_failure(shmem->allocations, &failure)) {
        umx_comm_abort_for(shmem->joint.comm, &failure,
                           umx_comm_reason(shmem->allocations));
    }
}

/* End a proposal, which is on no list. */
static umx_status
end(umi_shmem_proposal *it, umx_status status)
{
    umx_shmem   *shmem = it->shmem;
    umx_request *req   = it->req;

    if (shmem != NULL) {
        status = carry_out(it, status);
        end_all(shmem);
        umi_shmem_put(shmem);
    } else if (status != UMX_ERR_CANCELED) {
        status = UMX_ERR_CLOSED; /* by this rank */
    }
    free(it);
    if (req != NULL) {
        umx_request_complete(req, status);
    }
    return status;
}

/* ---- one after the other -------------------------------------------------
 */

static void on_exchanged(umx_request *part, umx_status status, void *arg);

/* Ask the allocator. */
static void
prepare(umi_shmem_proposal *it)
{
    umx_shmem *shmem = it->shmem;
    wish      *own   = &it->own;

    if (own->kind == WISH_FREE) {
        if (own->place != UINT64_MAX &&
            !umi_shmem_block_exists(&shmem->blocks, own->place)) {
            own->status = UMX_ERR_INVALID_PARAM;
        }
        return;
    }
    if (own->kind == WISH_REFUSED) {
        return;
    }
    if ((own->align & (own->align - 1)) != 0 ||
        own->align > UMX_SHMEM_ALIGN_MAX) {
        own->status = UMX_ERR_INVALID_PARAM;
    } else if (own->size != 0) {
        own->status      = umi_shmem_block_alloc(&shmem->blocks, own->size,
                                                 own->align, &own->offset);
        it->is_allocated = (own->status == UMX_OK);
    }
    if (it->is_allocated && own->is_zeroed != 0) { /* nobody uses it yet */
        memset(shmem->base + own->offset, 0, own->size);
    }
}

/* Exchange the wishes. The other ranks wait for this one's: where it cannot
 * come, they are told. */
static umx_status
exchange(umi_shmem_proposal *it)
{
    umx_shmem    *shmem  = it->shmem;
    umx_op_params params = umx_layer_op_params(on_exchanged, it);
    size_t        size   = (size_t)shmem->joint.size;
    umx_pieces    pieces = {.counts = it->counts};
    umx_buffer    send   = umx_host_buffer(&it->own, sizeof(it->own));
    umx_buffer    recv   = umx_host_buffer(it->wishes, size * sizeof(it->own));
    umx_status    status = umx_allgatherv(shmem->allocations, &send, &recv,
                                          &pieces, &params, &it->part);

    if (status != UMX_INPROGRESS) {
        it->part = NULL;
    }
    if (status == UMX_ERR_NO_MEMORY) {
        umx_comm_abort(shmem->allocations, "no memory for an allocation");
    }
    return status;
}

/* The turn of a proposal has come. */
static umx_status
take_turn(umi_shmem_proposal *it)
{
    umx_shmem *shmem = it->shmem;

    it->is_begun = true;
    if (it->is_given_up) {
        umx_comm_abort(shmem->allocations, "an allocation was cancelled");
        return UMX_ERR_CANCELED;
    }
    shmem->joint.reason[0] = '\0';
    prepare(it);
    return exchange(it);
}

/* Begin the next one, unless it has begun. */
static void
go_on(umx_shmem *shmem)
{
    umx_status status = UMX_OK;

    while (status != UMX_INPROGRESS && !umi_list_is_empty(&shmem->proposals)) {
        umi_shmem_proposal *it = umi_container_of(shmem->proposals.next,
                                                  umi_shmem_proposal, node);

        if (it->is_begun) {
            return;
        }
        status = take_turn(it);
        if (status != UMX_INPROGRESS) {
            umi_node_remove(&it->node);
            (void)end(it, status);
        }
    }
}

static void
on_exchanged(umx_request *part, umx_status status, void *arg)
{
    umi_shmem_proposal *it    = arg;
    umx_shmem          *shmem = it->shmem;

    (void)part;
    it->part = NULL;
    if (shmem == NULL) {
        (void)end(it, status);
        return;
    }
    umi_shmem_hold(shmem);
    umi_node_remove(&it->node);
    (void)end(it, status);
    go_on(shmem);
    umi_shmem_put(shmem);
}

void
umi_shmem_proposals_drop(umx_shmem *shmem)
{
    umi_node *node;

    while ((node = umi_list_pop(&shmem->proposals)) != NULL) {
        umi_shmem_proposal *it = umi_container_of(node, umi_shmem_proposal,
                                                  node);

        it->shmem = NULL;
        if (!it->is_begun) {
            (void)end(it, UMX_ERR_CLOSED);
        }
        umi_shmem_put(shmem);
    }
}

/* Cancel the exchange, by which the other ranks learn it. An allocation that
 * waits for its turn tells them in that turn. */
static void
cancel(umx_request *req)
{
    umi_shmem_proposal *it = UMX_REQUEST_OF(req, umi_shmem_proposal);

    if (it->part != NULL) {
        (void)umx_request_cancel(it->part);
    } else if (!it->is_begun) {
        it->is_given_up = true;
        it->address_p   = NULL;
        it->req         = NULL;
        umx_request_complete(req, UMX_ERR_CANCELED);
    }
}

static const umx_request_class allocate_class = {.name   = "allocate",
                                                 .cancel = cancel};

/* ---- calls ---------------------------------------------------------------
 */

/* Propose `own` to all ranks. */
static umx_status
propose(umx_shmem *shmem, const wish *own, void **address_p,
        const umx_op_params *op, umx_request **req_p)
{
    umx_status          status   = umi_shmem_status(shmem);
    size_t              size     = (size_t)shmem->joint.size;
    bool                is_first = umi_list_is_empty(&shmem->proposals);
    umi_shmem_proposal *it;

    if (status != UMX_OK) {
        return status;
    }
    it = calloc(1, sizeof(*it) + size * (sizeof(wish) + sizeof(*it->counts)));
    if (it == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    it->counts = (size_t *)(void *)&it->wishes[size];
    for (size_t i = 0; i < size; i++) {
        it->counts[i] = sizeof(wish);
    }
    umi_shmem_hold(shmem);
    it->shmem     = shmem;
    it->own       = *own;
    it->address_p = address_p;
    umi_node_init(&it->node);
    status = is_first ? take_turn(it) : UMX_INPROGRESS;
    if (status != UMX_INPROGRESS) {
        return end(it, status);
    }
    umi_list_append(&shmem->proposals, &it->node);
    it->req = umx_request_create(shmem->joint.worker, &allocate_class, op);
    if (it->req == NULL) {
        it->address_p   = NULL;
        it->is_given_up = true;
        if (it->part != NULL) {
            (void)umx_request_cancel(it->part);
        }
        return UMX_ERR_NO_MEMORY;
    }
    UMX_REQUEST_OF(it->req, umi_shmem_proposal) = it;
    *req_p                                      = it->req;
    return UMX_INPROGRESS;
}

/* Note a text, of which the end may not fit. */
static void
set_what(wish *it, const char *what)
{
    it->hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (const char *at = what; *at != '\0'; at++) {
        it->hash = (it->hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    }
    (void)snprintf(it->what, sizeof(it->what), "%s", what);
    umi_utf8_end(it->what);
}

umx_status
umx_shmem_allocate(umx_shmem *shmem, const umx_shmem_wish *wanted,
                   void **address_p, const umx_op_params *op,
                   umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    wish own = {.kind      = wanted->is_refused ? WISH_REFUSED : WISH_ALLOC,
                .size      = wanted->size,
                .align     = wanted->align,
                .is_zeroed = wanted->is_zeroed};

    if (wanted->what != NULL) {
        set_what(&own, wanted->what);
    }
    return propose(shmem, &own, address_p, op, req_p);
}

umx_status
umx_shmem_malloc(umx_shmem *shmem, uint64_t size, uint64_t align,
                 bool is_zeroed, void **address_p, const umx_op_params *op,
                 umx_request **req_p)
{
    umx_shmem_wish wanted = {
        .size = size, .align = align, .is_zeroed = is_zeroed};

    return umx_shmem_allocate(shmem, &wanted, address_p, op, req_p);
}

umx_status
umx_shmem_free(umx_shmem *shmem, void *address, const umx_op_params *op,
               umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    wish own = {.kind = WISH_FREE, .place = UINT64_MAX};

    if (address != NULL) {
        own.place = (uint64_t)((char *)address - shmem->base);
    }
    return propose(shmem, &own, NULL, op, req_p);
}
