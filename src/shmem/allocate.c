/* SPDX-License-Identifier: BSD-3-Clause */
/* allocate.c: collective allocation. The ranks exchange what each wants, and
 * what its allocator has answered; all have the same records then, and so come
 * to the same result. Nothing is allocated, or free, before that. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umx/collective.h>

#include "shmem/shmem.h"

typedef enum wish_kind {
    WISH_ALLOC = 1,
    WISH_FREE
} wish_kind;

/* What a rank wants: the same on all, and so is `offset`. */
typedef struct wish {
    uint64_t kind; /* wish_kind */
    uint64_t size;
    uint64_t align;
    uint64_t offset;
    int64_t  status; /* of the allocator */
} wish;

struct umi_shmem_proposal {
    umx_shmem   *shmem;     /* held; NULL: it is closed */
    umx_request *req;       /* or NULL */
    umx_request *part;      /* the exchange; or NULL */
    void       **address_p; /* or NULL */
    wish         own;
    wish         wishes[]; /* of all ranks */
};

static void
describe(const wish *it, char *text, size_t size)
{
    if (it->kind == WISH_FREE) {
        (void)snprintf(text, size, "free() at offset %" PRId64,
                       (int64_t)it->offset);
    } else {
        (void)snprintf(text, size,
                       "malloc() of %" PRIu64 " bytes aligned to %" PRIu64,
                       it->size, it->align);
    }
}

static const char *
cause_of(const wish *it)
{
    if (it->status == UMX_ERR_INVALID_PARAM) {
        return (it->kind == WISH_FREE) ? "nothing is allocated there" :
                                         "that is no power of two";
    }
    return "there is no room for it";
}

/* Compare the wishes. The result is the same on every rank. */
static umx_status
compare(umx_shmem *shmem, const wish *wishes)
{
    char first[64], other[64];

    for (int i = 1; i < shmem->size; i++) {
        if (memcmp(&wishes[0], &wishes[i], offsetof(wish, status)) != 0) {
            describe(&wishes[0], first, sizeof(first));
            describe(&wishes[i], other, sizeof(other));
            (void)snprintf(shmem->reason, sizeof(shmem->reason),
                           "rank 0 calls %s, and rank %d %s", first, i, other);
            return UMX_ERR_INVALID_PARAM;
        }
    }
    for (int i = 0; i < shmem->size; i++) {
        if (wishes[i].status != UMX_OK) {
            describe(&wishes[i], first, sizeof(first));
            (void)snprintf(shmem->reason, sizeof(shmem->reason), "%s: %s",
                           first, cause_of(&wishes[i]));
            return (umx_status)wishes[i].status;
        }
    }
    return UMX_OK;
}

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
        if (status == UMX_OK && own->offset != UINT64_MAX) {
            umi_shmem_block_free(&shmem->blocks, own->offset);
        }
        return status;
    }
    if (status != UMX_OK && own->status == UMX_OK && own->size != 0) {
        umi_shmem_block_free(&shmem->blocks, own->offset);
    }
    if (status == UMX_OK && it->address_p != NULL) {
        *it->address_p = (own->size == 0) ? NULL : shmem->base + own->offset;
    }
    return status;
}

static umx_status
end(umi_shmem_proposal *it, umx_status status)
{
    umx_shmem *shmem = it->shmem;

    if (shmem != NULL) {
        status          = carry_out(it, status);
        shmem->proposal = NULL;
        umi_shmem_put(shmem);
    } else if (status == UMX_OK) {
        status = UMX_ERR_CLOSED;
    }
    if (it->req != NULL) {
        umx_request_complete(it->req, status);
    }
    free(it);
    return status;
}

static void
on_exchanged(umx_request *part, umx_status status, void *arg)
{
    umi_shmem_proposal *it = arg;

    (void)part;
    it->part = NULL;
    (void)end(it, status);
}

void
umi_shmem_proposal_drop(umx_shmem *shmem)
{
    umi_shmem_proposal *it = shmem->proposal;

    shmem->proposal = NULL;
    if (it != NULL) {
        it->shmem = NULL;
        umi_shmem_put(shmem);
    }
}

