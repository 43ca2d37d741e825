/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/wait.h"

#include <stdlib.h>
#include <string.h>

#include "mem/memtype.h"
#include "util/log.h"
#include "util/membarrier.h"

/* Conditions of one request. */
typedef struct wait_many {
    uint8_t      *seen; /* the caller's */
    size_t        left; /* to be seen yet */
    size_t        count;
    umx_condition until[];
} wait_many;

typedef struct umi_wait {
    umi_waiter waiter;
    wait_many *many; /* NULL: what follows is the condition */
    uint64_t   value;
    uint8_t    cmp; /* umx_cmp */
    uint8_t    size;
    bool       is_announced;
} umi_wait;

UMI_REQUEST_TAIL(umi_wait, wait_of);

struct umx_lookout {
    umi_node    node; /* worker->lookouts */
    umi_wait    wait; /* its number is none */
    umx_memh   *memh; /* held */
    umx_look_fn fn;
    void       *arg;
};

/* ---- the number ----------------------------------------------------------
 */

static bool
compare(uint64_t number, unsigned cmp, uint64_t value)
{
    switch ((umx_cmp)cmp) {
    case UMX_CMP_EQ:
        return number == value;
    case UMX_CMP_NE:
        return number != value;
    case UMX_CMP_GT:
        return number > value;
    case UMX_CMP_GE:
        return number >= value;
    case UMX_CMP_LT:
        return number < value;
    case UMX_CMP_LE:
        return number <= value;
    }
    return false;
}

static bool
is_true(const void *address, unsigned cmp, unsigned size, uint64_t value)
{
    return (size == 4) ? compare(__atomic_load_n((const uint32_t *)address,
                                                 __ATOMIC_SEQ_CST),
                                 cmp, (uint32_t)value) :
                         compare(__atomic_load_n((const uint64_t *)address,
                                                 __ATOMIC_SEQ_CST),
                                 cmp, value);
}

/* Note it if a condition that is waited for is true now. */
static bool
is_seen_now(const umx_condition *until, const char *data, uint8_t *seen)
{
    if (*seen != 0 ||
        !is_true(data + until->offset, until->cmp, until->size, until->value)) {
        return false;
    }
    *seen = 1;
    return true;
}

/* Note what is true of the conditions in the memory at `data`. True: it is
 * enough. */
static bool
look_at_many(wait_many *many, const char *data)
{
    for (size_t i = 0; i < many->count && many->left != 0; i++) {
        many->left -= is_seen_now(&many->until[i], data, &many->seen[i]);
    }
    return many->left == 0;
}

/* UMX_INPROGRESS: wait on. */
static umx_status
look(const umx_request *req)
{
    const umi_wait *wait = wait_of(req);
    const void     *data = req->buf.data;

    if ((wait->many != NULL) ?
            look_at_many(wait->many, data) :
            is_true(data, wait->cmp, wait->size, wait->value)) {
        return UMX_OK;
    }
    return umi_memh_is_closed(req->buf.memh) ? UMX_ERR_STALE_KEY :
                                               UMX_INPROGRESS;
}

/* ---- announcements -------------------------------------------------------
 */

/* Count the wait in `waiters`: as one announcement more, and as one that is not
 * withdrawn. True: a membarrier must follow, since peers may store unfenced. */
static bool
announce(umi_wait *wait, umx_memh *memh)
{
    if (!wait->is_announced) {
        atomic_fetch_add_explicit(memh->waiters,
                                  (UINT64_C(1) << UMI_WAITERS_BITS) + 1,
                                  memory_order_seq_cst);
        wait->is_announced = true;
    }
    return atomic_load_explicit(&memh->is_ordered, memory_order_relaxed);
}

static void
withdraw(umi_wait *wait, umx_memh *memh)
{
    if (wait->is_announced) {
        wait->is_announced = false;
        atomic_fetch_sub_explicit(memh->waiters, 1, memory_order_seq_cst);
    }
}

/* ---- the end -------------------------------------------------------------
 */

static void
end_wait(umx_request *req, umx_status status)
{
    withdraw(wait_of(req), req->buf.memh);
    umi_waiters_remove(req->worker->context, &wait_of(req)->waiter);
    free(wait_of(req)->many);
    wait_of(req)->many = NULL;
    umi_request_complete(req, status);
}

static void
cancel(umx_request *req)
{
    end_wait(req, UMX_ERR_CANCELED);
}

static const umi_request_ops wait_ops = {.name = "wait", .cancel = cancel};

static bool
end_if_over(umx_request *req)
{
    umx_status status = look(req);

    if (status == UMX_INPROGRESS) {
        return false;
    }
    end_wait(req, status);
    return true;
}

/* A worker that polls withdraws, and is not to sleep as it is. */
static void
wake_up(umx_worker *worker, umi_wait *wait, umx_memh *memh)
{
    if (wait->is_announced) {
        withdraw(wait, memh);
        worker->is_armed = false;
    }
}

/* Let the lookouts look. One may stop any other, so they are taken one by one.
 */
