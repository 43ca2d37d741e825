/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/dma.h"
#include "worker/listener.h"
#include "worker/link.h"
#include "worker/observe.h"
#include "worker/parked.h"
#include "worker/rkey.h"
#include "host/socket.h"
#include "worker/wait.h"
#include "util/clock.h"
#include "util/count.h"
#include "util/hash.h"
#include "util/latency.h"
#include "util/log.h"

/* How long umx_worker_destroy() waits for UCX to hand buffers back, in all and
 * while nothing comes, and before that for messages that say why it ends. */
enum {
    DESTROY_GRACE_MS = 2000,
    SILENCE_MS       = 200,
    BUSY_GRACE_MS    = 100
};

static void
init_lists(umx_worker *worker, const umi_worker_hooks *hooks)
{
    umi_list_init(&worker->done);
    umi_list_init(&worker->detached);
    umi_list_init(&worker->put_off);
    umi_list_init(&worker->put_off_done);
    umi_list_init(&worker->ep_events);
    umi_list_init(&worker->gathered);
    umi_list_init(&worker->waits);
    umi_list_init(&worker->lookouts);
    umi_dma_init(worker);
    umi_list_init(&worker->dependents);
    umi_list_init(&worker->links);
    umi_list_init(&worker->ending_links);
    umi_list_init(&worker->eps);
    umi_list_init(&worker->listeners);
    umi_list_init(&worker->timers);
    umi_list_init(&worker->rkeys);
    umi_list_init(&worker->other_engines);
    umi_list_init(&worker->stuck);
    umi_list_init(&worker->inflight);
    umi_list_init(&worker->waiting);
    umi_node_init(&worker->parked_node);
    umi_mpsc_init(&worker->retired);
    umi_ids_init(&worker->eps_by_id);
    umi_pool_init(&worker->requests, sizeof(umx_request));
    umi_pool_init(&worker->messages, hooks->message_size);
    umi_pool_init(&worker->frames, hooks->frames_size);
    umi_pool_init(&worker->blocks, UMI_BLOCK_SIZE);
    umi_pool_init(&worker->smalls, UMI_SMALL_SIZE);
    hooks->init(worker);
}

/* True if there are cores to spin on. The affinity mask is not asked: one of
 * one CPU does not tell whether the peer shares it. If it does, spins fail and
 * the adaptive budget goes to 0 (progress/spin.c). */
static bool
may_spin(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN) > 1;
}

void
umi_worker_id_of(uint64_t context_id, const uint8_t *key, uint8_t *id)
{
    uint8_t text[sizeof(context_id) + UMI_X25519_SIZE];
    uint8_t hash[UMI_SHA256_SIZE];

    memcpy(text, &context_id, sizeof(context_id));
    memcpy(text + sizeof(context_id), key, UMI_X25519_SIZE);
    umi_sha256(text, sizeof(text), hash);
    memcpy(id, &context_id, sizeof(context_id));
    memcpy(id + sizeof(context_id), hash,
           UMI_WORKER_ID_SIZE - sizeof(context_id));
}

static bool
make_identity(umx_worker *worker)
{
    if (!umi_random_bytes(worker->secret, sizeof(worker->secret))) {
        return false;
    }
    umi_x25519_public(worker->secret, worker->key);
    umi_worker_id_of(worker->context->id, worker->key, worker->id);
    return true;
}

