/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.c: the life of a ring, and its end by an error. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umx/memory.h>

#include "proxy/proxy.h"

enum {
    ALIGN        = 128, /* bytes */
    CAPACITY_MAX = 1 << 20
};

/* ---- references ----------------------------------------------------------
 */

void
umi_proxy_ring_hold(umx_proxy_ring *ring)
{
    umi_shared_refs_get(&ring->refs);
}

void
umi_proxy_ring_put(umx_proxy_ring *ring)
{
    umx_proxy *proxy = ring->proxy;

    if (!umi_shared_refs_put(&ring->refs)) {
        return;
    }
    if (ring->memh != NULL) {
        umx_memh_put(ring->memh);
    }
    free(ring->memory);
    free(ring->num_puts);
    free(ring->ops);
    free(ring);
    umi_proxy_put(proxy);
}

/* ---- errors --------------------------------------------------------------
 */

/* Write what the command is, for people. */
static void
describe(const umx_ring_command *command, char *text, size_t size)
{
    unsigned op     = command->w0 & 15;
    unsigned dst    = command->w0 >> 8 & 0xffff;
    unsigned region = command->w0 >> 24 & 0xff;

    switch (op) {
    case UMX_RING_PUT:
        (void)snprintf(text, size,
                       "a put of %u bytes from %llu to %llu in region %u of "
                       "rank %u",
                       (unsigned)(command->w0 >> 32),
                       (unsigned long long)(command->w1 >> 1 & 0x7fffffff) << 4,
                       (unsigned long long)(command->w1 >> 32) << 4, region,
                       dst);
        break;
    case UMX_RING_SIGNAL:
        (void)snprintf(text, size,
                       "a signal of %u to slot %u in region %u of rank %u",
                       (unsigned)(command->w1 >> 1 & 0x7fffffff),
                       (unsigned)(command->w1 >> 32), region, dst);
        break;
    case UMX_RING_QUIET:
        (void)snprintf(text, size, "a quiet");
        break;
    case UMX_RING_BARRIER:
        (void)snprintf(text, size, "a barrier of group %u", region);
        break;
    default:
        (void)snprintf(text, size, "operation %u, flags %u", op,
                       (unsigned)(command->w0 >> 4 & 15));
        break;
    }
}

void
umi_proxy_ring_fail(umx_proxy_ring *ring, umx_status status, int rank,
                    umx_ring_u64 number, const umx_ring_command *command,
                    const char *text)
{
    char what[128];

    if (ring->is_ended) {
        return;
    }
    ring->is_ended     = true;
    ring->error.status = status;
    ring->error.rank   = rank;
    ring->error.number = number;
    ring->error.reason = ring->reason;
    if (command != NULL) {
        ring->error.command = *command;
        ring->error.command.w1 &= ~(umx_ring_u64)1; /* the phase */
        describe(command, what, sizeof(what));
        (void)snprintf(ring->reason, sizeof(ring->reason),
                       "command %llu, %s: %s", (unsigned long long)number, what,
                       text);
    } else {
        (void)snprintf(ring->reason, sizeof(ring->reason), "%s", text);
    }
    atomic_store_explicit(&ring->has_error, true, memory_order_release);
    umx_ring_store_release(&ring->view.words->error,
                           (umx_ring_u64)(uint32_t)status |
                               (umx_ring_u64)(uint32_t)(rank + 1) << 32);
}

bool
umx_proxy_ring_get_error(const umx_proxy_ring *ring, umx_proxy_error *error)
{
    if (!atomic_load_explicit(&ring->has_error, memory_order_acquire)) {
        return false;
    }
    *error = ring->error;
    return true;
}

/* ---- making one ----------------------------------------------------------
 */

