/* SPDX-License-Identifier: BSD-3-Clause */
/* put_get.c: put, get, signals and atomic operations. Those on memory of
 * another PE are operations on its key, whichever way they take; this PE's own
 * memory is changed here. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shmem/shmem.h"
#include "util/atomic.h"

static umx_status
check(const umx_shmem *shmem, const void *address, uint64_t len, int pe,
      uint64_t *offset_p)
{
    if (umi_shmem_status(shmem) != UMX_OK) {
        return UMX_ERR_CLOSED;
    }
    if (!umi_shmem_is_pe(shmem, pe) ||
        !umi_shmem_offset(shmem, address, len, offset_p)) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return umi_shmem_has_failed(shmem, pe) ? UMX_ERR_RANK_FAILED : UMX_OK;
}

/* An operation that has ended at once may have found that the PE has ended. */
static inline umx_status
ended(umx_shmem *shmem, int pe, umx_status status)
{
    return (status >= 0) ? status : umi_shmem_doubt(shmem, pe, status);
}

/* ---- memory that is mapped -----------------------------------------------
 */

/* Is the memory of another PE mapped, and has the communicator not failed? Then
 * operations are loads and stores; an operation on its key would say why not.
 */
static inline bool
is_direct(const umx_shmem *shmem, int pe)
{
    return shmem->pes[pe].waiters != NULL &&
           !__atomic_load_n(&shmem->joint.has_failed, __ATOMIC_RELAXED);
}

/* Wake who sleeps at a PE that has been stored to; `is_fenced`: by an atomic
 * operation. It is a fence for the load behind it only if that is sequentially
 * consistent as well: tests/model/litmus.py. */
static inline umx_status
ring(umx_shmem *shmem, int pe, bool is_fenced)
{
    const umx_shmem_pe *to = &shmem->pes[pe];

    if (to->is_ordered || is_fenced) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_thread_fence(memory_order_seq_cst);
    }
    if ((__atomic_load_n(to->waiters, __ATOMIC_SEQ_CST) & UMX_WAITERS_MASK) ==
        0) {
        return UMX_OK;
    }
    return ended(shmem, pe, umx_rkey_notify(umi_shmem_rkey(shmem, pe)));
}

/* ---- put and get ---------------------------------------------------------
 */

umx_status
umx_shmem_put(umx_shmem *shmem, void *dest, const void *source, size_t len,
              int pe, const umx_op_params *op, umx_request **req_p)
{
    umx_rma_item item   = {.buf = umx_host_buffer(source, len)};
    umx_status   status = check(shmem, dest, len, pe, &item.offset);

    if (status != UMX_OK) {
        return status;
    }
    if (is_direct(shmem, pe)) {
        memcpy(shmem->pes[pe].base + item.offset, source, len);
        return ring(shmem, pe, false);
    }
    if (pe == shmem->joint.rank) {
        memmove(dest, source, len);
        umx_memh_notify(shmem->memh);
        return UMX_OK;
    }
    return ended(shmem, pe,
                 umx_rma_put(umi_shmem_rkey(shmem, pe), &item, op, req_p));
}

/* Copy bytes of a heap that is mapped, of this PE's maybe where `dest` is. */
static inline umx_status
copy_to(const umx_buffer *dest, const void *source)
{
    if (dest->layout != NULL) {
        return umx_buffer_write(dest, source, dest->len);
    }
    memmove(dest->data, source, dest->len);
    return UMX_OK;
}

umx_status
umx_shmem_get_buffer(umx_shmem *shmem, const umx_buffer *dest,
                     const void *source, int pe, const umx_op_params *op,
                     umx_request **req_p)
{
    umx_rma_item item   = {.buf = *dest};
    umx_status   status = check(shmem, source, dest->len, pe, &item.offset);

    if (status != UMX_OK) {
        return status;
    }
    if (is_direct(shmem, pe)) {
        atomic_thread_fence(memory_order_acquire);
        return copy_to(dest, shmem->pes[pe].base + item.offset);
    }
    if (pe == shmem->joint.rank) {
        return copy_to(dest, source);
    }
    return ended(shmem, pe,
                 umx_rma_get(umi_shmem_rkey(shmem, pe), &item, op, req_p));
}

