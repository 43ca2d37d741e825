/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c: the thread of a proxy: it looks for commands, lets UCX make
 * progress, and sleeps when nothing has come for a while.
 *
 *   MEETING --> OPEN --> DRAINING --> OVER
 *      |          |                     ^
 *      +----------+--- is_abort --------+
 *
 * Before it sleeps it sets `doze` in each ring, makes a fence for all threads,
 * and looks again. So a producer sees `doze` after its command, or the thread
 * sees the command: tests/model/ring.py. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proxy/proxy.h"
#include "util/clock.h"
#include "util/log.h"

enum {
    LOOKS         = 64,  /* for commands, between looks at the clock */
    POLL_COMMANDS = 256, /* that begin between polls of UCX */
    PAUSE_SHARE   = 64,  /* of the time without a command is a pause */
    PAUSE_MIN_NS  = 20000,
    PAUSE_MAX_NS  = 10000000
};

/* What the thread knows of its own idleness. */
typedef struct idleness {
    unsigned looks;
    uint64_t since_ns; /* 0: it has just been busy */
} idleness;

void
umi_proxy_kick(umx_proxy *proxy)
{
    uint64_t one = 1;

    (void)!write(proxy->wake_fd, &one, sizeof(one));
}

static void
count(uint64_t *number, uint64_t value)
{
    __atomic_store_n(number, value, __ATOMIC_RELAXED);
}

/* ---- the communicator ----------------------------------------------------
 */

/* All have met, or have not. */
static void
end_meeting(umx_proxy *proxy, umx_status status)
{
    const char *reason = (proxy->comm == NULL) ? "" :
                                                 umx_comm_reason(proxy->comm);

    if (status == UMX_OK) {
        proxy->state = UMI_PROXY_OPEN;
        umi_proxy_end_task(proxy->creation, UMX_OK);
        return;
    }
    (void)snprintf(proxy->reason, sizeof(proxy->reason), "%s",
                   (*reason != '\0') ? reason : umx_status_string(status));
    proxy->state = UMI_PROXY_OVER;
    umi_proxy_end_task(proxy->creation, status);
}

static void
on_comm(umx_request *req, umx_status status, void *arg)
{
    umx_proxy *proxy = arg;

    (void)req;
    if (proxy->state == UMI_PROXY_MEETING) {
        end_meeting(proxy, status);
    }
}

static void
begin_meeting(umx_proxy *proxy)
{
    uint64_t        now    = umi_clock_ns();
    umx_comm_params params = {
        .field_mask = UMX_COMM_FIELD_TIMEOUT,
        .rank       = proxy->joint.rank,
        .size       = proxy->joint.size,
        .root       = (proxy->joint.rank == 0) ? NULL : proxy->root,
        .root_len   = (proxy->joint.rank == 0) ? 0 : proxy->root_len,
        .timeout_ns = UMX_TIMEOUT_INFINITE,
    };
    umx_op_params op = umx_layer_op_params(on_comm, proxy);
    umx_request  *req;
    umx_status    status;

    if (proxy->deadline_ns != UINT64_MAX) {
        params.timeout_ns = (proxy->deadline_ns > now) ?
                                proxy->deadline_ns - now :
                                0;
    }
    status = umx_comm_create(proxy->worker, &params, &op, &proxy->comm, &req);
    if (status != UMX_INPROGRESS) {
        end_meeting(proxy, status);
    }
}

/* ---- tasks ---------------------------------------------------------------
 */

static void
run_calls(umx_proxy *proxy, umx_status status)
{
    umi_proxy_task *task;

    (void)pthread_mutex_lock(&proxy->lock);
    atomic_store(&proxy->has_calls, false);
    task             = proxy->calls;
    proxy->calls     = NULL;
    proxy->calls_end = &proxy->calls;
    (void)pthread_mutex_unlock(&proxy->lock);
    while (task != NULL) {
        umi_proxy_task *next = task->next;

        task->run(task, status);
        task = next;
    }
}

/* ---- sleep ---------------------------------------------------------------
 */

static void
set_doze(umx_proxy *proxy, umx_ring_u64 value)
{
    for (size_t i = 0; i < proxy->num_rings; i++) {
        __atomic_store_n(&proxy->rings[i]->view.words->doze, value,
                         __ATOMIC_RELAXED);
    }
}

static bool
is_something_ready(const umx_proxy *proxy)
{
    for (size_t i = 0; i < proxy->num_rings; i++) {
        if (umi_proxy_ring_is_ready(proxy->rings[i])) {
            return true;
        }
    }
    return false;
}