static umx_status
check_params(const umx_proxy_ring_params *params)
{
    unsigned capacity = params->capacity;

    if (capacity < 2 || capacity > CAPACITY_MAX ||
        (capacity & (capacity - 1)) != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    if ((params->field_mask & UMX_PROXY_RING_FIELD_KIND) != 0 &&
        (params->kind & ~(umx_ring_u32)UMX_RING_SEVERAL) != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    if ((params->field_mask & UMX_PROXY_RING_FIELD_IN_FLIGHT) != 0 &&
        (params->in_flight < 1 ||
         params->in_flight > UMX_PROXY_IN_FLIGHT_MAX)) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return UMX_OK;
}

/* Find the memory of the ring, or allocate it. */
static umx_status
get_memory(umx_proxy_ring *ring, const umx_proxy_ring_params *params,
           void **memory_p)
{
    size_t            size = UMX_RING_BYTES((size_t)params->capacity);
    const umx_buffer *buf;

    if ((params->field_mask & UMX_PROXY_RING_FIELD_MEMORY) == 0) {
        size         = (size + ALIGN - 1) / ALIGN * ALIGN;
        ring->memory = aligned_alloc(ALIGN, size);
        *memory_p    = ring->memory;
        return (ring->memory == NULL) ? UMX_ERR_NO_MEMORY : UMX_OK;
    }
    buf = umx_memh_buffer(params->memh);
    if (buf->memtype != UMX_MEMTYPE_HOST || ((uintptr_t)buf->data & 63) != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (buf->len < size) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    ring->memh = params->memh;
    umx_memh_hold(ring->memh);
    *memory_p = buf->data;
    return UMX_OK;
}

static void
wake(void *arg)
{
    umi_proxy_kick(((umx_proxy_ring *)arg)->proxy);
}

static umx_status
init_ring(umx_proxy_ring *ring, const umx_proxy_ring_params *params)
{
    uint64_t     mask  = params->field_mask;
    umx_ring_u32 kind  = ((mask & UMX_PROXY_RING_FIELD_KIND) != 0) ?
                             params->kind :
                             0;
    umx_ring_u64 first = ((mask & UMX_PROXY_RING_FIELD_FIRST) != 0) ?
                             params->first :
                             0;
    void        *memory;
    umx_status   status;

    ring->limit     = ((mask & UMX_PROXY_RING_FIELD_IN_FLIGHT) != 0) ?
                          params->in_flight :
                          UMX_PROXY_LATENCY;
    ring->is_device = (mask & UMX_PROXY_RING_FIELD_DEVICE) != 0 &&
                      params->is_device;
    ring->ops      = calloc(ring->limit, sizeof(*ring->ops));
    ring->num_puts = calloc((size_t)ring->proxy->joint.size, sizeof(uint32_t));
    if (ring->ops == NULL || ring->num_puts == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (unsigned i = 0; i < ring->limit; i++) {
        ring->ops[i].ring = ring;
        ring->ops[i].next = ring->unused;
        ring->unused      = &ring->ops[i];
    }
    status = get_memory(ring, params, &memory);
    if (status != UMX_OK) {
        return status;
    }
    if (!umi_proxy_can_fence()) {
        kind |= UMX_RING_FENCE;
    }
    umx_ring_init(&ring->view, memory,
                  (umx_ring_u32)__builtin_ctz(params->capacity), kind, first);
    ring->view.wake    = wake;
    ring->view.arg     = ring;
    ring->view.yield   = sched_yield;
    ring->view.forks   = &umi_proxy_forks;
    ring->view.made_in = umi_proxy_forks;
    ring->tail         = first;
    return UMX_OK;
}

/* Add the ring to those that the thread looks at. */
static void
add(umi_proxy_task *task, umx_status status)
{
    umx_proxy      *proxy = task->proxy;
    umx_proxy_ring *ring  = task->ring;

    if (status == UMX_OK && proxy->num_rings == proxy->max_rings) {
        size_t           max   = 2 * proxy->max_rings + 4;
        umx_proxy_ring **rings = realloc(proxy->rings, max * sizeof(*rings));

        status = (rings == NULL) ? UMX_ERR_NO_MEMORY : UMX_OK;
        if (rings != NULL) {
            proxy->rings     = rings;
            proxy->max_rings = max;
        }
    }
    if (status == UMX_OK) {
        proxy->rings[proxy->num_rings++] = ring;
        __atomic_store_n(&proxy->stats.rings, proxy->num_rings,
                         __ATOMIC_RELAXED);
    } else {
        umi_proxy_ring_fail(ring, status, -1, ring->tail, NULL,
                            (status == UMX_ERR_CLOSED) ?
                                umi_proxy_why_over(proxy, status) :
                                umx_status_string(status));
        umi_proxy_ring_put(ring);
    }
    umi_proxy_end_task(task, UMX_OK);
}

/* Forget the ring, unless the thread has ended and done so. */
static void
drop(umi_proxy_task *task, umx_status status)
{
    umx_proxy      *proxy = task->proxy;
    umx_proxy_ring *ring  = task->ring;

    umi_proxy_ring_fail(ring, UMX_ERR_CLOSED, -1, ring->tail, NULL,
                        "the ring has been given back");
    for (size_t i = 0; status == UMX_OK && i < proxy->num_rings; i++) {
        if (proxy->rings[i] == ring) {
            proxy->rings[i] = proxy->rings[--proxy->num_rings];
            __atomic_store_n(&proxy->stats.rings, proxy->num_rings,
                             __ATOMIC_RELAXED);
            umi_proxy_ring_put(ring);
            break;
        }
    }
    umi_proxy_ring_put(ring); /* the task's */
    umi_proxy_end_task(task, UMX_OK);
}

umx_status
umx_proxy_ring_create(umx_proxy *proxy, const umx_proxy_ring_params *params,
                      umx_proxy_ring **ring_p)
{
    UMX_LAYER_LOCK(umi_proxy_is_forked(proxy) ? NULL : proxy->joint.worker);
    umx_status      status = umi_proxy_check(proxy);
    umx_proxy_ring *ring;
    umi_proxy_task *task;

    if (status == UMX_OK) {
        status = check_params(params);
    }
    if (status != UMX_OK) {
        return status;
    }
    ring = calloc(1, sizeof(*ring));
    if (ring == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_shared_refs_init(&ring->refs);
    umi_proxy_hold(proxy);
    ring->proxy = proxy;
    status      = init_ring(ring, params);
    task = (status == UMX_OK) ? umi_proxy_task_new(proxy, add, NULL, NULL) :
                                NULL;
    if (task == NULL) {
        umi_proxy_ring_put(ring);
        return (status == UMX_OK) ? UMX_ERR_NO_MEMORY : status;
    }
    task->ring = ring;
    umi_proxy_ring_hold(ring); /* the thread's */
    status = umi_proxy_post(task);
    if (status != UMX_OK) {
        umi_proxy_task_free(task);
        umi_proxy_ring_put(ring);
        umi_proxy_ring_put(ring);
        return status;
    }
    *ring_p = ring;
    return UMX_OK;
}

void
umx_proxy_ring_destroy(umx_proxy_ring *ring)
{
    umi_proxy_task *task;

    if (umi_proxy_is_forked(ring->proxy)) {
        return;
    }
    task = umi_proxy_task_new(ring->proxy, drop, NULL, NULL);
    if (task != NULL) {
        task->ring = ring;
        if (umi_proxy_post(task) == UMX_OK) {
            return;
        }
        umi_proxy_task_free(task);
    }
    umi_proxy_ring_put(ring); /* it goes with the proxy */
}

/* ---- what others see -----------------------------------------------------
 */

const umx_ring *
umx_proxy_ring_get(const umx_proxy_ring *ring)
{
    return &ring->view;
}

void
umx_proxy_ring_query(const umx_proxy_ring *ring, umx_proxy_ring_stats *stats)
{
    const uint64_t *from = &ring->stats.puts;
    uint64_t       *to   = &stats->puts;

    for (size_t i = 0; i < sizeof(*stats) / sizeof(*to); i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
}
