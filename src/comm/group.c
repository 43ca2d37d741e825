/* SPDX-License-Identifier: BSD-3-Clause */
/* group.c: processes, and the endpoints between them.
 *
 * Each process has an endpoint to the root, by which it is known to be alive.
 * The others are made when there is something to send; two processes may make
 * one at the same time, and then each sends on one of them only, since messages
 * keep their order on an endpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umx/context.h>

#include "comm/communicator.h"
#include "util/clock.h"

/* ---- life ----------------------------------------------------------------
 */

enum {
    VERDICT_NS = 1000000000
};

static void beat(umx_timer *timer);
static void on_verdict(umx_timer *timer);

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
    group->refs     = 1;
    dispatch->refs++;
    umi_list_append(&dispatch->groups, &group->node);
    return group;
}

/* Endpoints are closed in the background: what was sent still arrives. */
static void
release_ep(umx_ep **ep_p)
{
    umx_ep *ep = *ep_p;

    *ep_p = NULL;
    if (ep != NULL) {
        umx_layer_ep_set_on_state(ep, NULL, NULL);
        umx_ep_destroy(ep);
    }
}

static void
release_eps(umi_comm_member *member)
{
    member->out = NULL;
    release_ep(&member->mine);
    release_ep(&member->theirs);
}

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
 * whose end would tell it. The root tells it, or, if the root has left, this
 * process does. */
static void
tell_lost(umi_comm_group *group)
{
    umi_comm_header header = {.kind   = UMI_COMM_FAILED,
                              .round  = UMI_COMM_WHOLE_GROUP,
                              .source = (uint32_t)group->rank,
                              .comm   = group->id};
    umi_comm_failed failed = {.rank = group->rank, .cause = group->lost_status};
    umi_comm_member *to    = &group->members[0];
    uint8_t          data[32 + UMI_COMM_REASON_MAX];
    char             why[UMI_COMM_REASON_MAX];
    size_t           len;

    (void)snprintf(why, sizeof(why),
                   "its connection to process %d has failed while it left",
                   group->lost->rank);
    failed.reason.data = (const uint8_t *)why;
    failed.reason.len  = strlen(why);
    len                = umi_comm_failed_encode(&failed, data, sizeof(data));
    if (to->out == NULL) {
        to          = group->lost;
        to->is_dead = false; /* by another connection */
    }
    umi_comm_member_send(to, &header, data, len);
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
        release_eps(group->lost);
    }
    stop_timers(group);
    release_eps(&group->members[0]);
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
    if (--group->num_closing == 0) {
        finish_leaving(group);
    }
    umi_comm_group_put(group);
}

/* Close an endpoint, and wait for its end: has all been received? */
static void
close_ep(umi_comm_member *member, umx_ep **ep_p)
{
    const umx_worker *worker = member->group->dispatch->worker;
    const umx_config *config;
    umx_op_params     params = {.flags      = UMX_OP_FLAG_LAYER,
                                .field_mask = UMX_OP_FIELD_FLAGS |
                                              UMX_OP_FIELD_ON_DONE,
                                .on_done = on_closed,
                                .arg     = member};
    umx_request      *req;

    if (*ep_p == NULL) {
        return;
    }
    config = umx_context_config(umx_worker_get_context(worker));
    if (umx_ep_get_state(*ep_p) == UMX_EP_FAILED) {
        note_lost(member, umx_ep_error(*ep_p));
    } else if (umx_ep_close(*ep_p, config->close_timeout_ns, &params, &req) ==
               UMX_INPROGRESS) {
        member->group->refs++;
        member->group->num_closing++;
    }
    release_ep(ep_p);
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
    group->refs++;
    group->num_closing++;
    for (int i = 0; i < group->size; i++) {
        umi_comm_member *member = &group->members[i];

        if (member->is_dead && i != 0) {
            note_lost(member, member->cause);
        }
        if (group->rank == 0) {
            release_eps(member);
        } else if (i != 0) {
            member->out = NULL;
            close_ep(member, &member->mine);
            close_ep(member, &member->theirs);
        }
    }
    if (--group->num_closing == 0) {
        finish_leaving(group);
    }
    umi_comm_group_put(group);
}

