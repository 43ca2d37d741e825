/* SPDX-License-Identifier: BSD-3-Clause */
/* group.c: the processes of a group: how this one leaves, suspects, and
 * heartbeats. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umx/context.h>

#include "comm/communicator.h"
#include "comm/dispatch.h"
#include "comm/group.h"
#include "comm/member.h"
#include "util/clock.h"
#include "util/count.h"
#include "util/cpu.h"
#include "util/log.h"

enum {
    VERDICT_NS = 1000000000,
    /* Beats in the time that a member may be silent, and those without a sign
     * of life after which it has been, as in src/endpoint/silence.c. */
    QUARTERS        = 4,
    SILENT_QUARTERS = QUARTERS + 1
};

/* ---- leaving -------------------------------------------------------------
 */

static void
stop_timers(umi_comm_group *group)
{
    umx_timer_stop(&group->heartbeat);
    umx_timer_stop(&group->verdict);
}

static void
note_lost(umi_comm_member *member, umx_status status)
{
    if (member->group->lost == NULL) {
        member->group->lost        = member;
        member->group->lost_status = status;
    }
}

/* Messages to a member may be lost, and it may have no endpoint to this process
 * whose end would tell it so. Have the root tell it, or, if the root has left,
 * tell it here. */
static void
tell_lost(umi_comm_group *group)
{
    umi_comm_header header = {.kind   = UMI_COMM_FAILED,
                              .round  = UMI_COMM_WHOLE_GROUP,
                              .source = (uint32_t)group->rank,
                              .comm   = group->id};
    umi_comm_failed failed = {.rank = group->rank, .cause = group->lost_status};
    umi_comm_member *to    = &group->members[0];
    uint8_t          data[UMI_COMM_FAILED_MAX];
    char             why[UMI_COMM_REASON_MAX];
    size_t           len;

    (void)snprintf(why, sizeof(why),
                   "its connection to process %d has failed while it left",
                   group->lost->rank);
    failed.reason.data = (const uint8_t *)why;
    failed.reason.len  = strlen(why);
    len                = umi_comm_failed_encode(&failed, data, sizeof(data));
    if (to->out == NULL) {
        umi_comm_member_send_last(group->lost, &header, data, len);
    } else {
        umi_comm_member_send(to, &header, data, len);
    }
}

/* Close the endpoint to the root: those to the others have closed. */
static void
finish_leaving(umi_comm_group *group)
{
    if (group->dispatch->worker == NULL) {
        return;
    }
    if (group->lost != NULL) {
        tell_lost(group);
        umi_comm_member_release_eps(group->lost);
    }
    stop_timers(group);
    umi_comm_member_release_eps(&group->members[0]);
}

static void
on_closed(umx_request *req, umx_status status, void *arg)
{
    umi_comm_member *member = arg;
    umi_comm_group  *group  = member->group;

    (void)req;
    if (status != UMX_OK && status != UMX_ERR_PEER_CLOSED) {
        note_lost(member, status);
    }
    if (UMI_DECREMENT(group->num_closing) == 0) {
        finish_leaving(group);
    }
    umi_comm_group_put(group);
}

/* Close an endpoint, and wait for its end, which tells whether all has been
 * received. */
static void
close_ep(umi_comm_member *member, umx_ep **ep_p)
{
    const umx_worker *worker = member->group->dispatch->worker;
    const umx_config *config;
    umx_op_params     params = umx_layer_op_params(on_closed, member);
    umx_request      *req;

    if (*ep_p == NULL) {
        return;
    }
    config = umx_context_config(umx_worker_get_context(worker));
    if (umx_ep_get_state(*ep_p) == UMX_EP_FAILED) {
        note_lost(member, umx_ep_error(*ep_p));
    } else if (umx_ep_close(*ep_p, config->close_timeout_ns, &params, &req) ==
               UMX_INPROGRESS) {
        umi_refs_get(&member->group->refs);
        member->group->num_closing++;
    }
    umi_comm_release_ep(ep_p);
}

/* Close the endpoints. That to the root stays until the others have closed, so
 * that the root sees it break if this process ends before. */