umx_status
umx_shmem_get(umx_shmem *shmem, void *dest, const void *source, size_t len,
              int pe, const umx_op_params *op, umx_request **req_p)
{
    umx_buffer buf = umx_host_buffer(dest, len);

    return umx_shmem_get_buffer(shmem, &buf, source, pe, op, req_p);
}

/* ---- without a request ---------------------------------------------------
 */

static void
on_nbi(umx_request *part, umx_status status, void *arg)
{
    const umi_shmem_peer *peer = arg;

    (void)part;
    umi_shmem_nbi_done(peer->shmem,
                       umi_shmem_doubt(peer->shmem, peer->pe, status));
}

/* How an operation without a request is begun with that PE, if it is one. */
static umx_op_params
nbi_params(umx_shmem *shmem, int pe)
{
    return umx_layer_op_params(
        on_nbi, &shmem->peers[umi_shmem_is_pe(shmem, pe) ? pe : 0]);
}

/* Count an operation that was begun with nbi_params(). */
static umx_status
begun(umx_shmem *shmem, umx_status status)
{
    if (status != UMX_INPROGRESS) {
        return status;
    }
    shmem->num_nbi++;
    umi_shmem_hold(shmem);
    return UMX_OK;
}

umx_status
umx_shmem_put_nbi(umx_shmem *shmem, void *dest, const void *source, size_t len,
                  int pe)
{
    UMI_SHMEM_LOCK(shmem);
    umx_op_params params = nbi_params(shmem, pe);
    umx_request  *part;

    return begun(shmem,
                 umx_shmem_put(shmem, dest, source, len, pe, &params, &part));
}

umx_status
umx_shmem_get_nbi(umx_shmem *shmem, void *dest, const void *source, size_t len,
                  int pe)
{
    UMI_SHMEM_LOCK(shmem);
    umx_op_params params = nbi_params(shmem, pe);
    umx_request  *part;

    return begun(shmem,
                 umx_shmem_get(shmem, dest, source, len, pe, &params, &part));
}

umx_status
umx_shmem_put_signal_nbi(umx_shmem *shmem, void *dest, const void *source,
                         size_t len, uint64_t *signal, uint64_t value,
                         umx_atomic_op how, int pe)
{
    UMI_SHMEM_LOCK(shmem);
    umx_op_params params = nbi_params(shmem, pe);
    umx_request  *part;

    return begun(shmem, umx_shmem_put_signal(shmem, dest, source, len, signal,
                                             value, how, pe, &params, &part));
}

/* ---- items at distances --------------------------------------------------
 */

/* Bytes from the first item to the end of the last one. False: too many. */
static bool
span(const umx_shmem_stride *it, int64_t step, uint64_t *len_p)
{
    uint64_t last;

    return !__builtin_mul_overflow((uint64_t)step, it->count - 1, &last) &&
           !__builtin_add_overflow(last, 1, &last) &&
           !__builtin_mul_overflow(last, it->size, len_p);
}

static void
copy_items(char *dest, const char *source, const umx_shmem_stride *it)
{
    for (size_t i = 0; i < it->count; i++) {
        memcpy(dest + i * (size_t)it->dest * it->size,
               source + i * (size_t)it->source * it->size, it->size);
    }
}

/* Are items of that PE copied here? */
static bool
is_stored_to(const umx_shmem *shmem, int pe)
{
    return pe == shmem->joint.rank ||
           (shmem->pes[pe].base != NULL && !shmem->joint.has_failed);
}

/* Post items of a PE that is not mapped: of `near` here. */
static umx_status
post_items(umx_shmem *shmem, uint64_t offset, char *near,
           const umx_shmem_stride *it, bool is_put, int pe,
           const umx_op_params *op, umx_request **req_p)
{
    umx_rma_item *items = malloc(it->count * sizeof(*items));
    umx_rkey     *rkey  = umi_shmem_rkey(shmem, pe);
    size_t        far   = (size_t)(is_put ? it->dest : it->source) * it->size;
    size_t        here  = (size_t)(is_put ? it->source : it->dest) * it->size;
    umx_status    status;

    if (items == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < it->count; i++) {
        items[i] = (umx_rma_item){
            .offset = offset + i * far,
            .buf    = umx_host_buffer(near + i * here, it->size)};
    }
    status = is_put ? umx_rma_put_many(rkey, items, it->count, op, req_p) :
                      umx_rma_get_many(rkey, items, it->count, op, req_p);
    free(items);
    return ended(shmem, pe, status);
}

