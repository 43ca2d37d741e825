/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file shmem_direct.h  The calls of shmem.h that move few bytes, in line.
 *
 * Where a PE is mapped a put is a store here, and a look whether somebody
 * sleeps there; a wait looks at the number for a while before it sleeps.
 * Otherwise these make the calls, and wait for them. The caller sees to it that
 * addresses are symmetric and that a PE is one: nothing is checked, and nobody
 * tells whether a PE whose memory is mapped has ended.
 *
 * A program that was compiled with a header of another layout than the
 * library's makes calls only. Thread: the worker's owner.
 */
#ifndef UMX_SHMEM_DIRECT_H
#define UMX_SHMEM_DIRECT_H

#include <string.h>
#include <umx/shmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A heap, as these calls need it. */
typedef struct umx_shmem_direct {
    umx_shmem          *shmem;
    char               *base;
    const umx_shmem_pe *pes; /* NULL: make calls */
} umx_shmem_direct;

static inline umx_shmem_direct
umx_shmem_direct_of(umx_shmem *shmem)
{
    umx_shmem_direct direct;

    direct.shmem = shmem;
    direct.base  = (char *)umx_shmem_base(shmem);
    direct.pes   = umx_shmem_get_pes(shmem, UMX_SHMEM_LAYOUT);
    return direct;
}

/** Wait for what a call of shmem.h has begun. */
static inline umx_status
umx_shmem_finish(umx_status status, umx_request *req)
{
    if (status == UMX_INPROGRESS) {
        status = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
        umx_request_release(req);
    }
    return status;
}

/** Where an object of `pe` is; NULL: it is not mapped. */
static inline char *
umx_shmem_direct_at(const umx_shmem_direct *direct, const void *address, int pe)
{
    if (direct->pes == NULL || direct->pes[pe].base == NULL) {
        return (char *)0;
    }
    return direct->pes[pe].base + ((const char *)address - direct->base);
}

/** Wake who sleeps at a PE that has been stored to. `is_fenced`: the last store
 * was an atomic operation that is sequentially consistent, as the load of the
 * waiters is: nothing is needed between the two. */
static inline umx_status
umx_shmem_direct_ring(const umx_shmem_direct *direct, int pe, bool is_fenced)
{
    const umx_shmem_pe *to = &direct->pes[pe];

    if (to->waiters == NULL) {
        return umx_shmem_notify(direct->shmem, pe);
    }
    if (to->is_ordered || is_fenced) {
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } else {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    if (__builtin_expect((__atomic_load_n(to->waiters, __ATOMIC_SEQ_CST) &
                          UMX_WAITERS_MASK) != 0,
                         0)) {
        return umx_shmem_notify(direct->shmem, pe);
    }
    return UMX_OK;
}

/** umx_shmem_put() that is complete when it returns. */
static inline umx_status
umx_shmem_direct_put(const umx_shmem_direct *direct, void *dest,
                     const void *source, size_t len, int pe)
{
    char        *at  = umx_shmem_direct_at(direct, dest, pe);
    umx_request *req = (umx_request *)0;
    umx_status   status;

    if (at != (char *)0) {
        memmove(at, source, len);
        return umx_shmem_direct_ring(direct, pe, false);
    }
    status = umx_shmem_put(direct->shmem, dest, source, len, pe,
                           (const umx_op_params *)0, &req);
    return umx_shmem_finish(status, req);
}

/** umx_shmem_get() that is complete when it returns. */
static inline umx_status
umx_shmem_direct_get(const umx_shmem_direct *direct, void *dest,
                     const void *source, size_t len, int pe)
{
    const char  *at  = umx_shmem_direct_at(direct, source, pe);
    umx_request *req = (umx_request *)0;
    umx_status   status;

    if (at != (const char *)0) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        memcpy(dest, at, len);
        return UMX_OK;
    }
    status = umx_shmem_get(direct->shmem, dest, source, len, pe,
                           (const umx_op_params *)0, &req);
    return umx_shmem_finish(status, req);
}

/** Write one number: `value` to `*dest` of `pe`, in one step. */
static inline umx_status
umx_shmem_direct_p64(const umx_shmem_direct *direct, uint64_t *dest,
                     uint64_t value, int pe)
{
    char *at = umx_shmem_direct_at(direct, dest, pe);

    if (at != (char *)0) {
        __atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_RELAXED);
        return umx_shmem_direct_ring(direct, pe, false);
    }
    return umx_shmem_direct_put(direct, dest, &value, sizeof(value), pe);
}

/** umx_shmem_put_signal() that is complete when it returns. */
static inline umx_status
umx_shmem_direct_put_signal(const umx_shmem_direct *direct, void *dest,
                            const void *source, size_t len, uint64_t *signal,
                            uint64_t value, umx_atomic_op how, int pe)
{
    char        *at  = umx_shmem_direct_at(direct, dest, pe);
    umx_request *req = (umx_request *)0;
    uint64_t    *to;
    umx_status   status;

    if (at != (char *)0) {
        to = (uint64_t *)(void *)umx_shmem_direct_at(direct, signal, pe);
        memmove(at, source, len);
        if (how == UMX_ATOMIC_ADD) {
            (void)__atomic_fetch_add(to, value, __ATOMIC_SEQ_CST);
        } else {
            __atomic_store_n(to, value, __ATOMIC_RELEASE);
        }
        return umx_shmem_direct_ring(direct, pe, how == UMX_ATOMIC_ADD);
    }
    status = umx_shmem_put_signal(direct->shmem, dest, source, len, signal,
                                  value, how, pe, (const umx_op_params *)0,
                                  &req);
    return umx_shmem_finish(status, req);
}

/** Add to a number of 8 bytes. */
static inline umx_status
umx_shmem_direct_add64(const umx_shmem_direct *direct, uint64_t *target,
                       uint64_t value, int pe)
{
    char        *at     = umx_shmem_direct_at(direct, target, pe);
    umx_request *req    = (umx_request *)0;
    umx_atomic   atomic = {UMX_ATOMIC_ADD, 8, 0, value, 0};
    umx_status   status;

    if (at != (char *)0) {
        (void)__atomic_fetch_add((uint64_t *)(void *)at, value,
                                 __ATOMIC_SEQ_CST);
        return umx_shmem_direct_ring(direct, pe, true);
    }
    status = umx_shmem_atomic(direct->shmem, target, &atomic, (uint64_t *)0, pe,
                              (const umx_op_params *)0, &req);
    return umx_shmem_finish(status, req);
}

enum {
    /** How often a wait looks before it sleeps: some microseconds. */
    UMX_SHMEM_LOOKS = 4000
};

/** Wait until the number `*number` of this PE is at least `value`. (P), unless
 * that is soon. */
static inline umx_status
umx_shmem_direct_wait_ge(const umx_shmem_direct *direct, const uint64_t *number,
                         uint64_t value)
{
    umx_condition until = {UMX_CMP_GE, 8, 0, value};
    umx_request  *req   = (umx_request *)0;
    umx_status    status;
    int           i;

    for (i = 0; i < UMX_SHMEM_LOOKS; i++) {
        if (__atomic_load_n(number, __ATOMIC_ACQUIRE) >= value) {
            return UMX_OK;
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    until.offset = (uint64_t)((const char *)number - direct->base);
    status       = umx_shmem_wait_until(direct->shmem, &until,
                                        (const umx_op_params *)0, &req);
    return umx_shmem_finish(status, req);
}

#ifdef __cplusplus
}
#endif
#endif