static void
leave(umi_comm_group *group)
{
    if (group->is_left || group->bootstrap != NULL ||
        group->dispatch->worker == NULL) {
        return;
    }
    group->is_left = true;
    umi_refs_get(&group->refs);
    group->num_closing++;
    for (int i = 0; i < group->size; i++) {
        umi_comm_member *member = &group->members[i];

        if (!umi_comm_member_is_up(member) && i != 0) {
            note_lost(member, member->cause);
        }
        if (group->rank == 0) {
            umi_comm_member_release_eps(member);
        } else if (i != 0) {
            member->out = NULL;
            close_ep(member, &member->mine);
            close_ep(member, &member->theirs);
        }
    }
    if (UMI_DECREMENT(group->num_closing) == 0) {
        finish_leaving(group);
    }
    umi_comm_group_put(group);
}

void
umi_comm_group_close_eps(umi_comm_group *group)
{
    UMI_LIST_FOREACH(node, &group->comms) {
        const umx_comm *comm = umi_container_of(node, umx_comm, group_node);

        if (!comm->is_closed || comm->is_dropped ||
            !umi_refs_is_last(&comm->refs)) {
            return;
        }
    }
    leave(group);
}

/* ---- suspects ------------------------------------------------------------
 */

/* Find the member that was suspected first; NULL: none is suspected.
 * `is_lost`: of those that have not closed their endpoint. */
static umi_comm_member *
first_suspect(umi_comm_group *group, bool is_lost)
{
    umi_comm_member *first = NULL;

    for (int i = 0; i < group->size; i++) {
        umi_comm_member *member = &group->members[i];

        if (member->state == UMI_COMM_MEMBER_SUSPECT &&
            !(is_lost && member->cause == UMX_ERR_PEER_CLOSED) &&
            (first == NULL || member->suspicion < first->suspicion)) {
            first = member;
        }
    }
    return first;
}

void
umi_comm_group_fail_suspects(umi_comm_group *group, uint64_t suspicion,
                             bool is_lost)
{
    umi_comm_member *member;

    umi_refs_get(&group->refs);
    while ((member = first_suspect(group, is_lost)) != NULL &&
           member->suspicion < suspicion) {
        umi_comm_member_fail(member, member->cause, member->why);
    }
    umi_comm_group_put(group);
}

void
umi_comm_group_await_verdict(umi_comm_group *group)
{
    umx_timer_start(group->dispatch->worker, &group->verdict, VERDICT_NS);
}

static void
on_verdict(umx_timer *timer)
{
    umi_comm_group_fail_suspects(
        umi_container_of(timer, umi_comm_group, verdict), UINT64_MAX, false);
}

void
umi_comm_group_tell_dead(const umi_comm_member *member, const char *why)
{
    umi_comm_group *group  = member->group;
    umi_comm_header header = {.kind  = UMI_COMM_FAILED,
                              .round = UMI_COMM_WHOLE_GROUP,
                              .comm  = group->id};
    size_t          len    = (why != NULL) ? strlen(why) : 0;
    umi_comm_failed failed = {.rank = member->rank, .cause = member->cause};
    uint8_t         data[UMI_COMM_FAILED_MAX];

    if (group->rank != 0 || group->bootstrap != NULL ||
        group->dispatch->worker == NULL) {
        return;
    }
    failed.reason.data = (const uint8_t *)why;
    failed.reason.len  = (len < UMI_COMM_REASON_MAX) ? len :
                                                       UMI_COMM_REASON_MAX - 1;
    len                = umi_comm_failed_encode(&failed, data, sizeof(data));
    for (int i = 1; i < group->size; i++) {
        if (umi_comm_member_is_up(&group->members[i])) {
            umi_comm_member_send(&group->members[i], &header, data, len);
        }
    }
}

void
umi_comm_group_on_failed(umi_comm_member *from, const umi_comm_failed *failed)
{
    umi_comm_group *group = from->group;
    char            why[UMI_COMM_REASON_MAX];
    size_t          len = failed->reason.len;

    if (failed->rank < 0 || failed->rank >= group->size ||
        (from->rank != 0 && failed->rank != from->rank)) {
        return;
    }
    len = (len < sizeof(why)) ? len : sizeof(why) - 1;
    if (len != 0) {
        memcpy(why, failed->reason.data, len);
    }
    why[len] = '\0';
    umi_comm_member_fail(&group->members[failed->rank],
                         (failed->cause < 0) ? (umx_status)failed->cause :
                                               UMX_ERR_RANK_FAILED,
                         why);
}

/* ---- heartbeats ----------------------------------------------------------
 */