/* The other ranks learn it, as a collective operation is cancelled. */
static void
cancel(umx_request *req)
{
    umi_shmem_proposal *it = *(umi_shmem_proposal **)umx_request_state(req);

    if (it->part != NULL) {
        (void)umx_request_cancel(it->part);
    }
}

static const umx_request_class allocate_class = {.name   = "allocate",
                                                 .cancel = cancel};

/* Exchange the wishes. It takes the proposal over. */
static umx_status
exchange(umi_shmem_proposal *it, const umx_op_params *op, umx_request **req_p)
{
    umx_shmem    *shmem  = it->shmem;
    umx_op_params params = umx_layer_op_params(on_exchanged, it);
    size_t        size   = (size_t)shmem->size;
    size_t       *counts = malloc(size * sizeof(*counts));
    umx_pieces    pieces = {.counts = counts};
    umx_buffer    send   = umx_host_buffer(&it->own, sizeof(it->own));
    umx_buffer    recv   = umx_host_buffer(it->wishes, size * sizeof(it->own));
    umx_status    status;

    if (counts == NULL) {
        return end(it, UMX_ERR_NO_MEMORY);
    }
    for (size_t i = 0; i < size; i++) {
        counts[i] = sizeof(it->own);
    }
    status = umx_allgatherv(shmem->comm, &send, &recv, &pieces, &params,
                            &it->part);
    free(counts);
    if (status != UMX_INPROGRESS) {
        it->part = NULL;
        return end(it, status);
    }
    it->req = umx_request_create(shmem->worker, &allocate_class, op);
    if (it->req == NULL) {
        it->address_p = NULL;
        (void)umx_request_cancel(it->part);
        return UMX_ERR_NO_MEMORY;
    }
    *(umi_shmem_proposal **)umx_request_state(it->req) = it;
    *req_p                                             = it->req;
    return UMX_INPROGRESS;
}

/* Begin a proposal, of which there is one at a time. */
static umx_status
begin(umx_shmem *shmem, umi_shmem_proposal **it_p)
{
    umx_status status = umi_shmem_status(shmem);
    size_t     size   = (size_t)shmem->size * sizeof(wish);

    if (status != UMX_OK) {
        return status;
    }
    if (shmem->proposal != NULL) {
        return UMX_ERR_BUSY;
    }
    *it_p = calloc(1, sizeof(**it_p) + size);
    if (*it_p == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_shmem_hold(shmem);
    (*it_p)->shmem   = shmem;
    shmem->proposal  = *it_p;
    shmem->reason[0] = '\0';
    return UMX_OK;
}

umx_status
umx_shmem_malloc(umx_shmem *shmem, uint64_t size, uint64_t align,
                 bool is_zeroed, void **address_p, const umx_op_params *op,
                 umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    umi_shmem_proposal *it;
    umx_status          status = begin(shmem, &it);
    wish               *own;

    if (status != UMX_OK) {
        return status;
    }
    own           = &it->own;
    it->address_p = address_p;
    *own          = (wish){.kind = WISH_ALLOC, .size = size, .align = align};
    if ((align & (align - 1)) != 0) {
        own->status = UMX_ERR_INVALID_PARAM;
    } else if (size != 0) {
        own->status = umi_shmem_block_alloc(&shmem->blocks, size, align,
                                            &own->offset);
    }
    if (own->status == UMX_OK && is_zeroed) {
        memset(shmem->base + own->offset, 0, size); /* nobody uses it yet */
    }
    return exchange(it, op, req_p);
}

umx_status
umx_shmem_free(umx_shmem *shmem, void *address, const umx_op_params *op,
               umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    umi_shmem_proposal *it;
    umx_status          status = begin(shmem, &it);
    wish               *own;

    if (status != UMX_OK) {
        return status;
    }
    own  = &it->own;
    *own = (wish){.kind = WISH_FREE, .offset = UINT64_MAX};
    if (address != NULL) {
        own->offset = (uint64_t)((char *)address - shmem->base);
        if (!umi_shmem_block_exists(&shmem->blocks, own->offset)) {
            own->status = UMX_ERR_INVALID_PARAM;
        }
    }
    return exchange(it, op, req_p);
}