/* How long it may sleep, in nanoseconds; UINT64_MAX: until it is woken. */
static uint64_t
time_to_sleep(const umx_proxy *proxy, const idleness *idle, uint64_t now)
{
    uint64_t until = umx_worker_deadline(proxy->worker);
    uint64_t pause = UINT64_MAX;

    for (size_t i = 0; i < proxy->num_rings; i++) {
        if (proxy->rings[i]->is_device && !proxy->rings[i]->is_ended) {
            pause = (now - idle->since_ns) / PAUSE_SHARE;
            pause = (pause < PAUSE_MIN_NS) ? PAUSE_MIN_NS : pause;
            pause = (pause > PAUSE_MAX_NS) ? PAUSE_MAX_NS : pause;
            break;
        }
    }
    if (proxy->closing != NULL && proxy->closing->deadline_ns < until) {
        until = proxy->closing->deadline_ns;
    }
    if (until == UINT64_MAX) {
        return pause;
    }
    until = (until > now) ? until - now : 0;
    return (until < pause) ? until : pause;
}

static void
wait_for_event(umx_proxy *proxy, uint64_t ns)
{
    struct pollfd fds[2] = {
        {.fd = umx_worker_fd(proxy->worker), .events = POLLIN},
        {.fd = proxy->wake_fd, .events = POLLIN}};
    struct timespec time = {.tv_sec  = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    uint64_t        number;

    count(&proxy->stats.sleeps, proxy->stats.sleeps + 1);
    (void)pthread_mutex_unlock(&proxy->busy);
    (void)ppoll(fds, 2, (ns == UINT64_MAX) ? NULL : &time, NULL);
    if (atomic_load(&umi_proxy_is_forking)) {
        (void)pthread_mutex_lock(&proxy->busy);
        umi_proxy_let_fork(proxy);
    } else {
        (void)pthread_mutex_lock(&proxy->busy);
    }
    if ((fds[1].revents & POLLIN) != 0) {
        (void)!read(proxy->wake_fd, &number, sizeof(number));
        count(&proxy->stats.wakeups, proxy->stats.wakeups + 1);
    }
}

static void
sleep_until_work(umx_proxy *proxy, const idleness *idle)
{
    uint64_t now = umi_clock_ns();
    uint64_t ns;

    if (umx_worker_drain(proxy->worker) != UMX_OK) {
        return;
    }
    umi_proxy_look_at_waits(proxy);
    set_doze(proxy, 1);
    umi_proxy_fence();
    if (!is_something_ready(proxy) && !atomic_load(&proxy->has_calls) &&
        !atomic_load(&proxy->is_abort) && umx_worker_is_armed(proxy->worker)) {
        ns = time_to_sleep(proxy, idle, now);
        if (ns != 0) {
            wait_for_event(proxy, ns);
        }
    }
    set_doze(proxy, 0);
}

/* Nothing has come: go on looking for a while, then sleep. */
static void
be_idle(umx_proxy *proxy, idleness *idle)
{
    uint64_t now;

    if (++idle->looks % LOOKS != 0 && proxy->spin_ns != 0) {
        umi_cpu_relax();
        return;
    }
    now = umi_clock_ns();
    if (idle->since_ns == 0) {
        idle->since_ns = now;
    }
    if (now - idle->since_ns >= proxy->spin_ns) {
        sleep_until_work(proxy, idle);
    } else {
        (void)sched_yield(); /* others may have the commands to come */
    }
}

/* ---- turns ---------------------------------------------------------------
 */

/* Is a poll of UCX due? While nothing is under way UCX has only what peers ask
 * for. */
static bool
is_poll_due(umx_proxy *proxy, unsigned num_begun, const idleness *idle)
{
    bool is_waiting = false;

    for (size_t i = 0; i < proxy->num_rings; i++) {
        is_waiting |= proxy->rings[i]->in_flight != 0;
    }
    proxy->num_begun += num_begun;
    if (proxy->num_begun >= POLL_COMMANDS || is_waiting ||
        (num_begun == 0 && idle->looks % LOOKS == LOOKS - 1)) {
        proxy->num_begun = 0;
        return true;
    }
    return false;
}

/* Returns false if there was nothing to do. */
static bool
turn(umx_proxy *proxy, const idleness *idle)
{
    unsigned num_begun = 0;
    bool     is_busy   = false;

    if (atomic_load_explicit(&proxy->has_calls, memory_order_acquire)) {
        run_calls(proxy, UMX_OK);
        is_busy = true;
    }
    for (size_t i = 0; i < proxy->num_rings; i++) {
        num_begun += umi_proxy_ring_take(proxy->rings[i]);
    }
    if (is_poll_due(proxy, num_begun, idle)) {
        is_busy |= umx_worker_poll(proxy->worker) != 0;
    }
    if (!umi_list_is_empty(&proxy->waits)) {
        umi_proxy_look_at_waits(proxy);
    }
    return is_busy || num_begun != 0;
}

static bool
is_drained(const umx_proxy *proxy)
{
    for (size_t i = 0; i < proxy->num_rings; i++) {
        if (!umi_proxy_ring_is_idle(proxy->rings[i])) {
            return false;
        }
    }
    return true;
}

/* UMX_INPROGRESS: the rings hold something, and there is time left. */
static umx_status
look_at_end(const umx_proxy *proxy)
{
    if (is_drained(proxy)) {
        return UMX_OK;
    }
    return (umi_clock_ns() >= proxy->closing->deadline_ns) ? UMX_ERR_TIMED_OUT :
                                                             UMX_INPROGRESS;
}

static umx_status
run_turns(umx_proxy *proxy)
{
    idleness   idle = {0};
    umx_status status;
    bool       is_busy;

    while (proxy->state != UMI_PROXY_OVER &&
           !atomic_load_explicit(&proxy->is_abort, memory_order_acquire)) {
        if (atomic_load_explicit(&umi_proxy_is_forking, memory_order_relaxed)) {
            umi_proxy_let_fork(proxy);
        }
        is_busy = turn(proxy, &idle);
        if (proxy->state == UMI_PROXY_DRAINING) {
            status = look_at_end(proxy);
            if (status != UMX_INPROGRESS) {
                return status;
            }
        }
        if (is_busy) {
            idle = (idleness){0};
        } else {
            be_idle(proxy, &idle);
        }
    }
    return UMX_ERR_CANCELED;
}

/* ---- the end -------------------------------------------------------------
 */

static void
end_rings(umx_proxy *proxy, const char *text)
{
    for (size_t i = 0; i < proxy->num_rings; i++) {
        umx_proxy_ring *ring = proxy->rings[i];

        umi_proxy_ring_fail(ring, UMX_ERR_CLOSED, -1, ring->tail, NULL, text);
    }
}

static void
leave(umx_comm **comm_p)
{
    if (*comm_p != NULL) {
        umx_comm_close(*comm_p);
        umx_comm_destroy(*comm_p);
        *comm_p = NULL;
    }
}

static void
tear_down(umx_proxy *proxy)
{
    for (int i = 0; i < UMX_PROXY_GROUPS_MAX; i++) {
        leave(&proxy->groups[i]);
    }
    umi_proxy_free_entries(proxy);
    leave(&proxy->comm);
    umx_worker_destroy(proxy->worker);
    proxy->worker = NULL;
    for (size_t i = 0; i < proxy->num_rings; i++) {
        umi_proxy_ring_put(proxy->rings[i]);
    }
    proxy->num_rings = 0;
}

const char *
umi_proxy_why_over(const umx_proxy *proxy, umx_status status)
{
    if (status == UMX_ERR_TIMED_OUT) {
        return "the proxy was closed, and the time was out";
    }
    return atomic_load(&proxy->is_abort) ?
               "the proxy was ended by abort(), or with its worker" :
               "the proxy has been closed";
}

static void
end_thread(umx_proxy *proxy, umx_status status)
{
    bool is_meeting = proxy->state == UMI_PROXY_MEETING;

    proxy->state = UMI_PROXY_OVER;
    if (is_meeting) {
        end_meeting(proxy, UMX_ERR_CANCELED);
    }
    umi_proxy_look_at_waits(proxy);
    end_rings(proxy, umi_proxy_why_over(proxy, status));
    umi_proxy_end_waits(proxy, UMX_ERR_CLOSED);
    tear_down(proxy);
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->has_ended = true;
    (void)pthread_mutex_unlock(&proxy->lock);
    run_calls(proxy, UMX_ERR_CLOSED);
    if (proxy->closing != NULL) {
        umi_proxy_end_task(proxy->closing, status);
    }
}

static void *
run(void *arg)
{
    umx_proxy *proxy = arg;

    (void)pthread_mutex_lock(&proxy->busy);
    umx_worker_adopt(proxy->worker);
    begin_meeting(proxy);
    end_thread(proxy, run_turns(proxy));
    (void)pthread_mutex_unlock(&proxy->busy);
    umi_proxy_put(proxy); /* the thread's */
    return NULL;
}

static int
create_pinned(umx_proxy *proxy)
{
    sigset_t       all, before;
    pthread_attr_t attr;
    cpu_set_t      set;
    int            error = pthread_attr_init(&attr);

    if (error != 0) {
        return error;
    }
    if (proxy->cpu >= 0) {
        CPU_ZERO(&set);
        CPU_SET(proxy->cpu, &set);
        (void)pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
    }
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&proxy->thread, &attr, run, proxy);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return error;
}

umx_status
umi_proxy_start_thread(umx_proxy *proxy)
{
    umi_proxy_hold(proxy);
    umi_proxy_process_add(proxy);
    if (create_pinned(proxy) != 0) {
        umi_proxy_process_remove(proxy);
        umi_proxy_put(proxy);
        return UMX_ERR_THREAD_LIMIT;
    }
    (void)pthread_setname_np(proxy->thread, "umx proxy");
    proxy->has_thread = true;
    umi_log(UMI_LOG_INFO, "proxy of rank %d of %d: its thread has begun",
            proxy->joint.rank, proxy->joint.size);
    return UMX_OK;
}
