/* SPDX-License-Identifier: BSD-3-Clause */
/* take.c: commands are taken off a ring, in their order.
 *
 * A put or signal is retired once libumx has it; `in_flight` counts those that
 * have not ended. A quiet or barrier stays at the front of the ring until it is
 * over, and what is behind it waits. */
#include <stdio.h>
#include <string.h>
#include <umx/buffer.h>
#include <umx/collective.h>
#include <umx/wait.h>

#include "proxy/proxy.h"
#include "util/atomic.h"

enum {
    BATCH    = 32, /* commands of a ring, before others are looked at */
    PER_LINE = 4,  /* commands in a line of the cache */
    AHEAD    = 16
};

#define GROUP_LABEL                                           \
    UINT64_C(0x70756f7267000000) /* of a derived communicator \
                                  */

/* A command, taken apart. */
typedef struct fields {
    unsigned op;
    unsigned flags;
    unsigned dst;
    unsigned region;
    uint64_t bytes;
    uint64_t local; /* of a signal: the value */
    uint64_t remote;
} fields;

static inline fields
take_apart(const umx_ring_command *command)
{
    fields f = {
        .op     = command->w0 & 15,
        .flags  = command->w0 >> 4 & 15,
        .dst    = command->w0 >> 8 & 0xffff,
        .region = command->w0 >> 24 & 0xff,
        .bytes  = command->w0 >> 32,
        .local  = command->w1 >> 1 & 0x7fffffff,
        .remote = command->w1 >> 32,
    };

    if (f.op == UMX_RING_SIGNAL) {
        f.remote *= 8;
    } else {
        f.local *= 16;
        f.remote *= 16;
    }
    return f;
}

static inline void
count(uint64_t *number, uint64_t by)
{
    __atomic_store_n(number, *number + by, __ATOMIC_RELAXED);
}

/* ---- errors --------------------------------------------------------------
 */

static umx_status
refuse(umx_proxy_ring *ring, const umx_ring_command *command, umx_status status,
       const char *text)
{
    umi_proxy_ring_fail(ring, status, -1, ring->tail, command, text);
    return status;
}

/* libumx has refused, or ended, what concerns a rank. */
static void
fail_at_rank(umx_proxy_ring *ring, umx_status status, umx_ring_u64 number,
             const umx_ring_command *command)
{
    int         rank = (int)(command->w0 >> 8 & 0xffff);
    const char *why  = (status == UMX_ERR_STALE_KEY) ?
                           "it has ended, or has closed its memory" :
                           umx_status_string(status);
    char        text[96];

    (void)snprintf(text, sizeof(text), "rank %d: %s", rank, why);
    umi_proxy_ring_fail(ring, status, rank, number, command, text);
}

/* ---- what is under way ---------------------------------------------------
 */

static void
begin_one(umx_proxy_ring *ring)
{
    if (ring->in_flight++ == 0) {
        umi_proxy_ring_hold(ring); /* until nothing is under way */
    }
    __atomic_store_n(&ring->stats.in_flight, ring->in_flight, __ATOMIC_RELAXED);
    if (ring->in_flight > ring->stats.in_flight_peak) {
        __atomic_store_n(&ring->stats.in_flight_peak, ring->in_flight,
                         __ATOMIC_RELAXED);
    }
}

static void
end_one(umx_proxy_ring *ring)
{
    ring->in_flight--;
    __atomic_store_n(&ring->stats.in_flight, ring->in_flight, __ATOMIC_RELAXED);
    if (ring->in_flight == 0) {
        umi_proxy_ring_put(ring);
    }
}

static void
on_op_done(umx_request *req, umx_status status, void *arg)
{
    umi_proxy_op   *op   = arg;
    umx_proxy_ring *ring = op->ring;

    (void)req;
    if (status != UMX_OK) {
        fail_at_rank(ring, status, op->number, &op->command);
    }
    if ((op->command.w0 & 15) == UMX_RING_PUT) {
        ring->num_puts[op->command.w0 >> 8 & 0xffff]--;
    }
    op->next     = ring->unused;
    ring->unused = op;
    end_one(ring);
}