void
umi_comm_group_put(umi_comm_group *group)
{
    if (group->refs == 1) {
        leave(group);
    }
    if (--group->refs != 0) {
        return;
    }
    if (group->dispatch->worker != NULL) {
        stop_timers(group);
    }
    umi_node_remove(&group->node);
    for (int i = 0; i < group->size; i++) {
        release_eps(&group->members[i]);
        free(group->members[i].address);
        free(group->members[i].why);
    }
    umi_comm_dispatch_put(group->dispatch);
    free(group->members);
    free(group);
}

void
umi_comm_group_close_eps(umi_comm_group *group)
{
    UMI_LIST_FOREACH(node, &group->comms) {
        const umx_comm *comm = umi_container_of(node, umx_comm, group_node);

        if (!comm->is_closed || comm->is_dropped || comm->refs != 1) {
            return;
        }
    }
    leave(group);
}

void
umi_comm_group_start(umi_comm_group *group)
{
    uint64_t now = umi_clock_ns();

    for (int i = 0; i < group->size; i++) {
        group->members[i].heard_ns = now;
    }
    if (group->heartbeat_ns != 0 && group->size > 1) {
        group->next_beat_ns = now + group->heartbeat_ns / 2;
        umx_timer_start(group->dispatch->worker, &group->heartbeat,
                        group->heartbeat_ns / 2);
    }
}

/* ---- members -------------------------------------------------------------
 */

bool
umi_comm_member_set_address(umi_comm_member *member, const void *address,
                            size_t len)
{
    void *copy;

    if (!umx_address_worker_id(address, len, member->worker_id)) {
        return false;
    }
    copy = malloc(len);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, address, len);
    free(member->address);
    member->address     = copy;
    member->address_len = len;
    return true;
}

/* Has the member said goodbye to every communicator that it shares with this
 * process, and that is in use here? */
static bool
has_left(const umi_comm_member *member)
{
    UMI_LIST_FOREACH(node, &member->group->comms) {
        const umx_comm *comm = umi_container_of(node, umx_comm, group_node);
        int             rank = umi_comm_rank_of(comm, member);

        if (rank >= 0 && !comm->is_closed && !comm->ranks[rank].is_gone) {
            return false;
        }
    }
    return true;
}

/* A member that has left closes its endpoints one after the other: what it has
 * sent before may still come on the second. */
static void
forget_ep(umi_comm_member *member, const umx_ep *ep)
{
    member->out = (ep == member->mine) ? member->theirs : member->mine;
    release_ep((ep == member->mine) ? &member->mine : &member->theirs);
}

/* The root sees the end of each process, and is told why by those that leave:
 * others wait for what it says, as long as it is there. */
static bool
is_judged(const umi_comm_member *member)
{
    const umi_comm_group  *group = member->group;
    const umi_comm_member *root  = &group->members[0];

    return group->rank != 0 && member != root && group->bootstrap == NULL &&
           !root->is_dead && root->out != NULL && !has_left(root);
}

/* Can the member still say on its other endpoint why this one has ended? */
static bool
has_other_ep(const umi_comm_member *member, const umx_ep *ep)
{
    const umx_ep *other = (ep == member->mine) ? member->theirs : member->mine;

    return other != NULL && umx_ep_get_state(other) == UMX_EP_OPEN &&
           !umx_ep_is_peer_closed(other);
}

/* Why an endpoint to the member has ended, for people. */
static const char *
reason_of(const umi_comm_member *member, const umx_ep *ep)
{
    UMI_LIST_FOREACH(node, &member->group->comms) {
        const umx_comm *comm = umi_container_of(node, umx_comm, group_node);
        int             rank = umi_comm_rank_of(comm, member);

        if (rank >= 0 && comm->ranks[rank].is_gone) {
            return "it has closed its communicator";
        }
    }
    return umx_ep_reason(ep);
}

static void
on_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    umi_comm_member *member = arg;

    if (state == UMX_EP_OPEN && !umx_ep_is_peer_closed(ep)) {
        return;
    }
    if (state == UMX_EP_OPEN) {
        status = UMX_ERR_PEER_CLOSED;
    }
    if (status == UMX_ERR_PEER_CLOSED && !member->is_dead && has_left(member)) {
        forget_ep(member, ep);
    } else if (is_judged(member) || has_other_ep(member, ep)) {
        umi_comm_member_suspect(member, status, reason_of(member, ep));
    } else {
        umi_comm_member_fail(member, status, reason_of(member, ep));
    }
}

