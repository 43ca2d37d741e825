/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch.c: where messages of ranks arrive, and whose they are. */
#include <stdlib.h>
#include <string.h>
#include <umx/loan.h>

#include "comm/bootstrap.h"
#include "comm/collective.h"
#include "comm/communicator.h"
#include "comm/dispatch.h"
#include "comm/inbox.h"
#include "comm/late.h"
#include "comm/describe.h"
#include "comm/member.h"
#include "comm/send_recv.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/count.h"

enum {
    /* With so many orphans, those of ended endpoints are looked for, and
     * dropped. Messages of an endpoint that has not ended are limited by its
     * credit, which they keep: what one peer sends never costs another its
     * messages. */
    MAX_ORPHANS = 4096
};

static void
drop_orphan(umi_comm_dispatch *dispatch, umi_comm_orphan *orphan)
{
    umi_node_remove(&orphan->node);
    UMI_DECREMENT(dispatch->num_orphans);
    umx_message_drop(orphan->message);
    free(orphan);
}

/* Drop the orphans of endpoints that have ended. The rest may all be of peers
 * that run, so the next look waits until there are twice as many. */
static void
drop_ended(umi_comm_dispatch *dispatch)
{
    UMI_LIST_FOREACH_SAFE(node, &dispatch->orphans) {
        umi_comm_orphan *orphan = umi_container_of(node, umi_comm_orphan, node);

        if (umx_ep_get_state(orphan->ep) != UMX_EP_OPEN ||
            umx_ep_is_peer_closed(orphan->ep)) {
            drop_orphan(dispatch, orphan);
        }
    }
    dispatch->max_orphans = 2 * dispatch->num_orphans;
    if (dispatch->max_orphans < MAX_ORPHANS) {
        dispatch->max_orphans = MAX_ORPHANS;
    }
}

/* Keep a message of a communicator that is not known here yet. */
static void
keep_orphan(umi_comm_dispatch *dispatch, umx_ep *ep, umx_message *message)
{
    umi_comm_orphan *orphan;

    if (dispatch->num_orphans >= dispatch->max_orphans) {
        drop_ended(dispatch);
    }
    orphan = malloc(sizeof(*orphan));
    if (orphan == NULL) { /* the sender learns it from the end */
        umx_message_drop(message);
        umx_ep_abort(ep);
        return;
    }
    orphan->ep      = ep;
    orphan->message = message;
    orphan->has_id  = umx_ep_peer_worker_id(ep, orphan->id);
    umi_list_append(&dispatch->orphans, &orphan->node);
    dispatch->num_orphans++;
}

/* ---- arrival -------------------------------------------------------------
 */

/* Make sure that the endpoint is the member's, which may have made it just now.
 * False: it is another's. */
static bool
take_ep(umi_comm_member *member, umx_ep *ep)
{
    return umi_comm_member_has_ep(member, ep) ||
           umi_comm_member_claim_ep(member, ep);
}

/* Find the communicator that a message names. NULL: there is none; or the
 * endpoint is not that of the rank that the message names as its source, and
 * was not when the message came (`orphan`). */
static umx_comm *
find_comm(umi_comm_dispatch *dispatch, umx_ep *ep,
          const umi_comm_orphan *orphan, const umi_comm_header *header)
{
    umx_comm        *comm = umi_comm_find(dispatch, header->comm);
    umi_comm_member *member;

    if (comm == NULL || header->source >= (uint32_t)comm->size) {
        return NULL;
    }
    member = comm->ranks[header->source].member;
    if (!take_ep(member, ep) &&
        (orphan == NULL || !orphan->has_id ||
         memcmp(orphan->id, member->worker_id, sizeof(orphan->id)) != 0)) {
        return NULL;
    }
    umi_comm_member_heard(member, umi_clock_ns());
    return comm;
}

static void
on_control(umx_comm *comm, umx_ep *ep, const umi_comm_header *header,
           const void *data, size_t len)
{
    int             rank = (int)header->source;
    umi_comm_failed failed;
    umi_comm_state  state;

    switch (header->kind) {
    case UMI_COMM_FAILED:
        if (umi_comm_failed_decode(&failed, data, len)) {
            umi_comm_on_failed(comm, comm->ranks[rank].member, &failed);
        }
        return;
    case UMI_COMM_BYE:
        umi_comm_on_bye(comm, header, data, len);
        return;
    case UMI_COMM_STATE:
        if (umi_comm_state_decode(&state, data, len)) {
            umi_comm_late_on_state(comm, header, &state);
        }
        return;
    case UMI_COMM_INBOX:
        umi_comm_inbox_on_offer(comm, rank, ep, data, len);
        return;
    case UMI_COMM_DONE:
        umi_comm_coll_on_done(comm, rank, header->number, header->round);
        return;
    default:
        return;
    }
}