/* Find out with which members heartbeats are exchanged: in each communicator
 * the lowest rank that has not left watches the others, and they watch it. */
static void
mark_due(umi_comm_group *group)
{
    for (int i = 0; i < group->size; i++) {
        group->members[i].is_due = false;
    }
    UMI_LIST_FOREACH(node, &group->comms) {
        const umx_comm *comm    = umi_container_of(node, umx_comm, group_node);
        int             watcher = 0;

        if (comm->ranks == NULL || comm->is_closed || comm->is_revoked) {
            continue;
        }
        while (comm->ranks[watcher].is_gone) { /* this rank is not */
            watcher++;
        }
        if (watcher != comm->rank) {
            comm->ranks[watcher].member->is_due = true;
            continue;
        }
        for (int i = watcher + 1; i < comm->size; i++) {
            if (!comm->ranks[i].is_gone) {
                comm->ranks[i].member->is_due = true;
            }
        }
    }
}

/* Start and end the watching of members as communicators come and go. */
static void
update_watched(umi_comm_group *group, uint64_t now)
{
    mark_due(group);
    for (int i = 0; i < group->size; i++) {
        umi_comm_member *member = &group->members[i];

        if (member->is_due && !member->is_watched) {
            umi_comm_member_heard(member, now);
        }
        member->is_watched = member->is_due;
    }
}

static void
ping(umi_comm_member *member, bool is_answer)
{
    umi_comm_header header = {.kind   = UMI_COMM_PING,
                              .round  = is_answer ? UMI_COMM_ANSWER : 0,
                              .source = (uint32_t)member->group->rank,
                              .comm   = member->group->id};

    umi_comm_member_send(member, &header, NULL, 0);
}

void
umi_comm_group_on_ping(umi_comm_member *member, bool is_answer)
{
    if (!is_answer && !member->is_watched && !member->group->is_left) {
        ping(member, true);
    }
}

/* The member has been silent for too long. A process of this host that runs is
 * waited for: it computes, and makes no progress meanwhile. */
static void
judge(umi_comm_member *member, uint64_t now)
{
    umi_comm_group   *group  = member->group;
    double            silent = (double)(now - member->heard_ns) / 1e9;
    umx_process_state state  = (member->out != NULL) ?
                                   umx_ep_peer_process(member->out) :
                                   UMX_PROCESS_UNKNOWN;
    char              why[UMI_COMM_REASON_MAX];

    if (state == UMX_PROCESS_RUNS) {
        if (now - member->warned_ns >= group->heartbeat_ns) {
            member->warned_ns = now;
            umi_log(UMI_LOG_WARN,
                    "communicator: process %d has given no sign of life for "
                    "%.1f s, but runs: it is waited for",
                    member->rank, silent);
        }
        return;
    }
    (void)snprintf(
        why, sizeof(why), "silent for %.1f s: %s", silent,
        (state == UMX_PROCESS_STOPPED) ?
            "its process is stopped" :
        (state == UMX_PROCESS_ENDED) ?
            "its process has ended" :
            "Connection timed out (errno 110): a process that is not "
            "of this host, and makes no progress, counts as ended");
    umi_comm_member_fail(member, UMX_ERR_TIMED_OUT, why);
}

static unsigned
count_signs(const umi_comm_member *member)
{
    unsigned num_signs = 0;

    if (member->mine != NULL) {
        num_signs += umx_ep_count_signs(member->mine);
    }
    if (member->theirs != NULL) {
        num_signs += umx_ep_count_signs(member->theirs);
    }
    return num_signs;
}

/* Ask for a sign of life. It comes by the socket of the endpoint, before all
 * that is being sent. To a member without an endpoint a message goes, which
 * makes one. */
static void
ask(umi_comm_member *member)
{
    if (member->out == NULL) {
        ping(member, false);
    } else {
        umx_ep_ask(member->out);
    }
}

static void
check(umi_comm_member *member, uint64_t now)
{
    unsigned num_signs = count_signs(member);

    if (!member->is_watched || !umi_comm_member_is_up(member)) {
        return;
    }
    if (num_signs != member->num_signs) {
        member->num_signs = num_signs;
        umi_comm_member_heard(member, now);
    } else if (++member->num_silent >= SILENT_QUARTERS) {
        judge(member, now);
    } else {
        ask(member);
    }
}

