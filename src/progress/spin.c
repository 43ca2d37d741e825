/* SPDX-License-Identifier: BSD-3-Clause */
/* spin.c: polling for a while before sleeping, as long as it pays.
 *
 * A wake-up through the event fd costs microseconds, a poll nanoseconds, and
 * the reply of a busy peer comes within a few. But a poll that finds nothing
 * takes the core from others, in the worst case from the peer. So the budget
 * is halved by each spin that failed, down to nothing, and a spin that succeeds
 * restores it. A large message comes in pieces: the budget counts from the last
 * event, and `drain_ns`, or what is left of a turn, bounds the whole. While the
 * budget is nothing, every `backoff`-th wait probes with all of it, and each
 * failed probe doubles `backoff`. A wait for what a peer copies goes on for as
 * long as the copy is to take, whatever the budget is.
 *
 * Where processes outnumber cores the peer may be waiting for this one: a yield
 * tells. If another process has had the core meanwhile, yields go on instead of
 * polls, as a yield that shares the core takes it from nobody, and the next
 * wait begins with them. */
#include "progress/event_fd.h"
#include "progress/yield.h"

enum {
    POLLS_PER_CLOCK = 8,
    MIN_DIVISOR     = 32, /* below max / 32 the budget becomes 0 */
    MIN_BACKOFF     = 8,
    MAX_BACKOFF     = 4096,
    YIELD_NS        = 20000 /* without an event, until a spin tries a yield */
};

static void
spin_succeeded(umi_spin *spin)
{
    spin->ticks   = spin->max_ticks;
    spin->backoff = MIN_BACKOFF;
}

static void
spin_failed(umi_spin *spin)
{
    if (spin->backoff > MIN_BACKOFF || spin->ticks == 0) {
        spin->ticks = 0; /* a probe failed */
    } else {
        spin->ticks /= 2;
    }
    if (spin->ticks < spin->max_ticks / MIN_DIVISOR) {
        spin->ticks = 0;
        if (spin->backoff < MIN_BACKOFF) {
            spin->backoff = MIN_BACKOFF;
        } else if (spin->backoff < MAX_BACKOFF) {
            spin->backoff *= 2;
        }
        spin->skip = spin->backoff;
    }
}

/* Compute the budget of this spin, in ticks. 0: do not spin. */
static uint64_t
next_budget(umi_spin *spin)
{
    if (spin->ticks != 0 || spin->max_ticks == 0) {
        return spin->ticks;
    }
    if (spin->skip > 0) {
        spin->skip--;
        return 0;
    }
    return spin->max_ticks;
}

/* The ticks in which a peer will have copied what was lent to it; 0: nothing
 * was. The wait for it may be longer than the budget, and also than `drain_ns`
 * where there are no turns, as a thread that waits has nothing else to do. */
static uint64_t
take_expected(umx_worker *worker)
{
    uint64_t ticks = worker->spin.expected;

    worker->spin.expected = 0;
    return (worker->spin.max_ticks != 0 && worker->yields.num_crowds == 0) ?
               ticks :
               0;
}

/* Poll once. True: the caller's wait is over, or the worker is. */
static bool
poll_once(umx_worker *worker, const volatile bool *done_p, unsigned *events_p)
{
    *events_p = umi_progress_poll(worker);
    return *done_p || worker->is_destroy_due;
}

/* Yield while others want the core, polling between. True as poll_once(). */
static bool
yield_while_shared(umx_worker *worker, const volatile bool *done_p)
{
    umi_yields *yields  = &worker->yields;
    umi_yielded yielded = UMI_YIELDED_SHARED;
    bool        is_over = false;
    unsigned    events;

    if (!umi_yields_begin(yields)) {
        return false;
    }
    for (int i = 0; i < UMI_YIELDS && yielded == UMI_YIELDED_SHARED && !is_over;
         i++) {
        yielded = umi_yields_once(yields);
        is_over = poll_once(worker, done_p, &events);
    }
    if (yielded != UMI_YIELDED_SLICE) {
        umi_yields_end(yields);
    }
    return is_over;
}

/* Poll until `budget` has passed since the last event. True as poll_once();
 * false: `*failed_p` tells whether the spin has failed. */
static bool
spin_for(umx_worker *worker, const volatile bool *done_p, uint64_t budget,
         bool is_expected, bool *failed_p)
{
    uint64_t start       = umi_ticks();
    uint64_t end         = (is_expected && worker->turn_end == 0) ?
                               start + budget :
                               umi_turn_end(worker, start);
    bool     is_shared   = worker->yields.is_shared;
    uint64_t until_yield = is_shared ? 0 : umi_ticks_from_ns(YIELD_NS);
    uint64_t last_event  = start;
    uint64_t now;
    bool     has_yielded = false;

    do {
        unsigned events = 0;
        int      polls  = (is_shared && !has_yielded) ? 1 : POLLS_PER_CLOCK;

        /* Look at the clock again: UCX may have copied for long. */
        for (int i = 0; i < polls && events == 0; i++) {
            if (poll_once(worker, done_p, &events)) {
                return true;
            }
        }
        now = umi_ticks();
        if (events != 0) {
            last_event = now;
        } else if (!has_yielded && now - last_event > until_yield) {
            has_yielded = true;
            if (yield_while_shared(worker, done_p)) {
                return true;
            }
        }
    } while (now - last_event < budget && !umi_turn_is_past(now, end));
    /* A spin that found events until the turn was over has not failed. One that
     * found none has, also if another process had the core meanwhile. */
    *failed_p = last_event == start || now - last_event >= budget;
    return false;
}

static bool
spin(umx_worker *worker, const volatile bool *done_p)
{
    umi_spin *state    = &worker->spin;
    uint64_t  expected = take_expected(worker);
    uint64_t  budget;
    unsigned  events;
    bool      has_failed = false;

    /* Often the message is there already. */
    if (poll_once(worker, done_p, &events)) {
        umi_yields_spare(&worker->yields);
        return *done_p;
    }
    budget = (expected == 0) ? next_budget(state) : expected;
    if (budget == 0) {
        return yield_while_shared(worker, done_p) && *done_p;
    }
    worker->stats->spins++;
    if (spin_for(worker, done_p, budget, expected != 0, &has_failed) &&
        *done_p) {
        worker->stats->spin_hits++;
        spin_succeeded(state);
        return true;
    }
    if (has_failed && expected == 0) {
        spin_failed(state);
    }
    return false;
}

bool
umx_worker_spin(umx_worker *worker, const volatile bool *done_p)
{
    UMI_GUARD(worker);
    bool is_done;

    if (worker->generation != umi_fork_generation() ||
        !umi_worker_enter(worker)) {
        return *done_p; /* a poll would take the parent's messages */
    }
    is_done = spin(worker, done_p);
    (void)umi_worker_leave(worker);
    return is_done;
}