/* Find the process that a message to the group is from, by its rank in the
 * group, `source`. NULL: the endpoint is not of that process. */
static umi_comm_member *
find_member(umi_comm_dispatch *dispatch, umx_ep *ep,
            const umi_comm_header *header)
{
    UMI_LIST_FOREACH(node, &dispatch->groups) {
        umi_comm_group *group = umi_container_of(node, umi_comm_group, node);

        if (group->id == header->comm && group->bootstrap == NULL &&
            header->source < (uint32_t)group->size &&
            take_ep(&group->members[header->source], ep)) {
            return &group->members[header->source];
        }
    }
    return NULL;
}

static void
on_group_control(umi_comm_dispatch *dispatch, umx_ep *ep,
                 const umi_comm_header *header, const void *data, size_t len)
{
    umi_comm_member *member = find_member(dispatch, ep, header);
    umi_comm_failed  failed;

    if (member == NULL) {
        return;
    }
    umi_comm_member_heard(member, umi_clock_ns());
    if (header->kind == UMI_COMM_PING) {
        umi_comm_group_on_ping(member, header->round == UMI_COMM_ANSWER);
    } else if (umi_comm_failed_decode(&failed, data, len)) {
        umi_comm_group_on_failed(member, &failed);
    }
}

static bool
is_past(const umi_comm_dispatch *dispatch, uint64_t id)
{
    return umi_map_find(&dispatch->past, id) != NULL;
}

static void
free_oldest(umi_comm_dispatch *dispatch)
{
    umi_comm_past *past = umi_container_of(dispatch->oldest.next, umi_comm_past,
                                           node);

    umi_node_remove(&past->node);
    umi_map_remove(&dispatch->past, &past->map_node);
    free(past);
}

void
umi_comm_dispatch_forget(umi_comm_dispatch *dispatch, uint64_t id)
{
    umi_comm_past *past = malloc(sizeof(*past));

    if (past == NULL) { /* messages to it wait for the end of their endpoint */
        return;
    }
    if (dispatch->past.count >= UMI_COMM_PAST_MAX) {
        free_oldest(dispatch);
    }
    umi_map_add(&dispatch->past, &past->map_node, id);
    umi_list_append(&dispatch->oldest, &past->node);
}

/* Hand a message to what it is for. False: its communicator is not known here.
 * `orphan`: the message has been tried before; or NULL. */
static bool
route(umi_comm_dispatch *dispatch, umx_ep *ep, const umi_comm_orphan *orphan,
      umx_message *message)
{
    size_t          header_len;
    const void     *bytes = umx_message_header(message, &header_len);
    const void     *data  = umx_message_data(message);
    size_t          len   = umx_message_info(message)->length;
    umi_comm_header header;
    umi_comm_parcel parcel;
    umx_comm       *comm;

    if (!umi_comm_header_decode(&header, bytes, header_len) ||
        (header.kind >= UMI_COMM_HELLO && data == NULL && len != 0)) {
        umx_message_drop(message); /* not a rank's */
        return true;
    }
    if (header.kind == UMI_COMM_HELLO) {
        return umi_comm_bootstrap_on_hello(dispatch, ep, message);
    }
    if (header.kind >= UMI_COMM_TABLE && header.kind <= UMI_COMM_PENDING) {
        (void)umi_comm_bootstrap_on_answer(dispatch, ep, &header, data, len);
        umx_message_drop(message);
        return true;
    }
    if (header.kind == UMI_COMM_PING ||
        (header.kind == UMI_COMM_FAILED &&
         header.round == UMI_COMM_WHOLE_GROUP)) {
        on_group_control(dispatch, ep, &header, data, len);
        umx_message_drop(message);
        return true;
    }
    comm = find_comm(dispatch, ep, orphan, &header);
    if (comm == NULL) {
        if (!is_past(dispatch, header.comm)) {
            return false;
        }
        umx_message_drop(message);
        return true;
    }
    switch (header.kind) {
    case UMI_COMM_MESSAGE:
        umi_comm_message_arrive(comm, (int)header.source, header.number,
                                message);
        return true;
    case UMI_COMM_COLLECTIVE:
        parcel = (umi_comm_parcel){
            .header = header, .message = message, .len = len};
        umi_comm_coll_arrive(comm, &parcel);
        return true;
    default:
        on_control(comm, ep, &header, data, len);
        umx_message_drop(message);
        return true;
    }
}

static void
on_message(umx_ep *ep, umx_message *message, void *arg)
{
    umi_comm_dispatch *dispatch = arg;

    if (!route(dispatch, ep, NULL, message)) {
        keep_orphan(dispatch, ep, message);
    }
}