static void
on_op_lost(umx_request *req, umx_status status, void *arg)
{
    umi_proxy_op *op = arg;

    (void)req;
    fail_at_rank(op->ring, status, op->number, &op->command);
}

/* Parameters of an operation that ends `ring->unused`. */
static inline umx_op_params
op_params(const umx_proxy_ring *ring)
{
    return (umx_op_params){
        .field_mask = UMX_OP_FIELD_ON_DONE | UMX_OP_FIELD_ON_LOST,
        .on_done    = on_op_done,
        .on_lost    = on_op_lost,
        .arg        = ring->unused,
    };
}

/* An operation was posted. */
static umx_status
posted(umx_proxy_ring *ring, const umx_ring_command *command, const fields *f,
       umx_status status)
{
    umi_proxy_op *op = ring->unused;

    if (status == UMX_OK) {
        return UMX_OK;
    }
    if (status != UMX_INPROGRESS) {
        fail_at_rank(ring, status, ring->tail, command);
        return status;
    }
    ring->unused = op->next;
    op->number   = ring->tail;
    op->command  = *command;
    if (f->op == UMX_RING_PUT) {
        ring->num_puts[f->dst]++;
    }
    begin_one(ring);
    return UMX_OK;
}

/* ---- puts and signals ----------------------------------------------------
 */

/* The entry of a command to a rank that has memory in its region. NULL: the
 * ring has ended. */
static umi_proxy_entry *
find_entry(umx_proxy_ring *ring, const umx_ring_command *command,
           const fields *f)
{
    umx_proxy       *proxy = ring->proxy;
    umi_proxy_entry *entry = proxy->entries[f->region];
    char             text[96];
    uint64_t         len;

    if (entry == NULL) {
        (void)snprintf(text, sizeof(text), "there is no region %u", f->region);
    } else if (f->dst >= (unsigned)proxy->joint.size) {
        (void)snprintf(text, sizeof(text), "there is no rank %u: there are %d",
                       f->dst, proxy->joint.size);
    } else {
        len = umx_region_length(entry->region, (int)f->dst);
        if (f->remote <= len && f->bytes <= len - f->remote &&
            (f->op == UMX_RING_PUT || len - f->remote >= 8)) {
            return entry;
        }
        (void)snprintf(text, sizeof(text), "rank %u has %llu bytes there",
                       f->dst, (unsigned long long)len);
    }
    (void)refuse(ring, command, UMX_ERR_OUT_OF_RANGE, text);
    return NULL;
}

/* The bytes that a put reads. */
static umx_status
find_source(umx_proxy_ring *ring, const umi_proxy_entry *entry,
            const umx_ring_command *command, const fields *f, umx_buffer *buf)
{
    const umx_memh *source = entry->source;
    char            text[96];
    size_t          len = 0;

    if (source != NULL) {
        *buf = *umx_memh_buffer(source);
        len  = buf->len;
    }
    if (f->local > len || f->bytes > len - f->local) {
        (void)snprintf(text, sizeof(text),
                       "this rank's puts read from %zu bytes there", len);
        return refuse(ring, command, UMX_ERR_OUT_OF_RANGE, text);
    }
    if (source != NULL) {
        buf->data = (char *)buf->data + f->local;
    }
    buf->len = f->bytes;
    return UMX_OK;
}

/* Is this rank's own memory still open, as that of others would have to be? */
static umx_status
check_here(umx_proxy_ring *ring, const umi_proxy_entry *entry,
           const umx_ring_command *command)
{
    if (!umx_memh_is_closed(entry->memh)) {
        return UMX_OK;
    }
    fail_at_rank(ring, UMX_ERR_STALE_KEY, ring->tail, command);
    return UMX_ERR_STALE_KEY;
}

static bool
do_overlap(const umx_buffer *a, const umx_buffer *b)
{
    const char *first = a->data, *second = b->data;

    return first < second + b->len && second < first + a->len;
}

