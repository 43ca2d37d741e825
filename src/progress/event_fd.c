/* SPDX-License-Identifier: BSD-3-Clause */
/* event_fd.c: progress that sleeps.
 *
 * UCX's event fd becomes readable only for what happens after ucp_worker_arm()
 * succeeded, and arming is refused with BUSY while there is something left to
 * progress. An armed fd does not cover an operation posted later that went
 * pending (a full FIFO). Hence:
 *   - drain: progress until nothing happens, run completions (they may post or
 *     close), again if there were any; arm; on BUSY again;
 *   - every post that UCX did not finish clears `is_armed`; whoever sleeps
 *     drains first.
 * Otherwise an idle program either hangs or burns a core.
 *
 * UCX may stay BUSY with nothing to do: over shared memory it puts off what
 * closes an endpoint until there is room in the peer's queue, and if the peer
 * died with a full one there never will be (as of UCX 1.22). Then the owner
 * sleeps by the clock. */
#include "progress/event_fd.h"

#include <errno.h>
#include <poll.h>

#include "host/watch.h"
#include "util/clock.h"
#include "worker/dma.h"
#include "worker/observe.h"
#include "worker/wait.h"

/* Limits of a sleep without UCX's event fd. */
enum {
    NAP_MIN_NS = 1000000,
    NAP_TRIES  = 100, /* so often UCX is BUSY before; umx_worker_signal() is a
                         reason for once */
    NAP_MAX_NS = 10000000
};

unsigned
umi_progress_poll(umx_worker *worker)
{
    unsigned events = umi_worker_progress(worker);

    if (worker->watch_countdown != 0) {
        worker->watch_countdown--;
    } else {
        umi_worker_run_watches(worker);
        umi_worker_run_timers(worker); /* a program may do nothing but poll */
    }
    if (umi_worker_has_events(worker)) {
        umi_worker_run_events(worker);
    }
    if (umi_dma_exists(worker) && umi_dma_look(worker)) {
        umi_worker_run_events(worker);
        events++;
    }
    if (umi_waits_exist(worker) && umi_waits_look(worker)) {
        umi_worker_run_events(worker);
    }
    return events;
}

UMI_LOCKED(unsigned, umx_worker_poll, worker, (umx_worker * worker), (worker))

unsigned
umx_worker_poll(umx_worker *worker)
{
    if (UMI_IS_UNLOCKED(worker)) {
        return umx_worker_poll_locked(worker);
    }
    unsigned events;

    if (worker->generation != umi_fork_generation() ||
        !umi_worker_enter(worker)) {
        return 0; /* UCX's sockets are the parent's; from a callback: later */
    }
    events = umi_progress_poll(worker);
    return umi_worker_leave(worker) ? events : 0;
}

static void
end_nap(umi_timer *timer)
{
    umi_container_of(timer, umx_worker, nap)->is_armed = false;
}

void
umi_nap_init(umx_worker *worker)
{
    umi_timer_init(&worker->nap, end_nap);
}

/* Stop watching UCX's event fd, or begin again: events that UCX cannot be armed
 * for may keep the fd readable. */
static void
set_deaf(umi_engine *engine, bool is_deaf)
{
    struct epoll_event event = {.events = is_deaf ? 0 : EPOLLIN};

    if (engine->is_deaf != is_deaf) {
        engine->is_deaf = is_deaf;
        (void)epoll_ctl(engine->worker->watches.fd, EPOLL_CTL_MOD, engine->fd,
                        &event);
    }
}

/* UCX refuses to be armed and has nothing to do. True once that lasts, however
 * often it is asked: then its queue to a peer that has died is full, and it
 * waits for room for ever. Sleep, then, but not for long: nobody will be woken.
 */
static bool
take_nap(umi_engine *engine)
{
    uint64_t now = umi_clock_ns();
    uint64_t lasts;

    if (engine->busy_ns == 0) {
        engine->busy_ns  = now;
        engine->num_busy = 0;
    }
    lasts = now - engine->busy_ns;
    if (++engine->num_busy < NAP_TRIES || lasts < NAP_MIN_NS) {
        return false;
    }
    umi_timer_start(engine->worker, &engine->worker->nap,
                    (lasts < NAP_MAX_NS) ? NAP_MIN_NS : NAP_MAX_NS);
    set_deaf(engine, true);
    return true;
}