static umx_status
check_stride(const umx_shmem *shmem, const void *address,
             const umx_shmem_stride *it, int64_t step, int pe,
             uint64_t *offset_p)
{
    uint64_t len = 0;

    if (it->dest < 1 || it->source < 1) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (it->count != 0 && it->size != 0 && !span(it, step, &len)) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return check(shmem, address, len, pe, offset_p);
}

umx_status
umx_shmem_iput(umx_shmem *shmem, void *dest, const void *source,
               const umx_shmem_stride *stride, int pe, const umx_op_params *op,
               umx_request **req_p)
{
    uint64_t   offset;
    umx_status status = check_stride(shmem, dest, stride, stride->dest, pe,
                                     &offset);

    if (status != UMX_OK || stride->count == 0 || stride->size == 0) {
        return status;
    }
    if (!is_stored_to(shmem, pe)) {
        return post_items(shmem, offset, (char *)(uintptr_t)source, stride,
                          true, pe, op, req_p);
    }
    copy_items(shmem->pes[pe].base + offset, source, stride);
    return ended(shmem, pe, umx_shmem_notify(shmem, pe));
}

umx_status
umx_shmem_iget(umx_shmem *shmem, void *dest, const void *source,
               const umx_shmem_stride *stride, int pe, const umx_op_params *op,
               umx_request **req_p)
{
    uint64_t   offset;
    umx_status status = check_stride(shmem, source, stride, stride->source, pe,
                                     &offset);

    if (status != UMX_OK || stride->count == 0 || stride->size == 0) {
        return status;
    }
    if (!is_stored_to(shmem, pe)) {
        return post_items(shmem, offset, dest, stride, false, pe, op, req_p);
    }
    atomic_thread_fence(memory_order_acquire);
    copy_items(dest, shmem->pes[pe].base + offset, stride);
    return UMX_OK;
}

/* ---- signals and atomic operations ---------------------------------------
 */

umx_status
umx_shmem_put_signal(umx_shmem *shmem, void *dest, const void *source,
                     size_t len, uint64_t *signal, uint64_t value,
                     umx_atomic_op how, int pe, const umx_op_params *op,
                     umx_request **req_p)
{
    umx_rma_item item   = {.buf = umx_host_buffer(source, len)};
    umx_atomic   atomic = {.op = how, .size = 8, .value = value};
    umx_status   status = check(shmem, dest, len, pe, &item.offset);

    if (status == UMX_OK) {
        status = check(shmem, signal, sizeof(*signal), pe, &atomic.offset);
    }
    if (status != UMX_OK) {
        return status;
    }
    if ((how != UMX_ATOMIC_SWAP && how != UMX_ATOMIC_ADD) ||
        !umi_atomic_is_valid(&atomic)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (is_direct(shmem, pe)) {
        memcpy(shmem->pes[pe].base + item.offset, source, len);
        (void)umi_atomic_apply(&atomic, shmem->pes[pe].base + atomic.offset);
        return ring(shmem, pe, true);
    }
    if (pe == shmem->joint.rank) {
        memmove(dest, source, len);
        (void)umi_atomic_apply(&atomic, signal);
        umx_memh_notify(shmem->memh);
        return UMX_OK;
    }
    return ended(shmem, pe,
                 umx_rma_put_signal(umi_shmem_rkey(shmem, pe), &item, &atomic,
                                    op, req_p));
}

uint64_t
umx_shmem_signal_fetch(const uint64_t *signal)
{
    return __atomic_load_n(signal, __ATOMIC_ACQUIRE);
}

umx_status
umx_shmem_atomic(umx_shmem *shmem, void *target, const umx_atomic *atomic,
                 uint64_t *old, int pe, const umx_op_params *op,
                 umx_request **req_p)
{
    umx_atomic it     = *atomic;
    umx_status status = check(shmem, target, it.size, pe, &it.offset);
    uint64_t   before;

    if (status != UMX_OK) {
        return status;
    }
    if (!umi_atomic_is_valid(&it)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (pe == shmem->joint.rank) {
        before = umi_atomic_apply(&it, target);
        if (old != NULL) {
            *old = before;
        }
        umx_memh_notify(shmem->memh);
        return UMX_OK;
    }
    return ended(
        shmem, pe,
        umx_rma_atomic(umi_shmem_rkey(shmem, pe), &it, old, op, req_p));
}
