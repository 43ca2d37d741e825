/* SPDX-License-Identifier: BSD-3-Clause */
/* member.c: a process of a group, and the endpoints to it.
 *
 * Each process has an endpoint to the root, by which it is known to be alive.
 * The others are made when there is something to send; two processes may make
 * one at the same time, and then each sends on one of them only, since messages
 * keep their order on an endpoint.
 *
 * That a process has ended is heard here: on_state(). The root hears it first,
 * of each process, and says what it means; the others wait for its word. If the
 * root is silent, group.c has the verdict. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "comm/communicator.h"
#include "comm/dispatch.h"
#include "comm/member.h"
#include "util/count.h"
#include "util/log.h"

/* ---- the state -----------------------------------------------------------
 */

/* For each state, the states that it can change to: a bit for each. */
static const unsigned edges[] = {
    [UMI_COMM_MEMBER_ALIVE] = 1u << UMI_COMM_MEMBER_SUSPECT |
                              1u << UMI_COMM_MEMBER_DEAD |
                              1u << UMI_COMM_MEMBER_LEFT,
    [UMI_COMM_MEMBER_SUSPECT] = 1u << UMI_COMM_MEMBER_DEAD,
    [UMI_COMM_MEMBER_DEAD]    = 0,
    [UMI_COMM_MEMBER_LEFT]    = 1u << UMI_COMM_MEMBER_ALIVE |
                             1u << UMI_COMM_MEMBER_SUSPECT |
                             1u << UMI_COMM_MEMBER_DEAD,
};

void
umi_comm_member_set_state(umi_comm_member *member, umi_comm_member_state state)
{
    bool is_edge = (edges[member->state] >> state & 1) != 0;

    (void)is_edge; /* without assert() */
    assert(is_edge);
    member->state = state;
}

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

bool
umi_comm_member_has_said_goodbye(const umi_comm_member *member)
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

/* ---- endpoints -----------------------------------------------------------
 */

void
umi_comm_release_ep(umx_ep **ep_p)
{
    umx_ep *ep = *ep_p;

    *ep_p = NULL;
    if (ep != NULL) {
        umx_layer_ep_set_on_state(ep, NULL, NULL);
        umx_ep_destroy(ep);
    }
}

void
umi_comm_member_release_eps(umi_comm_member *member)
{
    member->out = NULL;
    umi_comm_release_ep(&member->mine);
    umi_comm_release_ep(&member->theirs);
}

/* Release an endpoint of a member that leaves, and keep the other one: the
 * member closes them one after the other, and what it has sent before may still
 * come by the second. */
static void
forget_ep(umi_comm_member *member, const umx_ep *ep)
{
    member->out = (ep == member->mine) ? member->theirs : member->mine;
    umi_comm_release_ep((ep == member->mine) ? &member->mine : &member->theirs);
    if (member->out == NULL) {
        umi_comm_member_set_state(member, UMI_COMM_MEMBER_LEFT);
    }
}

/* Does the root say what the end of an endpoint to the member means? The root
 * sees the end of each process, and those that leave tell it why: the others
 * wait for its word, as long as it is there. */
static bool
is_judged(const umi_comm_member *member)
{
    const umi_comm_group  *group = member->group;
    const umi_comm_member *root  = &group->members[0];

    return group->rank != 0 && member != root && group->bootstrap == NULL &&
           umi_comm_member_is_up(root) && root->out != NULL &&
           !umi_comm_member_has_said_goodbye(root);
}

/* Can the member still say on its other endpoint why this one has ended? */
static bool
has_other_ep(const umi_comm_member *member, const umx_ep *ep)
{
    const umx_ep *other = (ep == member->mine) ? member->theirs : member->mine;

    return other != NULL && umx_ep_get_state(other) == UMX_EP_OPEN &&
           !umx_ep_is_peer_closed(other);
}

/* Tell people why an endpoint to the member has ended. */
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
    if (status == UMX_ERR_PEER_CLOSED && umi_comm_member_is_up(member) &&
        umi_comm_member_has_said_goodbye(member)) {
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
    if (member->state == UMI_COMM_MEMBER_LEFT) {
        umi_comm_member_set_state(member, UMI_COMM_MEMBER_ALIVE);
    }
    umx_layer_ep_set_on_state(ep, on_state, member);
    umx_ep_set_keepalive(ep, member->group->heartbeat_ns);
}