umx_status
umi_worker_create(umx_context *context, const umi_worker_hooks *hooks,
                  umx_worker **worker_p)
{
    umx_worker *worker;
    umi_engine *engine;
    umx_status  status;

    if (context->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    worker = calloc(1, sizeof(*worker) + hooks->size);
    if (worker == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    worker->slot = umi_page_take();
    if (worker->slot == NULL) {
        free(worker);
        return UMX_ERR_NO_MEMORY;
    }
    worker->stats = &worker->slot->stats;
    init_lists(worker, hooks);
    worker->hooks      = hooks;
    worker->context    = context;
    worker->owner      = umi_thread_id();
    worker->user       = geteuid();
    worker->generation = context->generation;
    worker->turn_ticks = umi_ticks_from_ns(context->config.drain_ns);
    if (!make_identity(worker)) {
        status = UMX_ERR_IO_ERROR;
        goto free_worker;
    }
    if (may_spin()) {
        worker->spin.max_ticks = umi_ticks_from_ns(context->config.spin_ns);
        worker->spin.ticks     = worker->spin.max_ticks;
    }

    worker->watches.fd = epoll_create1(EPOLL_CLOEXEC);
    if (worker->watches.fd < 0) {
        status = (errno == EMFILE || errno == ENFILE) ?
                     UMX_ERR_DESCRIPTOR_LIMIT :
                     umi_status_from_errno(errno);
        goto free_worker;
    }
    status = umi_datatypes_create(&worker->datatypes);
    if (status != UMX_OK) {
        goto close_fd;
    }
    status = umi_engine_create(worker, &engine);
    if (status != UMX_OK) {
        goto destroy_datatypes;
    }
    (void)pthread_mutex_init(&worker->signal_lock, NULL);
    umi_engine_use(engine);
    umi_context_hold(context);
    umi_guard_join_fork(worker);
    *worker_p = worker;
    return UMX_OK;

destroy_datatypes:
    umi_datatypes_destroy(&worker->datatypes);
close_fd:
    close(worker->watches.fd);
free_worker:
    umi_page_give_back(worker->slot);
    free(worker);
    return status;
}

static bool
has_requests(const umx_worker *worker)
{
    UMI_LIST_FOREACH(node, &worker->eps) {
        if (!umi_list_is_empty(
                &umi_container_of(node, umi_ep_base, node)->inflight)) {
            return true;
        }
    }
    return !umi_list_is_empty(&worker->inflight);
}

/* Progress until UCX has handed every buffer back, for a bounded time. */
static void
settle(umx_worker *worker)
{
    uint64_t now      = umi_clock_ns();
    uint64_t deadline = now + DESTROY_GRACE_MS * UINT64_C(1000000);
    uint64_t silence  = now + SILENCE_MS * UINT64_C(1000000);

    while ((worker->closes_in_ucx != 0 || has_requests(worker)) &&
           now < deadline && now < silence) {
        unsigned events = umi_worker_progress(worker);

        umi_worker_run_events(worker);
        now = umi_clock_ns();
        if (events != 0) {
            silence = now + SILENCE_MS * UINT64_C(1000000);
        }
    }
}

static void
complete_list(umx_worker *worker, umi_list *list)
{
    UMI_LIST_FOREACH_SAFE(node, list) {
        umx_request *req = umi_container_of(node, umx_request, node);

        (void)umi_request_void(req); /* UCX may go on with it */
        umi_request_complete(req, UMX_ERR_CANCELED);
        if (worker->engine->ucp != NULL) {
            umi_request_set_state(req, UMI_REQUEST_STUCK);
        }
    }
}

/* UCX will not complete these in time. It calls back later if it stays. */
static void
complete_leftovers(umx_worker *worker)
{
    complete_list(worker, &worker->inflight);
    UMI_LIST_FOREACH(node, &worker->eps) {
        complete_list(worker,
                      &umi_container_of(node, umi_ep_base, node)->inflight);
    }
    umi_worker_run_events(worker);
}

/* UCX is gone, and with it what it had of these. */
static void
free_stuck(umi_list *list)
{
    umi_node *node;

    while ((node = umi_list_pop(list)) != NULL) {
        umx_request *req = umi_container_of(node, umx_request, node);

        umi_request_set_state(req, UMI_REQUEST_OVER);
        umi_request_free(req);
    }
}

/* Cancel receives that UCX would keep for ever. Others move meanwhile. */
static void
cancel_receives(umx_worker *worker)
{
    size_t    left = umi_list_count(&worker->inflight);
    umi_node *node;

    while ((node = umi_list_turn(&worker->inflight, &left)) != NULL) {
        umx_request_cancel(umi_container_of(node, umx_request, node));
    }
}

static void
end_dependents(umx_worker *worker)
{
    umi_node *node;

    while ((node = umi_list_pop(&worker->dependents)) != NULL) {
        umi_dependent *dependent = umi_container_of(node, umi_dependent, node);

        dependent->end(dependent);
    }
}

static bool
has_busy_dependent(const umx_worker *worker)
{
    UMI_LIST_FOREACH(node, &worker->dependents) {
        const umi_dependent *dependent = umi_container_of(node, umi_dependent,
                                                          node);

        if (dependent->is_busy != NULL && dependent->is_busy(dependent)) {
            return true;
        }
    }
    return false;
}

static void
wait_for_dependents(umx_worker *worker)
{
    uint64_t deadline = umi_clock_ns() + BUSY_GRACE_MS * UINT64_C(1000000);

    while (has_busy_dependent(worker) && umi_clock_ns() < deadline) {
        umi_worker_progress(worker);
        umi_worker_run_events(worker);
    }
}

static void
abort_all(umx_worker *worker)
{
    wait_for_dependents(worker);
    end_dependents(worker);
    while (!umi_list_is_empty(&worker->listeners)) {
        umx_listener *listener = umi_container_of(worker->listeners.next,
                                                  umx_listener, node);

        umi_listener_stop(listener);
        worker->hooks->drop_accepted(listener);
        listener->worker = NULL;
    }
    cancel_receives(worker);
    umi_waits_abort(worker);
    worker->hooks->abort(worker);
    UMI_LIST_FOREACH_SAFE(node, &worker->eps) {
        worker->hooks->tell_ep(umi_container_of(node, umi_ep_base, node),
                               UMI_NEWS_ABORT, NULL);
    }
    umi_links_free(worker);
    umi_worker_run_events(worker);
}

static void
fini_engines(umx_worker *worker)
{
    umi_engine_fini(worker->engine);
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        umi_engine_fini(umi_container_of(node, umi_engine, node));
    }
}

void
umi_worker_free(umx_worker *worker)
{
    fini_engines(worker);
    umi_links_fini(worker);
    free_stuck(&worker->stuck);
    free_stuck(&worker->done); /* UCX has called back */
    umi_pool_fini(&worker->requests);
    while (!umi_list_is_empty(&worker->other_engines)) {
        umi_engine_destroy(
            umi_container_of(worker->other_engines.next, umi_engine, node));
    }
    umi_engine_destroy(worker->engine);
    umi_datatypes_destroy(&worker->datatypes);
    pthread_mutex_destroy(&worker->signal_lock);
    umi_pool_fini(&worker->messages);
    umi_pool_fini(&worker->frames);
    umi_pool_fini(&worker->blocks);
    umi_pool_fini(&worker->smalls);
    worker->hooks->free(worker);
    explicit_bzero(worker->secret, sizeof(worker->secret));
    umi_latency_free(worker->latency);
    umi_page_give_back(worker->slot);
    free(worker);
}

/* Give the worker up, of which nobody but UCX can have anything any more. */
static void
give_up(umx_worker *worker)
{
    umx_context *context = worker->context;

    if (umi_worker_is_in_ucx(worker)) {
        umi_parked_add(worker);
    } else {
        umi_worker_free(worker);
    }
    (void)umi_parked_progress(context);
    umx_context_release(context);
}

void
umi_worker_release_memory(umx_worker *worker)
{
    if (UMI_DECREMENT(worker->num_memory_holds) == 0 && worker->is_ended) {
        give_up(worker);
    }
}

/* The user's reference is still out: umx_ep_destroy() comes later and must
 * find memory, so the endpoint only leaves the list. */
static void
forget_eps(umx_worker *worker)
{
    while (!umi_list_is_empty(&worker->eps)) {
        umi_ep_base *ep = umi_container_of(worker->eps.next, umi_ep_base, node);

        umi_node_remove(&ep->node);
        ep->worker      = NULL;
        ep->is_draining = false; /* no event follows its last operation */
    }
}

void
umi_worker_end(umx_worker *worker)
{
    if (worker->guard != NULL) {
        worker->hooks->stop_thread(worker);
    }
    worker->is_inside = true; /* what callbacks call in here does nothing */
    worker->is_ending = true;
    umi_fork_remove(&worker->fork);
    abort_all(worker);
    settle(worker);
    umi_rkeys_fini(worker);
    pthread_mutex_lock(&worker->signal_lock);
    worker->ucp = NULL;
    pthread_mutex_unlock(&worker->signal_lock);
    umi_dma_fini(worker);
    close(worker->watches.fd);
    worker->watches.fd = -1;
    if (worker->num_memory_holds == 0 && !has_requests(worker)) {
        fini_engines(worker);
    }
    complete_leftovers(worker);
    worker->hooks->abort(worker); /* receives that had been cancelled */
    forget_eps(worker);
    worker->hooks->fini(worker);
    umi_ids_fini(&worker->eps_by_id);
    worker->is_ended = true;
    if (worker->num_memory_holds == 0) {
        give_up(worker);
    }
}

static void
destroy(umx_worker *worker)
{
    UMI_GUARD(worker); /* else the thread may be inside */

    if (worker->is_inside) {
        worker->is_destroy_due = true; /* umi_worker_leave() does it */
    } else {
        umi_worker_end(worker);
    }
}

void
umx_worker_destroy(umx_worker *worker)
{
    if (worker->generation != umi_fork_generation()) {
        return; /* the parent's: leaking it is all a child may do */
    }
    destroy(worker);
}

int
umx_worker_fd(const umx_worker *worker)
{
    return worker->watches.fd;
}

void *
umx_worker_handle(const umx_worker *worker)
{
    UMI_GUARD(worker);
    return worker->engine->ucp;
}

bool
umx_worker_is_armed(const umx_worker *worker)
{
    UMI_GUARD(worker);
    return worker->is_armed;
}

bool
umx_worker_is_owner(const umx_worker *worker)
{
    return umi_worker_check(worker) == UMX_OK;
}

void
umx_worker_adopt(umx_worker *worker)
{
    UMI_GUARD(worker);
    worker->owner = umi_thread_id();
}

void
umx_worker_share(umx_worker *worker)
{
    UMI_GUARD(worker);
    worker->owner = UMI_EVERY_THREAD;
}

void
umx_worker_signal(umx_worker *worker)
{
    pthread_mutex_lock(&worker->signal_lock);
    if (worker->ucp != NULL) { /* NULL: it ends, and runs all there is */
        ucp_worker_signal(worker->ucp);
    }
    pthread_mutex_unlock(&worker->signal_lock);
}

unsigned
umx_worker_num_closing(const umx_worker *worker)
{
    UMI_GUARD(worker);
    return worker->num_closing;
}

void
umi_worker_stray(umx_worker *worker, uint64_t endpoint)
{
    if (umi_ids_was_given(&worker->eps_by_id, endpoint)) {
        return; /* that one has ended */
    }
    if (worker->stats->stray_messages++ == 0) {
        umi_log(UMI_LOG_WARN,
                "refused: a message to endpoint number %#llx, which has never "
                "been one; more are counted only",
                (unsigned long long)endpoint);
    }
}

void
umx_worker_query(const umx_worker *worker, umx_worker_stats *stats)
{
    UMI_GUARD(worker);
    *stats = *worker->stats;
    umi_page_add_traffic(worker->slot, stats);
    stats->requests_in_use = worker->requests.in_use;
    stats->requests_peak   = worker->requests.peak;
}

static void
print_worker(FILE *stream, const void *arg)
{
    const umx_worker *worker = arg;

    ucp_worker_print_info(worker->engine->ucp, stream);
}

umx_status
umx_worker_info(const umx_worker *worker, char **text_p)
{
    UMI_GUARD(worker);
    return umi_print_to_text(print_worker, worker, text_p);
}

/* ---- events --------------------------------------------------------------
 */

static void
run_ep_events(umx_worker *worker)
{
    umi_node *node;

    while ((node = umi_list_pop(&worker->ep_events)) != NULL) {
        umi_ep_base *ep = umi_container_of(node, umi_ep_base, event_node);

        worker->hooks->tell_ep(ep, UMI_NEWS_EVENTS, NULL);
        umi_ep_base_release(ep);
    }
}

void
umi_worker_flush_gathered(umx_worker *worker)
{
    umi_node *node;

    while ((node = umi_list_pop(&worker->gathered)) != NULL) {
        umi_gathered *gathered = umi_container_of(node, umi_gathered,
                                                  worker_node);

        gathered->flush(gathered);
    }
}

static void
run_retired(umx_worker *worker)
{
    umi_mpsc_node *node = umi_mpsc_take(&worker->retired);

    while (node != NULL) {
        umi_retire *retire = umi_container_of(node, umi_retire, node);

        node = node->next;
        retire->fn(retire);
    }
}

/* Report the end of a request to who posted it. */
static inline void
report_done(umx_request *req)
{
    bool is_kept = req->is_kept;

    assert(!req->is_done && !umi_request_is_detached(req));
    req->is_done = true;
    umi_request_drop_buffer(req);
    if (req->on_done != NULL) {
        req->on_done(req, req->status, req->arg);
        if (is_kept) {
            return;
        }
        umi_request_free(req);
    }
}

/* The progress thread calls nothing of the program's. */
static __attribute__((noinline)) void
report_done_in_thread(umx_worker *worker, umx_request *req)
{
    if (req->is_internal) {
        report_done(req);
    } else {
        umi_list_append(&worker->put_off_done, &req->node);
        worker->guard->is_tell_due = true;
    }
}

/* Do what few requests need that have ended. True: nobody is told of it. */
static __attribute__((noinline)) bool
end_odd(umx_request *req)
{
    if (umi_request_is_detached(req)) {
        umi_request_end_detached(req);
        return true;
    }
    umi_observe_failure(req, req->status);
    if (req->is_observed) {
        umi_observe_end(req, req->status);
    }
    return false;
}

static void
run_done(umx_worker *worker)
{
    umi_node *node;

    while ((node = umi_list_pop(&worker->done)) != NULL) {
        umx_request *req = umi_container_of(node, umx_request, node);

        if (req->ops->finish != NULL && !req->ops->finish(req)) {
            continue;
        }
        if (__builtin_expect(umi_request_has_odd_end(req), 0) && end_odd(req)) {
            continue;
        }
        if (__builtin_expect(worker->is_in_thread, 0)) {
            report_done_in_thread(worker, req);
        } else {
            report_done(req);
        }
    }
}

/* Run what the progress thread has put off, in its order. */
static void
run_put_off(umx_worker *worker)
{
    umi_node *node;

    while ((node = umi_list_pop(&worker->put_off)) != NULL) {
        umi_put_off *put_off = umi_container_of(node, umi_put_off, node);

        put_off->run(put_off);
    }
    while ((node = umi_list_pop(&worker->put_off_done)) != NULL) {
        report_done(umi_container_of(node, umx_request, node));
    }
}

void
umi_worker_run_events(umx_worker *worker)
{
    UMI_ASSERT_OUTSIDE_UCX(worker);
    worker->activity++;
    while (umi_worker_has_events(worker)) {
        /* Endpoint events first: they decide with which status the
         * endpoint's own requests complete. */
        if (worker->has_events) {
            worker->has_events = false;
            if (!worker->is_in_thread) {
                run_put_off(worker);
            }
            run_ep_events(worker);
            umi_requests_report_detached(worker);
            worker->hooks->on_arrivals(worker);
            umi_worker_flush_gathered(worker);
            if (worker->has_other_engines) {
                umi_engines_collect(worker);
            }
        }
        run_retired(worker);
        run_done(worker);
    }
}

void
umi_worker_run_watches(umx_worker *worker)
{
    unsigned num_run;

    if (umi_watches_are_run(&worker->watches)) {
        return;
    }
    worker->watch_countdown = worker->num_handshakes != 0 ?
                                  UMI_POLLS_PER_WATCH_BUSY :
                                  UMI_POLLS_PER_WATCH;
    num_run                 = umi_watches_run(&worker->watches);
    worker->activity += num_run; /* and what the callbacks have added */
}

void
umi_worker_retire(umx_worker *worker, umi_retire *retire)
{
    if (worker->generation != umi_fork_generation()) {
        return; /* the parent's: leaking it is all a child may do */
    }
    if (umi_mpsc_push(&worker->retired, &retire->node)) {
        umx_worker_signal(worker);
    }
}

/* ---- calls from other threads --------------------------------------------
 */

typedef struct call {
    umi_retire  retire;
    umi_put_off put_off;
    umx_worker *worker;
    umx_call_fn fn;
    void       *arg;
} call;

static void
run_call_now(umi_put_off *put_off)
{
    call *self = umi_container_of(put_off, call, put_off);

    self->fn(self->worker, self->worker->is_ending ? UMX_ERR_CANCELED : UMX_OK,
             self->arg);
    free(self);
}

static void
run_call(umi_retire *retire)
{
    call *self = umi_container_of(retire, call, retire);

    if (!umi_worker_put_off(self->worker, &self->put_off, run_call_now)) {
        run_call_now(&self->put_off);
    }
}

umx_status
umx_worker_submit(umx_worker *worker, umx_call_fn fn, void *arg)
{
    call *self;

    if (worker->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    self = malloc(sizeof(*self));
    if (self == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    *self = (call){
        .retire = {.fn = run_call}, .worker = worker, .fn = fn, .arg = arg};
    umi_node_init(&self->put_off.node);
    umi_worker_retire(worker, &self->retire);
    return UMX_OK;
}