/* Compute how much too late the beat comes, or will come; 0: in time. */
static uint64_t
lateness(const umi_comm_group *group, uint64_t now)
{
    uint64_t limit = group->next_beat_ns + group->heartbeat_ns;

    return (now > limit) ? now - group->next_beat_ns : 0;
}

uint64_t
umi_comm_group_stopped_ns(const umi_comm_group *group)
{
    uint64_t late = 0;

    if (group->heartbeat_ns != 0) {
        late = lateness(group, umi_clock_ns());
    }
    return (late != 0) ? late : group->late_ns;
}

static void
await_beat(umi_comm_group *group, uint64_t now)
{
    uint64_t quarter_ns = group->heartbeat_ns / QUARTERS;

    group->next_beat_ns = now + quarter_ns;
    umx_timer_start(group->dispatch->worker, &group->heartbeat, quarter_ns);
}

/* Look who is silent of those that are watched, and ask them for a sign of
 * life. */
static void
beat(umx_timer *timer)
{
    umi_comm_group *group = umi_container_of(timer, umi_comm_group, heartbeat);
    uint64_t        now   = umi_clock_ns();

    umi_refs_get(&group->refs);
    group->late_ns = lateness(group, now);
    /* A process that has been stopped has heard nothing; it does not take the
     * others for dead, as what they sent in the meantime comes now. */
    if (now - group->next_beat_ns > group->heartbeat_ns / 2 &&
        now > group->next_beat_ns) {
        for (int i = 0; i < group->size; i++) {
            umi_comm_member_heard(&group->members[i], now);
        }
    }
    update_watched(group, now);
    for (int i = 0; i < group->size; i++) {
        check(&group->members[i], now);
    }
    await_beat(group, now);
    umi_comm_group_put(group);
}

/* ---- life ----------------------------------------------------------------
 */

umi_comm_group *
umi_comm_group_new(umi_comm_dispatch *dispatch, int rank, int size)
{
    umi_comm_group *group = calloc(1, sizeof(*group));

    if (group == NULL) {
        return NULL;
    }
    group->members = calloc((size_t)size, sizeof(*group->members));
    if (group->members == NULL) {
        free(group);
        return NULL;
    }
    for (int i = 0; i < size; i++) {
        group->members[i].group = group;
        group->members[i].rank  = i;
    }
    umi_list_init(&group->comms);
    umx_timer_init(&group->heartbeat, beat);
    umx_timer_init(&group->verdict, on_verdict);
    group->dispatch = dispatch;
    group->rank     = rank;
    group->size     = size;
    umi_refs_init(&group->refs);
    umi_refs_get(&dispatch->refs);
    umi_list_append(&dispatch->groups, &group->node);
    return group;
}

void
umi_comm_group_put(umi_comm_group *group)
{
    if (umi_refs_is_last(&group->refs)) {
        leave(group);
    }
    if (!umi_refs_put(&group->refs)) {
        return;
    }
    if (group->dispatch->worker != NULL) {
        stop_timers(group);
        if (group->is_crowded) {
            umx_worker_crowd(group->dispatch->worker, false);
        }
    }
    umi_node_remove(&group->node);
    for (int i = 0; i < group->size; i++) {
        umi_comm_member_release_eps(&group->members[i]);
        free(group->members[i].address);
        free(group->members[i].why);
    }
    umi_comm_dispatch_put(group->dispatch);
    free(group->members);
    free(group);
}

/* Have more processes of the group met on this host than it has processors? */
static bool
is_crowded(const umi_comm_group *group)
{
    const umi_comm_member *self = &group->members[group->rank];
    unsigned               here = 1; /* this process */

    for (int i = 0; i < group->size; i++) {
        const umi_comm_member *other = &group->members[i];

        here += other != self &&
                umx_address_is_beside(self->address, self->address_len,
                                      other->address, other->address_len);
    }
    return here > umi_cpu_count();
}

void
umi_comm_group_start(umi_comm_group *group)
{
    uint64_t now = umi_clock_ns();

    if (!group->is_crowded && is_crowded(group)) {
        group->is_crowded = true;
        umx_worker_crowd(group->dispatch->worker, true);
    }
    for (int i = 0; i < group->size; i++) {
        umi_comm_member_heard(&group->members[i], now);
    }
    if (group->heartbeat_ns != 0 && group->size > 1) {
        await_beat(group, now);
    }
}
