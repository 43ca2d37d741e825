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
 * failed probe doubles `backoff`. */
#include "progress/event_fd.h"

enum {
    POLLS_PER_CLOCK = 8,
    MIN_DIVISOR     = 32, /* below max / 32 the budget becomes 0 */
    MIN_BACKOFF     = 8,
    MAX_BACKOFF     = 4096
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

/* The budget of this spin; 0: do not. */
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

static bool
spin(umx_worker *worker, const volatile bool *done_p)
{
    umi_spin *state = &worker->spin;
    uint64_t  budget, start, end, last_event, now;

    /* Often the message is there already. */
    umi_worker_poll(worker);
    if (*done_p) {
        return true;
    }
    budget = next_budget(state);
    if (budget == 0 || worker->is_destroy_due) {
        return false;
    }
    worker->stats.spins++;
    last_event = start = umi_ticks();
    end                = umi_turn_end(worker, start);
    do {
        unsigned events = 0;

        /* What UCX has copied may have taken long. */
        for (int i = 0; i < POLLS_PER_CLOCK && events == 0; i++) {
            events = umi_worker_poll(worker);
            if (*done_p) {
                worker->stats.spin_hits++;
                spin_succeeded(state);
                return true;
            }
            if (worker->is_destroy_due) {
                return false;
            }
        }
        now = umi_ticks();
        if (events != 0) {
            last_event = now;
        }
    } while (now - last_event < budget && !umi_is_past(now, end));
    /* Busy, not idle, tells nothing against spins. Nothing at all does, also
     * when somebody else has had the core meanwhile. */
    if (last_event == start || now - last_event >= budget) {
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