/* Copy between memories of this rank, of the host or of devices. */
static umx_status
put_here(umx_proxy_ring *ring, const umi_proxy_entry *entry,
         const umx_ring_command *command, const fields *f, umx_buffer *from)
{
    umx_buffer to     = *umx_memh_buffer(entry->memh);
    umx_status status = check_here(ring, entry, command);

    if (status != UMX_OK) {
        return status;
    }
    to.data = (char *)to.data + f->remote;
    to.len  = f->bytes;
    if (from->memtype != UMX_MEMTYPE_CUDA && to.memtype != UMX_MEMTYPE_CUDA) {
        memmove(to.data, from->data, f->bytes);
    } else if (do_overlap(&to, from)) {
        return refuse(ring, command, UMX_ERR_INVALID_PARAM,
                      "a put in memory of a device onto the bytes it reads");
    } else {
        status = umx_buffer_copy(&to, from);
    }
    if (status != UMX_OK) {
        return refuse(ring, command, status, umx_status_string(status));
    }
    umx_memh_notify(entry->memh);
    return UMX_OK;
}

static umx_status
begin_put(umx_proxy_ring *ring, const umx_ring_command *command,
          const fields *f)
{
    umi_proxy_entry *entry = find_entry(ring, command, f);
    umx_op_params    params;
    umx_rma_item     item = {.offset = f->remote};
    umx_request     *req;
    umx_status       status;

    if (entry == NULL) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    status = find_source(ring, entry, command, f, &item.buf);
    if (status != UMX_OK) {
        return status;
    }
    count(&ring->stats.puts, 1);
    count(&ring->stats.bytes, f->bytes);
    if (f->bytes == 0) {
        return UMX_OK;
    }
    if (entry->targets[f->dst].rkey == NULL) {
        return put_here(ring, entry, command, f, &item.buf);
    }
    params = op_params(ring);
    return posted(
        ring, command, f,
        umx_rma_put(entry->targets[f->dst].rkey, &item, &params, &req));
}

static umx_status
signal_here(umx_proxy_ring *ring, const umi_proxy_entry *entry,
            const umx_ring_command *command, const umx_atomic *atomic)
{
    const umx_buffer *buf    = umx_memh_buffer(entry->memh);
    umx_status        status = check_here(ring, entry, command);

    if (status != UMX_OK) {
        return status;
    }
    if (buf->memtype != UMX_MEMTYPE_HOST) {
        return refuse(ring, command, UMX_ERR_UNSUPPORTED,
                      "a signal to a device of the same rank");
    }
    (void)umi_atomic_apply(atomic, (char *)buf->data + atomic->offset);
    umx_memh_notify(entry->memh);
    return UMX_OK;
}

static umx_status
begin_signal(umx_proxy_ring *ring, const umx_ring_command *command,
             const fields *f)
{
    umi_proxy_entry        *entry = find_entry(ring, command, f);
    const umi_proxy_target *target;
    umx_op_params           params;
    umx_atomic              atomic = {.op   = ((f->flags & UMX_RING_SET) != 0) ?
                                                  UMX_ATOMIC_SWAP :
                                                  UMX_ATOMIC_ADD,
                                      .size = 8,
                                      .offset = f->remote,
                                      .value  = f->local};
    umx_request            *req;
    umx_status              status;

    if (entry == NULL) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    count(&ring->stats.signals, 1);
    target = &entry->targets[f->dst];
    if (target->rkey == NULL) {
        return signal_here(ring, entry, command, &atomic);
    }
    if (ring->num_puts[f->dst] != 0) {
        count(&ring->stats.fences, 1);
        status = umx_ep_fence(target->ep);
        if (status != UMX_OK) {
            fail_at_rank(ring, status, ring->tail, command);
            return status;
        }
    }
    params = op_params(ring);
    return posted(ring, command, f,
                  umx_rma_atomic(target->rkey, &atomic, NULL, &params, &req));
}

/* ---- barriers ------------------------------------------------------------
 */