void
umi_comm_member_add_ep(umi_comm_member *member, umx_ep *ep, bool is_mine)
{
    if (is_mine) {
        member->mine = ep;
    } else {
        member->theirs = ep;
    }
    if (member->out == NULL) {
        member->out = ep;
    }
    umx_layer_ep_set_on_state(ep, on_state, member);
}

umx_status
umi_comm_member_ep(umi_comm_member *member, umx_ep **ep_p)
{
    umx_worker        *worker = member->group->dispatch->worker;
    umx_connect_params params = {.field_mask = 0};
    umx_ep            *ep;
    umx_status         status;

    if (member->is_dead) {
        return UMX_ERR_RANK_FAILED;
    }
    if (member->out == NULL) {
        if (worker == NULL) {
            return UMX_ERR_CLOSED;
        }
        status = umx_ep_connect_address(worker, member->address,
                                        member->address_len, &params, &ep);
        if (status != UMX_OK) {
            return status;
        }
        umi_comm_member_add_ep(member, ep, true);
    }
    *ep_p = member->out;
    return UMX_OK;
}

bool
umi_comm_member_has_ep(umi_comm_member *member, umx_ep *ep)
{
    uint8_t id[UMX_WORKER_ID_SIZE];

    if (ep == member->theirs || ep == member->mine) {
        return true;
    }
    /* Which process has made it the handshake has shown. */
    if (member->theirs != NULL || (member->is_dead && !member->is_suspect) ||
        !umx_ep_peer_worker_id(ep, id) ||
        memcmp(id, member->worker_id, sizeof(id)) != 0 || !umx_ep_claim(ep)) {
        return false;
    }
    umi_comm_member_add_ep(member, ep, false);
    return true;
}

/* ---- failure -------------------------------------------------------------
 */

/* The root alone has heartbeats with everybody. Communicators that it takes no
 * part in have to hear of the end of a process, too. */