static umx_status
arm_engine(umi_engine *engine)
{
    umx_status status = (umx_status)ucp_worker_arm(engine->ucp);

    if (status == UMX_OK) {
        engine->busy_ns = 0;
        set_deaf(engine, false);
    } else if (status == UMX_ERR_BUSY && take_nap(engine)) {
        status = UMX_OK;
    }
    return status;
}

/* Arm UCX. UMX_OK: the owner may sleep. UMX_ERR_BUSY: UCX needs progress first.
 */
static umx_status
arm(umx_worker *worker)
{
    umx_status status;

    if (umi_waits_exist(worker) && umi_waits_announce(worker)) {
        return UMX_ERR_BUSY;
    }
    if (umi_dma_exists(worker) && umi_dma_announce(worker)) {
        return UMX_ERR_BUSY;
    }
    status = arm_engine(worker->engine);
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        if (status != UMX_OK) {
            break;
        }
        status = arm_engine(umi_container_of(node, umi_engine, node));
    }
    worker->is_armed = (status == UMX_OK);
    worker->num_armed += worker->is_armed && !worker->engine->is_deaf;
    return status;
}

/* Compute the end of a drain. Half of a turn is for what the messages are for.
 */
static uint64_t
drain_end(const umx_worker *worker, uint64_t now)
{
    uint64_t end  = umi_turn_end(worker, now);
    uint64_t half = now + worker->turn_ticks / 2;

    return (worker->turn_end != 0 && umi_turn_is_past(end, half)) ? half : end;
}

static umx_status
drain_until(umx_worker *worker, uint64_t end)
{
    unsigned   before;
    bool       is_first = true;
    umx_status status;

    umi_worker_run_timers(worker);
    for (;;) {
        before = worker->activity;
        while (!worker->is_destroy_due && umi_progress_poll(worker) != 0) {
            worker->stats->wakeups += is_first;
            is_first                = false;
            before                  = ++worker->activity;
            worker->engine->busy_ns = 0;
            /* Look at the clock: one call of UCX may have copied for 100 ns, or
             * for 100 us. */
            if (umi_turn_is_past(umi_ticks(), end)) {
                return UMX_INPROGRESS;
            }
        }
        if (worker->is_destroy_due) {
            return UMX_ERR_CLOSED;
        }
        if (worker->loses_unread) {
            worker->looked = umi_ticks(); /* all has been taken */
        }
        /* Nothing of UCX's woke the owner: look at the other descriptors. */
        if (is_first) {
            is_first = false;
            umi_worker_run_watches(worker);
            continue;
        }
        /* Arm only if nothing has run since UCX's last turn. What has run may
         * have left UCX work that arming does not see: closing an endpoint puts
         * off what it cancels. */
        status = UMX_ERR_BUSY;
        if (worker->activity == before) {
            status = arm(worker);
        }
        if (status != UMX_ERR_BUSY) {
            return status; /* mostly UMX_OK */
        }
        worker
            ->activity++; /* arming may have taken umx_worker_signal()'s wake */
        if (umi_turn_is_past(umi_ticks(), end)) {
            return UMX_INPROGRESS;
        }
    }
}

umx_status
umi_progress_drain(umx_worker *worker, uint64_t begin, uint64_t end)
{
    uint64_t   wakeups = worker->stats->wakeups;
    umx_status status  = drain_until(worker, end);

    worker->slot->drained          = begin;
    worker->stats->requests_in_use = worker->requests.in_use;
    worker->stats->requests_peak   = worker->requests.peak;
    if (UMI_IS_OBSERVED() && worker->stats->wakeups != wakeups) {
        umi_observe_wakeup(worker, begin);
    }
    return status;
}

void
umx_worker_begin_turn(umx_worker *worker)
{
    worker->turn_end = (umi_ticks() + worker->turn_ticks) | 1; /* not 0 */
}