static umx_ring_command *
front(const umx_proxy_ring *ring)
{
    return &ring->view.commands[ring->tail & ring->view.mask];
}

static unsigned
group_of(const umx_ring_command *command)
{
    return command->w0 >> 24 & 0xff;
}

/* Has `comm`, which may be NULL, failed? */
static bool
has_failed(const umx_comm *comm, umx_comm_failure *failure)
{
    return comm != NULL && umx_comm_get_failure(comm, failure);
}

/* The barrier has failed: its communicator says which rank, or the proxy's. */
static void
fail_barrier(umx_proxy_ring *ring, umx_status status)
{
    const umx_proxy  *proxy   = ring->proxy;
    umx_ring_command *command = front(ring);
    const umx_comm   *group   = proxy->groups[group_of(command)];
    const umx_comm   *comm    = NULL;
    umx_comm_failure  failure = {.rank = -1};

    if (has_failed(group, &failure)) {
        comm = group;
    } else if (has_failed(proxy->comm, &failure)) {
        comm = proxy->comm;
    }
    if (!ring->is_ended && comm != NULL) {
        ring->error.cause = failure.cause;
    }
    umi_proxy_ring_fail(ring, status, failure.rank, ring->tail, command,
                        (comm == NULL) ? umx_status_string(status) :
                                         umx_comm_reason(comm));
}

static void
on_barrier(umx_request *req, umx_status status, void *arg)
{
    umx_proxy_ring *ring = arg;

    (void)req;
    if (status == UMX_OK) {
        ring->held = UMI_PROXY_PASSED;
    } else {
        fail_barrier(ring, status);
    }
    end_one(ring);
}

/* Nothing of the ring is under way: begin the barrier. */
static void
begin_barrier(umx_proxy_ring *ring)
{
    umx_proxy    *proxy  = ring->proxy;
    unsigned      group  = group_of(front(ring));
    umx_op_params params = umx_layer_op_params(on_barrier, ring);
    umx_request  *req;
    umx_status    status = UMX_OK;

    if (proxy->groups[group] == NULL) {
        status = umx_comm_derive(proxy->comm, GROUP_LABEL + group,
                                 &proxy->groups[group]);
    }
    if (status == UMX_OK) {
        status = umx_barrier(proxy->groups[group], &params, &req);
    }
    if (status == UMX_INPROGRESS) {
        ring->held = UMI_PROXY_BARRIER;
        begin_one(ring);
    } else if (status == UMX_OK) {
        ring->held = UMI_PROXY_PASSED;
    } else {
        fail_barrier(ring, status);
    }
}

/* ---- commands ------------------------------------------------------------
 */

/* Is the command at the front, which the ring waits for, over? */
static bool
go_on(umx_proxy_ring *ring)
{
    switch (ring->held) {
    case UMI_PROXY_QUIET:
        if (ring->in_flight != 0) {
            return false;
        }
        break;
    case UMI_PROXY_ARRIVE:
        if (ring->in_flight == 0) {
            begin_barrier(ring);
        }
        if (ring->held != UMI_PROXY_PASSED || ring->is_ended) {
            return false;
        }
        break;
    case UMI_PROXY_BARRIER:
        return false;
    case UMI_PROXY_PASSED:
    case UMI_PROXY_FREE:
        break;
    }
    ring->held = UMI_PROXY_FREE;
    ring->tail++;
    return true;
}