/* Get the endpoint to send by, whatever the state of the member is. */
static umx_status
get_ep(umi_comm_member *member, umx_ep **ep_p)
{
    umx_worker        *worker = member->group->dispatch->worker;
    umx_connect_params params = {.field_mask = 0};
    umx_ep            *ep;
    umx_status         status;

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

umx_status
umi_comm_member_ep(umi_comm_member *member, umx_ep **ep_p)
{
    return umi_comm_member_is_up(member) ? get_ep(member, ep_p) :
                                           UMX_ERR_RANK_FAILED;
}

bool
umi_comm_member_is_lost_unseen(const umi_comm_member *member)
{
    return umi_comm_group_stopped_ns(member->group) != 0 &&
           umx_ep_is_hung_up(member->out);
}

void
umi_comm_member_heard(umi_comm_member *member, uint64_t now)
{
    member->heard_ns   = now;
    member->num_silent = 0;
}

bool
umi_comm_member_has_ep(const umi_comm_member *member, const umx_ep *ep)
{
    return ep == member->theirs || ep == member->mine;
}

bool
umi_comm_member_claim_ep(umi_comm_member *member, umx_ep *ep)
{
    uint8_t id[UMX_WORKER_ID_SIZE];

    if (member->theirs != NULL || member->state == UMI_COMM_MEMBER_DEAD ||
        !umx_ep_peer_worker_id(ep, id) ||
        memcmp(id, member->worker_id, sizeof(id)) != 0 || !umx_ep_claim(ep)) {
        return false;
    }
    umi_comm_member_add_ep(member, ep, false);
    return true;
}

/* ---- failure -------------------------------------------------------------
 */

void
umi_comm_member_suspect(umi_comm_member *member, umx_status cause,
                        const char *why)
{
    umi_comm_group *group = member->group;

    if (!umi_comm_member_is_up(member)) {
        return;
    }
    if (group->dispatch->worker == NULL) { /* there are no timers any more */
        umi_comm_member_fail(member, cause, why);
        return;
    }
    umi_comm_member_set_state(member, UMI_COMM_MEMBER_SUSPECT);
    member->suspicion = group->num_suspicions++;
    member->cause     = cause;
    member->why       = (why != NULL) ? strdup(why) : NULL;
    umi_comm_group_await_verdict(group);
}

bool
umi_comm_may_be_end(umx_status status)
{
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
        return true;
    default:
        return false;
    }
}

void
umi_comm_member_check(umi_comm_member *member, umx_status status,
                      const char *why)
{
    const umx_ep *ep = member->out;

    if ((ep == NULL && umi_comm_may_be_end(status)) ||
        (ep != NULL && status < 0 &&
         (umx_ep_get_state(ep) != UMX_EP_OPEN || umx_ep_is_peer_closed(ep)))) {
        umi_comm_member_suspect(member, status, why);
    }
}

/* Revoke the communicators that the dead member takes part in. Callbacks may
 * give communicators back meanwhile. */
static void
revoke_comms(const umi_comm_member *member, const char *why)
{
    umi_list *comms = &member->group->comms;
    size_t    left  = umi_list_count(comms);
    umi_node *turn;

    UMI_LIST_FOREACH(node, comms) {
        umi_comm_hold(umi_container_of(node, umx_comm, group_node));
    }
    while ((turn = umi_list_turn(comms, &left)) != NULL) {
        umi_comm_lose(umi_container_of(turn, umx_comm, group_node), member,
                      why);
    }
    left = umi_list_count(comms);
    while ((turn = umi_list_turn(comms, &left)) != NULL) {
        umi_comm_put(umi_container_of(turn, umx_comm, group_node));
    }
}

static void
abort_eps(umi_comm_member *member)
{
    if (member->out == NULL) {
        return;
    }
    if (member->mine != NULL) {
        umx_ep_abort(member->mine);
    }
    if (member->theirs != NULL) {
        umx_ep_abort(member->theirs);
    }
    umi_comm_member_release_eps(member);
}