void
umi_comm_dispatch_adopt(umi_comm_dispatch *dispatch)
{
    umi_list again;

    umi_list_init(&again);
    umi_list_splice(&again, &dispatch->orphans);
    while (!umi_list_is_empty(&again)) {
        umi_comm_orphan *orphan = umi_container_of(again.next, umi_comm_orphan,
                                                   node);

        umi_node_remove(&orphan->node);
        if (route(dispatch, orphan->ep, orphan, orphan->message)) {
            UMI_DECREMENT(dispatch->num_orphans);
            free(orphan);
        } else {
            umi_list_append(&dispatch->orphans, &orphan->node);
        }
    }
}

/* ---- life ----------------------------------------------------------------
 */

/* The worker's end waits for control messages: other ranks are to hear why this
 * process ends before they see it end. */
static bool
is_busy(const umx_dependent *dependent)
{
    return ((const umi_comm_dispatch *)(const void *)dependent)->num_controls !=
           0;
}

static void
end_groups(umi_comm_dispatch *dispatch)
{
    size_t    left = umi_list_count(&dispatch->groups);
    umi_node *node;

    while ((node = umi_list_turn(&dispatch->groups, &left)) != NULL) {
        umi_comm_group *group = umi_container_of(node, umi_comm_group, node);

        umx_timer_stop(&group->heartbeat);
        if (group->bootstrap != NULL) {
            umi_comm_bootstrap_cancel(group, UMX_ERR_CANCELED);
        }
    }
}

static umx_comm *
first_that_goes_on(const umi_comm_dispatch *dispatch)
{
    UMI_LIST_FOREACH(node, &dispatch->comms) {
        umx_comm *comm = umi_container_of(node, umx_comm, node);

        if (!comm->is_revoked) {
            return comm;
        }
    }
    return NULL;
}

static void
on_destroy(umx_dependent *dependent)
{
    umi_comm_dispatch *dispatch = (umi_comm_dispatch *)(void *)dependent;
    umx_comm          *comm;

    (void)!umx_worker_set_layer(dispatch->worker, UMX_AM_ID_COMM, NULL, NULL);
    while (!umi_list_is_empty(&dispatch->orphans)) {
        drop_orphan(dispatch, umi_container_of(dispatch->orphans.next,
                                               umi_comm_orphan, node));
    }
    end_groups(dispatch);
    while ((comm = first_that_goes_on(dispatch)) != NULL) {
        umi_comm_revoke(comm, -1, UMX_ERR_CLOSED, true, "the worker is gone");
    }
    dispatch->worker = NULL;
    umi_comm_dispatch_put(dispatch);
}

umi_comm_dispatch *
umi_comm_dispatch_get(umx_worker *worker)
{
    umi_comm_dispatch *dispatch = umx_worker_get_layer(worker, UMX_AM_ID_COMM);

    if (dispatch != NULL) {
        umi_refs_get(&dispatch->refs);
        return dispatch;
    }
    dispatch = calloc(1, sizeof(*dispatch));
    if (dispatch == NULL) {
        return NULL;
    }
    umi_list_init(&dispatch->groups);
    umi_list_init(&dispatch->comms);
    umi_list_init(&dispatch->orphans);
    umi_list_init(&dispatch->doors);
    umi_list_init(&dispatch->oldest);
    umi_map_init(&dispatch->by_id);
    umi_map_init(&dispatch->past);
    umi_pool_init(&dispatch->sends, sizeof(umi_comm_send));
    umi_pool_init(&dispatch->recvs, sizeof(umi_comm_recv));
    umi_pool_init(&dispatch->messages, sizeof(umx_comm_message));
    dispatch->worker      = worker;
    dispatch->max_orphans = MAX_ORPHANS;
    umi_refs_init(&dispatch->refs);
    umi_refs_get(&dispatch->refs); /* the worker's, and the caller's */
    dispatch->dependent.on_destroy = on_destroy;
    dispatch->dependent.is_busy    = is_busy;
    dispatch->dependent.describe   = umi_comm_describe;
    if (umx_worker_set_layer(worker, UMX_AM_ID_COMM, on_message, dispatch) !=
        UMX_OK) {
        free(dispatch);
        return NULL;
    }
    umx_worker_attach(worker, &dispatch->dependent);
    umx_worker_take_loans(worker);
    return dispatch;
}

void
umi_comm_dispatch_put(umi_comm_dispatch *dispatch)
{
    if (!umi_refs_put(&dispatch->refs)) {
        return;
    }
    while (!umi_list_is_empty(&dispatch->oldest)) {
        free_oldest(dispatch);
    }
    umi_map_fini(&dispatch->past);
    umi_map_fini(&dispatch->by_id);
    umi_pool_fini(&dispatch->sends);
    umi_pool_fini(&dispatch->recvs);
    umi_pool_fini(&dispatch->messages);
    free(dispatch);
}