/* Returns UMX_OK: it is over, or under way; UMX_INPROGRESS: it is held. */
static umx_status
begin(umx_proxy_ring *ring, const umx_ring_command *command)
{
    fields f;

    switch (command->w0 & 15) {
    case UMX_RING_PUT:
        f = take_apart(command);
        return begin_put(ring, command, &f);
    case UMX_RING_SIGNAL:
        f = take_apart(command);
        return begin_signal(ring, command, &f);
    case UMX_RING_NOP:
        count(&ring->stats.nops, 1);
        return UMX_OK;
    case UMX_RING_QUIET:
        count(&ring->stats.quiets, 1);
        ring->held = (ring->in_flight == 0) ? UMI_PROXY_FREE : UMI_PROXY_QUIET;
        return (ring->in_flight == 0) ? UMX_OK : UMX_INPROGRESS;
    case UMX_RING_BARRIER:
        count(&ring->stats.barriers, 1);
        ring->held = UMI_PROXY_ARRIVE;
        return UMX_INPROGRESS;
    case UMX_RING_INVALID:
        return refuse(ring, command, UMX_ERR_INVALID_PARAM,
                      "an offset is no multiple of 16 or too large, or a value "
                      "2**31 or more");
    default:
        return refuse(ring, command, UMX_ERR_INVALID_PARAM,
                      "there is no such operation");
    }
}

/* Fetch commands that are to come next: where several have been found there are
 * more, and the producer has left their cache lines. */
static inline void
fetch_ahead(const umx_proxy_ring *ring)
{
    umx_ring_u64 ahead = ring->tail + AHEAD;

    if (ring->tail % PER_LINE == 0) {
        __builtin_prefetch(&ring->view.commands[ahead & ring->view.mask]);
    }
}

static inline bool
is_written(const umx_proxy_ring *ring, umx_ring_command *command)
{
    const umx_ring_command *place =
        &ring->view.commands[ring->tail & ring->view.mask];

    command->w1 = umx_ring_load_acquire(&place->w1);
    if ((command->w1 & 1) != umx_ring_phase(&ring->view, ring->tail)) {
        return false;
    }
    command->w0 = __atomic_load_n(&place->w0, __ATOMIC_RELAXED);
    return true;
}

/* Note, once, that the limit makes a command wait. */
static void
stall(umx_proxy_ring *ring)
{
    umx_ring_command command;

    if (!ring->is_stalled && is_written(ring, &command)) {
        ring->is_stalled = true;
        count(&ring->stats.stalls, 1);
    }
}

/* How many commands may begin now at most. */
static unsigned
batch(const umx_proxy_ring *ring)
{
    if (ring->has_hold && ring->hold - ring->tail < BATCH) {
        return (unsigned)(ring->hold - ring->tail);
    }
    return BATCH;
}

unsigned
umi_proxy_ring_take(umx_proxy_ring *ring)
{
    unsigned     num    = 0, max;
    umx_ring_u64 before = ring->tail;

    if (ring->is_ended || (ring->held != UMI_PROXY_FREE && !go_on(ring))) {
        return 0;
    }
    for (max = batch(ring); num < max; num++) {
        umx_ring_command command;

        if (ring->in_flight >= ring->limit) {
            stall(ring);
            break;
        }
        if (!is_written(ring, &command) || begin(ring, &command) != UMX_OK) {
            break;
        }
        ring->is_stalled = false;
        ring->tail++;
        if (num >= PER_LINE) {
            fetch_ahead(ring);
        }
    }
    if (ring->tail != before) {
        umx_ring_store_release(&ring->view.words->retired, ring->tail);
    }
    return (unsigned)(ring->tail - before);
}

bool
umi_proxy_ring_is_ready(const umx_proxy_ring *ring)
{
    umx_ring_command command;

    if (ring->is_ended) {
        return false;
    }
    switch (ring->held) {
    case UMI_PROXY_QUIET:
    case UMI_PROXY_ARRIVE:
        return ring->in_flight == 0;
    case UMI_PROXY_BARRIER:
        return false;
    case UMI_PROXY_PASSED:
        return true;
    case UMI_PROXY_FREE:
        break;
    }
    return ring->in_flight < ring->limit && batch(ring) != 0 &&
           is_written(ring, &command);
}

bool
umi_proxy_ring_is_idle(const umx_proxy_ring *ring)
{
    umx_ring_command command;

    if (ring->is_ended) {
        return true;
    }
    return ring->held == UMI_PROXY_FREE && ring->in_flight == 0 &&
           ((ring->has_end && ring->tail == ring->end) ||
            !is_written(ring, &command));
}