void
umi_comm_member_fail(umi_comm_member *member, umx_status cause, const char *why)
{
    umi_comm_group *group   = member->group;
    bool            is_root = member == &group->members[0];
    char           *kept;

    if (member->state == UMI_COMM_MEMBER_DEAD) {
        return;
    }
    umi_refs_get(&group->refs);
    /* The root hears of ends from nobody else, and neither does a process that
     * has lost the root: what was suspected before is an end, too, and the
     * failure is named after the first. A member that has closed its endpoint
     * may have done so because it knew of the root's end first. */
    if (group->rank == 0 || is_root) {
        umi_comm_group_fail_suspects(
            group,
            (member->state == UMI_COMM_MEMBER_SUSPECT) ? member->suspicion :
                                                         UINT64_MAX,
            is_root);
    }
    if (member->state == UMI_COMM_MEMBER_DEAD) {
        umi_comm_group_put(group);
        return;
    }
    umi_comm_member_set_state(member, UMI_COMM_MEMBER_DEAD);
    umi_log(UMI_LOG_INFO, "communicator: process %d of %d is lost: %s%s%s",
            member->rank, group->size, umx_status_string(cause),
            (why != NULL && why[0] != '\0') ? ": " : "",
            (why != NULL) ? why : "");
    kept          = member->why; /* `why` may be it */
    member->cause = cause;
    member->why   = NULL;
    group->num_judging++;
    umi_comm_group_tell_dead(member, why);
    revoke_comms(member, why);
    UMI_DECREMENT(group->num_judging);
    abort_eps(member);
    free(kept);
    if (is_root) {
        umi_comm_group_fail_suspects(group, UINT64_MAX, false);
    }
    umi_comm_group_put(group);
}

/* ---- control messages ----------------------------------------------------
 */

/* A control message that is being sent, and its bytes, which are lent to the
 * channel. */
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
    UMI_DECREMENT(sent->dispatch->num_controls);
    umi_comm_dispatch_put(sent->dispatch);
    free(sent);
}

umx_status
umi_comm_send_control(umi_comm_dispatch *dispatch, umx_ep *ep,
                      const umi_comm_header *header, const void *data,
                      size_t len)
{
    uint8_t       bytes[UMI_COMM_HEADER_MAX];
    size_t        header_len = umi_comm_header_encode(header, bytes);
    control      *sent       = malloc(sizeof(*sent) + len);
    umx_op_params params     = umx_layer_op_params(on_sent, sent);
    umx_buffer    buf;
    umx_request  *req;
    umx_status    status;

    if (sent == NULL) {
        return UMX_ERR_NO_MEMORY;
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
        umi_refs_get(&dispatch->refs);
    } else {
        free(sent);
    }
    return (status < 0) ? status : UMX_OK;
}

static bool
is_end(const umi_comm_header *header)
{
    return header->kind == UMI_COMM_FAILED || header->kind == UMI_COMM_BYE;
}

/* Send an end by the member's other endpoints, too, also by those that nothing
 * has come by yet: the end of any endpoint counts as the end of this process,
 * and the message that says why is to come before. */
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

/* Send a control message by `ep`; an end by the other endpoints, too. */
static umx_status
send_by(umi_comm_member *member, umx_ep *ep, const umi_comm_header *header,
        const void *data, size_t len)
{
    umx_status status = umi_comm_send_control(member->group->dispatch, ep,
                                              header, data, len);

    if (status == UMX_OK && is_end(header)) {
        send_on_others(member, header, data, len);
    }
    return status;
}

void
umi_comm_member_send(umi_comm_member *member, const umi_comm_header *header,
                     const void *data, size_t len)
{
    static const char why[] = "it could not be told of an end";

    umx_ep    *ep;
    umx_status status = umi_comm_member_ep(member, &ep);

    if (status == UMX_OK) {
        status = send_by(member, ep, header, data, len);
    }
    if (status == UMX_OK ||
        (!is_end(header) && header->kind != UMI_COMM_DONE)) {
        return;
    }
    if (member->group->num_judging != 0) { /* another one has ended before */
        umi_comm_member_suspect(member, status, why);
    } else {
        umi_comm_member_fail(member, status, why);
    }
}

void
umi_comm_member_send_last(umi_comm_member       *member,
                          const umi_comm_header *header, const void *data,
                          size_t len)
{
    umx_ep *ep;

    if (get_ep(member, &ep) == UMX_OK) {
        (void)send_by(member, ep, header, data, len);
    }
}