void
umx_worker_divide_turn(umx_worker *worker, unsigned parts)
{
    worker->turn_end = (umi_ticks() + worker->turn_ticks / parts) | 1;
}

bool
umx_worker_turn_is_over(const umx_worker *worker)
{
    return umi_turn_is_past(umi_ticks(), worker->turn_end);
}

void
umx_worker_extend_turn(umx_worker *worker, uint64_t max_ns)
{
    uint64_t more = umi_ticks_from_ns(max_ns);

    more             = (more < worker->turn_ticks) ? more : worker->turn_ticks;
    worker->turn_end = (umi_ticks() + more) | 1;
    worker->stats->extended_turns++;
}

UMI_LOCKED(umx_status, umx_worker_drain, worker, (umx_worker * worker),
           (worker))

umx_status
umx_worker_drain(umx_worker *worker)
{
    if (UMI_IS_UNLOCKED(worker)) {
        return umx_worker_drain_locked(worker);
    }
    umx_status status = umi_worker_check(worker);
    uint64_t   begin;

    if (status != UMX_OK) {
        return status;
    }
    if (!umi_worker_enter(worker)) {
        return UMX_INPROGRESS; /* from a callback: the caller drains */
    }
    begin  = umi_ticks();
    status = umi_progress_drain(worker, begin, drain_end(worker, begin));
    return umi_worker_leave(worker) ? status : UMX_ERR_CLOSED;
}

bool
umx_worker_overslept(umx_worker *worker)
{
    UMI_GUARD(worker);
    struct pollfd pollfd    = {.fd = worker->watches.fd, .events = POLLIN};
    bool          has_slept = worker->is_armed && !worker->engine->is_deaf &&
                     worker->num_armed == worker->seen_armed;

    worker->seen_armed = worker->num_armed;
    if (!has_slept || worker->guard != NULL || /* it wakes another thread */
        umi_worker_check(worker) != UMX_OK || poll(&pollfd, 1, 0) != 0) {
        return false;
    }
    return umi_worker_has_events(worker) || umx_worker_poll(worker) != 0;
}

static int
poll_timeout_ms(uint64_t deadline_ns)
{
    uint64_t now = umi_clock_ns();
    uint64_t ms;

    if (deadline_ns == UINT64_MAX) {
        return -1;
    }
    if (deadline_ns <= now) {
        return 0;
    }
    ms = (deadline_ns - now + 999999) / 1000000;
    return (ms > 60000) ? 60000 : (int)ms;
}

/* Drain. True: the caller may sleep until `*timer_p`, or something happens. */
static bool
may_sleep(umx_worker *worker, uint64_t *timer_p, umx_status *status_p)
{
    UMI_GUARD(worker);
    unsigned before = worker->activity;

    *status_p = umx_worker_drain(worker);
    if (*status_p != UMX_OK) {
        *status_p = (*status_p == UMX_INPROGRESS) ? UMX_OK : *status_p;
        return false;
    }
    *timer_p = umx_worker_deadline(worker);
    /* The event that the caller waits for may have happened in the meantime. */
    return worker->activity == before;
}

umx_status
umx_worker_wait(umx_worker *worker, uint64_t timeout_ns)
{
    umi_guard    *guard = worker->guard;
    struct pollfd fds[] = {
        {.fd = worker->watches.fd, .events = POLLIN},
        {.fd = (guard != NULL) ? guard->told_fd : -1, .events = POLLIN},
    };
    uint64_t   now = umi_clock_ns();
    uint64_t   deadline, timer;
    umx_status status;
    int        n;

    if (!may_sleep(worker, &timer, &status)) {
        return status;
    }
    deadline = (timeout_ns > UINT64_MAX - now) ? UINT64_MAX : now + timeout_ns;
    n = poll(fds, 2, poll_timeout_ms(timer < deadline ? timer : deadline));
    if (n < 0 && errno != EINTR) {
        return UMX_ERR_IO_ERROR;
    }
    status = umx_worker_drain(worker);
    if (status < 0) {
        return status;
    }
    return (n == 0 && umi_clock_ns() >= deadline) ? UMX_ERR_TIMED_OUT : UMX_OK;
}