static void
tell_group(const umi_comm_member *member, const char *why)
{
    umi_comm_group *group  = member->group;
    umi_comm_header header = {.kind  = UMI_COMM_FAILED,
                              .round = UMI_COMM_WHOLE_GROUP,
                              .comm  = group->id};
    size_t          len    = (why != NULL) ? strlen(why) : 0;
    umi_comm_failed failed = {.rank = member->rank, .cause = member->cause};
    uint8_t         data[32 + UMI_COMM_REASON_MAX];

    if (group->rank != 0 || group->bootstrap != NULL ||
        group->dispatch->worker == NULL) {
        return;
    }
    failed.reason.data = (const uint8_t *)why;
    failed.reason.len  = (len < UMI_COMM_REASON_MAX) ? len :
                                                       UMI_COMM_REASON_MAX - 1;
    len                = umi_comm_failed_encode(&failed, data, sizeof(data));
    for (int i = 1; i < group->size; i++) {
        if (!group->members[i].is_dead) {
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

/* Who was suspected first; NULL: nobody is. */
static umi_comm_member *
first_suspect(umi_comm_group *group)
{
    umi_comm_member *first = NULL;

    for (int i = 0; i < group->size; i++) {
        umi_comm_member *member = &group->members[i];

        if (member->is_suspect &&
            (first == NULL || member->suspicion < first->suspicion)) {
            first = member;
        }
    }
    return first;
}

/* Take what they are suspected of for the truth, of those that were suspected
 * before. The first is the one that the failure is named after. */
static void
fail_suspects_before(umi_comm_group *group, uint64_t suspicion)
{
    umi_comm_member *member;

    group->refs++;
    while ((member = first_suspect(group)) != NULL &&
           member->suspicion < suspicion) {
        umi_comm_member_fail(member, member->cause, member->why);
    }
    umi_comm_group_put(group);
}

static void
on_verdict(umx_timer *timer)
{
    fail_suspects_before(umi_container_of(timer, umi_comm_group, verdict),
                         UINT64_MAX);
}

void
umi_comm_member_suspect(umi_comm_member *member, umx_status cause,
                        const char *why)
{
    umi_comm_group *group = member->group;

    if (member->is_dead) {
        return;
    }
    if (group->dispatch->worker == NULL) { /* no timer */
        umi_comm_member_fail(member, cause, why);
        return;
    }
    member->is_dead    = true;
    member->is_suspect = true;
    member->suspicion  = group->num_suspicions++;
    member->cause      = cause;
    member->why        = (why != NULL) ? strdup(why) : NULL;
    umx_timer_start(group->dispatch->worker, &group->verdict, VERDICT_NS);
}

void
umi_comm_member_check(umi_comm_member *member, umx_status status,
                      const char *why)
{
    const umx_ep *ep = member->out;

    switch (status) {
    case UMX_ERR_IO_ERROR:
    case UMX_ERR_UNREACHABLE:
    case UMX_ERR_TIMED_OUT:
    case UMX_ERR_REJECTED:
    case UMX_ERR_NOT_CONNECTED:
    case UMX_ERR_CONNECTION_RESET:
    case UMX_ERR_ENDPOINT_TIMEOUT:
    case UMX_ERR_CLOSED:
    case UMX_ERR_PEER_CLOSED:
    case UMX_ERR_WORKER_GONE:
    case UMX_ERR_STALE_KEY:
        umi_comm_member_suspect(member, status, why);
        return;
    default:
        break;
    }
    if (status < 0 && ep != NULL &&
        (umx_ep_get_state(ep) != UMX_EP_OPEN || umx_ep_is_peer_closed(ep))) {
        umi_comm_member_suspect(member, status, why);
    }
}

void
umi_comm_member_fail(umi_comm_member *member, umx_status cause, const char *why)
{
    umi_comm_group *group = member->group;
    char           *kept;

    if (member->is_dead && !member->is_suspect) {
        return;
    }
    group->refs++;
    /* Nobody says more about others. */
    if (group->rank == 0 || member == &group->members[0]) {
        uint64_t before = member->is_suspect ? member->suspicion : UINT64_MAX;

        fail_suspects_before(group, before);
        if (member->is_dead && !member->is_suspect) {
            umi_comm_group_put(group);
            return;
        }
    }
    kept               = member->why; /* `why` may be it */
    member->is_dead    = true;
    member->is_suspect = false;
    member->cause      = cause;
    member->why        = NULL;
    tell_group(member, why);
    UMI_LIST_FOREACH(node, &group->comms) {
        umi_comm_hold(umi_container_of(node, umx_comm, group_node));
    }
    UMI_LIST_FOREACH(node, &group->comms) {
        umi_comm_lose(umi_container_of(node, umx_comm, group_node), member,
                      why);
    }
    UMI_LIST_FOREACH_SAFE(node, &group->comms) {
        umi_comm_put(umi_container_of(node, umx_comm, group_node));
    }
    if (member->out != NULL) {
        if (member->mine != NULL) {
            umx_ep_abort(member->mine);
        }
        if (member->theirs != NULL) {
            umx_ep_abort(member->theirs);
        }
        release_eps(member);
    }
    free(kept);
    if (member == &group->members[0]) {
        fail_suspects_before(group, UINT64_MAX);
    }
    umi_comm_group_put(group);
}

/* ---- control messages ----------------------------------------------------
 */

/* One on its way, with what is lent to it. */
typedef struct control {
    umi_comm_dispatch *dispatch; /* held */
    uint8_t            data[];
} control;

static void
on_sent(umx_request *req, umx_status status, void *arg)
{
    control *sent = arg;

    (void)req;
    (void)status;
    sent->dispatch->num_controls--;
    umi_comm_dispatch_put(sent->dispatch);
    free(sent);
}

bool
umi_comm_send_control(umi_comm_dispatch *dispatch, umx_ep *ep,
                      const umi_comm_header *header, const void *data,
                      size_t len)
{
    uint8_t       bytes[UMI_COMM_HEADER_MAX];
    size_t        header_len = umi_comm_header_encode(header, bytes);
    control      *sent       = malloc(sizeof(*sent) + len);
    umx_op_params params     = {.flags      = UMX_OP_FLAG_LAYER,
                                .field_mask = UMX_OP_FIELD_FLAGS |
                                              UMX_OP_FIELD_ON_DONE,
                                .on_done = on_sent,
                                .arg     = sent};
    umx_buffer    buf;
    umx_request  *req;
    umx_status    status;

    if (sent == NULL) {
        return false;
    }
    sent->dispatch = dispatch;
    if (len != 0) {
        memcpy(sent->data, data, len);
    }
    buf    = umx_host_buffer(sent->data, len);
    status = umx_layer_am_send(ep, UMX_AM_ID_COMM, bytes, header_len, &buf,
                               &params, &req);
    if (status == UMX_INPROGRESS) {
        dispatch->num_controls++;
        dispatch->refs++;
    } else {
        free(sent);
    }
    return status >= 0;
}

/* The end of any endpoint is the end of the process: a message that says why
 * comes before all of them, those that nothing has come by yet included. */
static void
send_on_others(umi_comm_member *member, const umi_comm_header *header,
               const void *data, size_t len)
{
    umx_worker *worker = member->group->dispatch->worker;
    umx_ep *ep = (member->out == member->mine) ? member->theirs : member->mine;

    if (ep != NULL) {
        (void)umi_comm_send_control(member->group->dispatch, ep, header, data,
                                    len);
    }
    ep = umx_worker_find_addressed(worker, member->worker_id, NULL);
    while (ep != NULL) {
        umx_ep *next = umx_worker_find_addressed(worker, member->worker_id, ep);

        (void)umi_comm_send_control(member->group->dispatch, ep, header, data,
                                    len);
        ep = next;
    }
}

void
umi_comm_member_send(umi_comm_member *member, const umi_comm_header *header,
                     const void *data, size_t len)
{
    bool is_end = header->kind == UMI_COMM_FAILED ||
                  header->kind == UMI_COMM_BYE;
    umx_ep    *ep;
    umx_status status = umi_comm_member_ep(member, &ep);

    if (status == UMX_OK && !umi_comm_send_control(member->group->dispatch, ep,
                                                   header, data, len)) {
        status = UMX_ERR_NO_MEMORY;
    }
    if (status == UMX_OK && is_end) {
        send_on_others(member, header, data, len);
    }
    if (status != UMX_OK && (is_end || header->kind == UMI_COMM_DONE)) {
        umi_comm_member_fail(member, status, "it could not be told of an end");
    }
}

/* ---- heartbeats ----------------------------------------------------------
 */

static void
check(umi_comm_member *member, uint64_t now)
{
    umi_comm_group *group  = member->group;
    umi_comm_header header = {.kind   = UMI_COMM_PING,
                              .source = (uint32_t)group->rank,
                              .comm   = group->id};

    if (member->is_dead || member->rank == group->rank ||
        (member->out == NULL && has_left(member))) {
        return;
    }
    if (now - member->heard_ns > group->heartbeat_ns * 3 / 2) {
        umi_comm_member_fail(member, UMX_ERR_TIMED_OUT, "no sign of life");
    } else {
        umi_comm_member_send(member, &header, NULL, 0);
    }
}

/* How much later than it should the beat comes, or will come; 0: in time. */
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

/* The root and each other process tell each other that they are alive. */
static void
beat(umx_timer *timer)
{
    umi_comm_group *group = umi_container_of(timer, umi_comm_group, heartbeat);
    uint64_t        now   = umi_clock_ns();

    group->refs++;
    group->late_ns = lateness(group, now);
    /* A process that has been stopped has heard nothing; what was sent to it
     * meanwhile comes now. */
    if (now - group->next_beat_ns > group->heartbeat_ns / 2 &&
        now > group->next_beat_ns) {
        for (int i = 0; i < group->size; i++) {
            group->members[i].heard_ns = now;
        }
    }
    if (group->rank != 0) {
        check(&group->members[0], now);
    } else {
        for (int i = 1; i < group->size; i++) {
            check(&group->members[i], now);
        }
    }
    group->next_beat_ns = now + group->heartbeat_ns / 2;
    umx_timer_start(group->dispatch->worker, timer, group->heartbeat_ns / 2);
    umi_comm_group_put(group);
}