static bool
look_out(umx_worker *worker, bool is_awake)
{
    umi_list all;
    bool     is_any_new = false;

    umi_list_init(&all);
    umi_list_splice(&all, &worker->lookouts);
    while (!umi_list_is_empty(&all)) {
        umx_lookout *lookout = umi_container_of(all.next, umx_lookout, node);

        umi_node_remove(&lookout->node);
        umi_list_append(&worker->lookouts, &lookout->node);
        if (is_awake) {
            wake_up(worker, &lookout->wait, lookout->memh);
        }
        is_any_new |= lookout->fn(lookout->arg);
    }
    return is_any_new;
}

bool
umi_waits_look(umx_worker *worker)
{
    bool is_any_over = look_out(worker, true);

    UMI_LIST_FOREACH_SAFE(node, &worker->waits) {
        umx_request *req = umi_container_of(node, umx_request, node);

        wake_up(worker, wait_of(req), req->buf.memh);
        is_any_over |= end_if_over(req);
    }
    return is_any_over;
}

/* True: some of the memories need a membarrier. */
static bool
announce_all(umx_worker *worker)
{
    bool is_any_ordered = false;

    UMI_LIST_FOREACH(node, &worker->waits) {
        umx_request *req = umi_container_of(node, umx_request, node);

        is_any_ordered |= announce(wait_of(req), req->buf.memh);
    }
    UMI_LIST_FOREACH(node, &worker->lookouts) {
        umx_lookout *lookout = umi_container_of(node, umx_lookout, node);

        is_any_ordered |= announce(&lookout->wait, lookout->memh);
    }
    return is_any_ordered;
}

/* A process that once could execute membarriers and is no longer allowed to
 * stays awake: peers rely on them. */
static bool
execute_membarrier(void)
{
    static atomic_bool is_told;

    if (umi_membarrier_fence()) {
        return true;
    }
    if (!atomic_exchange(&is_told, true)) {
        umi_log(UMI_LOG_WARN,
                "the system refuses membarrier() now: who waits for memory "
                "polls, and uses a whole processor");
    }
    return false;
}

bool
umi_waits_announce(umx_worker *worker)
{
    bool is_any_over = announce_all(worker) && !execute_membarrier();

    atomic_thread_fence(memory_order_seq_cst);
#ifndef UMI_WITHOUT_SECOND_LOOK /* for the test that fails without it */
    is_any_over |= look_out(worker, false);
    UMI_LIST_FOREACH_SAFE(node, &worker->waits) {
        is_any_over |= end_if_over(umi_container_of(node, umx_request, node));
    }
#endif
    return is_any_over;
}

void
umi_waits_abort(umx_worker *worker)
{
    UMI_LIST_FOREACH_SAFE(node, &worker->waits) {
        end_wait(umi_container_of(node, umx_request, node), UMX_ERR_CANCELED);
    }
}

/* ---- public --------------------------------------------------------------
 */

static umx_status
check_number(const umx_memh *memh, const umx_condition *until)
{
    const umx_buffer *buf = umx_memh_buffer(memh);

    if ((unsigned)until->cmp > UMX_CMP_LE ||
        (until->size != 4 && until->size != 8) ||
        ((uintptr_t)buf->data + until->offset) % until->size != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (until->offset > buf->len || until->size > buf->len - until->offset) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return umi_memtype_is_host_readable(buf) ? UMX_OK : UMX_ERR_UNSUPPORTED;
}

static umx_status
check(const umx_worker *worker, const umx_memh *memh,
      const umx_condition *until, size_t count)
{
    umx_status status = umi_worker_check(worker);

    if (status != UMX_OK) {
        return status;
    }
    if (worker->is_ending) {
        return UMX_ERR_CLOSED;
    }
    status = (memh->context == worker->context) ? UMX_OK :
                                                  UMX_ERR_INVALID_PARAM;
    for (size_t i = 0; i < count && status == UMX_OK; i++) {
        status = check_number(memh, &until[i]);
    }
    if (status == UMX_OK && umi_memh_is_closed(memh)) {
        status = UMX_ERR_STALE_KEY;
    }
    return status;
}

static void *
number_of(const umx_memh *memh, const umx_condition *until)
{
    return (char *)umx_memh_buffer(memh)->data + until->offset;
}

umx_status
umx_memh_test(umx_memh *memh, const umx_condition *until)
{
    umx_status status = check_number(memh, until);

    if (status != UMX_OK) {
        return status;
    }
    if (umi_memh_is_closed(memh)) {
        return UMX_ERR_STALE_KEY;
    }
    return is_true(number_of(memh, until), until->cmp, until->size,
                   until->value) ?
               UMX_OK :
               UMX_INPROGRESS;
}

/* Have `worker` woken once the memory is stored to. False: it is closed. */
static bool
enlist(umi_wait *wait, umx_worker *worker, const umx_memh *memh)
{
    wait->waiter = (umi_waiter){
        .memory = memh->number, .worker = worker, .wake = umx_worker_signal};
    umi_node_init(&wait->waiter.node);
    return umi_waiters_add(memh->context, &wait->waiter, &memh->is_closed);
}

/* Begin a wait, which `wait` describes. It takes `wait->many` over, whatever is
 * returned. */
static umx_status
begin(umx_worker *worker, umx_memh *memh, const umx_buffer *buf,
      const umi_wait *wait, const umx_op_params *params, umx_request **req_p)
{
    umx_request *req    = umi_request_new(worker, NULL, &wait_ops, params);
    umx_status   status = UMX_ERR_NO_MEMORY;

    if (req == NULL) {
        goto free_many;
    }
    req->info     = (umx_recv_info){0};
    *wait_of(req) = *wait;
    umi_request_hold_buffer(req, buf);
    if (!enlist(wait_of(req), worker, memh)) {
        status = UMX_ERR_STALE_KEY;
        goto free_request;
    }
    umi_list_append(&worker->waits, &req->node);
    worker->is_armed = false; /* it was armed without this wait */
    *req_p           = req;
    return UMX_INPROGRESS;

free_request:
    umi_request_free(req);
free_many:
    free(wait->many);
    return status;
}

umx_status
umx_memh_wait_until(umx_worker *worker, umx_memh *memh,
                    const umx_condition *until, const umx_op_params *params,
                    umx_request **req_p)
{
    UMI_GUARD(worker);
    umx_status status = check(worker, memh, until, 1);
    umx_buffer number = {.len = until->size, .memh = memh};
    umi_wait   wait   = {.value = until->value,
                         .cmp   = (uint8_t)until->cmp,
                         .size  = (uint8_t)until->size};

    if (status != UMX_OK) {
        return status;
    }
    number.data = number_of(memh, until);
    if (is_true(number.data, until->cmp, until->size, until->value)) {
        return UMX_OK;
    }
    return begin(worker, memh, &number, &wait, params, req_p);
}

/* Look at all of the conditions: how many that are waited for are not true? */
static size_t
count_untrue(const umx_memh *memh, const umx_conditions *conditions,
             size_t *num_seen_p)
{
    const char *data       = umx_memh_buffer(memh)->data;
    size_t      num_untrue = 0;

    *num_seen_p = 0;
    for (size_t i = 0; i < conditions->count; i++) {
        uint8_t *seen = &conditions->seen[i];

        if (is_seen_now(&conditions->until[i], data, seen)) {
            (*num_seen_p)++;
        } else {
            num_untrue += *seen == 0;
        }
    }
    return num_untrue;
}

/* NULL: out of memory. */
static wait_many *
new_many(const umx_conditions *conditions, size_t left)
{
    size_t     size = conditions->count * sizeof(umx_condition);
    wait_many *many = malloc(sizeof(*many) + size);

    if (many != NULL) {
        many->seen  = conditions->seen;
        many->left  = left;
        many->count = conditions->count;
        memcpy(many->until, conditions->until, size);
    }
    return many;
}

umx_status
umx_memh_wait_until_many(umx_worker *worker, umx_memh *memh,
                         const umx_conditions *conditions,
                         const umx_op_params *params, umx_request **req_p)
{
    UMI_GUARD(worker);
    umx_status status = check(worker, memh, conditions->until,
                              conditions->count);
    umx_buffer all    = *umx_memh_buffer(memh);
    umi_wait   wait   = {.many = NULL};
    size_t     num_seen, num_untrue, left;

    if (status != UMX_OK) {
        return status;
    }
    num_untrue = count_untrue(memh, conditions, &num_seen);
    if (num_untrue == 0 || num_seen >= conditions->at_least) {
        return UMX_OK;
    }
    left      = conditions->at_least - num_seen;
    wait.many = new_many(conditions, (left < num_untrue) ? left : num_untrue);
    if (wait.many == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    all.memh = memh;
    return begin(worker, memh, &all, &wait, params, req_p);
}

/* ---- lookouts ------------------------------------------------------------
 */

umx_status
umx_lookout_start(umx_worker *worker, umx_memh *memh, umx_look_fn fn, void *arg,
                  umx_lookout **lookout_p)
{
    UMI_GUARD(worker);
    umx_lookout *lookout = malloc(sizeof(*lookout));

    if (lookout == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    lookout->wait = (umi_wait){.many = NULL};
    lookout->memh = memh;
    lookout->fn   = fn;
    lookout->arg  = arg;
    if (!enlist(&lookout->wait, worker, memh)) {
        free(lookout);
        return UMX_ERR_STALE_KEY;
    }
    umi_memh_hold(memh);
    umi_list_append(&worker->lookouts, &lookout->node);
    worker->is_armed = false; /* it was armed without this lookout */
    *lookout_p       = lookout;
    return UMX_OK;
}

void
umx_lookout_stop(umx_lookout *lookout)
{
    UMI_GUARD(lookout->wait.waiter.worker);

    withdraw(&lookout->wait, lookout->memh);
    umi_waiters_remove(lookout->memh->context, &lookout->wait.waiter);
    umi_node_remove(&lookout->node);
    umi_memh_put(lookout->memh);
    free(lookout);
}
