/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.c: the life of a communicator, and its end by failure.
 *
 *   being made ---> usable ---> closed    umx_comm_close(), or given back
 *        |             |
 *        +-------------+------> revoked   a rank has failed, here or elsewhere
 *
 * Who finds a failure revokes the communicator on its own rank and tells the
 * root, which tells everybody. */
#include "comm/communicator.h"
#include "comm/bootstrap.h"
#include "comm/collective.h"
#include "comm/describe.h"
#include "comm/inbox.h"
#include "comm/labels.h"
#include "comm/late.h"
#include "comm/member.h"
#include "comm/send_recv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/count.h"
#include "util/utf8.h"

/* How long a lost operation waits for the message that says why. */
#define DOUBT_NS UINT64_C(1000000000)

/* ---- life ----------------------------------------------------------------
 */

static void on_doubt(umx_timer *timer);

umx_comm *
umi_comm_new(umi_comm_group *group, const char *name)
{
    umx_comm *comm = calloc(1, sizeof(*comm));

    if (comm == NULL) {
        return NULL;
    }
    comm->room = calloc((size_t)group->size, sizeof(*comm->room));
    if (comm->room == NULL) {
        free(comm);
        return NULL;
    }
    umi_node_init(&comm->node);
    umi_list_init(&comm->posted);
    umi_list_init(&comm->unexpected);
    umi_list_init(&comm->sends);
    umi_list_init(&comm->colls);
    umi_list_init(&comm->fillings);
    umi_list_init(&comm->early);
    umx_timer_init(&comm->doubt, on_doubt);
    (void)snprintf(comm->name, sizeof(comm->name), "%s", name);
    comm->group = group;
    comm->rank  = -1;
    comm->size  = group->size;
    umi_refs_init(&comm->refs);
    comm->next_number  = 1;
    comm->history      = 1;
    comm->failure.rank = -1;
    comm->doubt_rank   = -1;
    comm->failure.op   = "";
    umi_refs_get(&group->refs);
    umi_list_append(&group->comms, &comm->group_node);
    return comm;
}

void
umi_comm_hold(umx_comm *comm)
{
    umi_refs_get(&comm->refs);
}

/* Part a communicator that is freed from its parent, and from those that are
 * derived from it: nothing revokes them with it any more. */
static void
disown(const umx_comm *comm)
{
    if (comm->parent != NULL) {
        UMI_DECREMENT(comm->parent->num_derived);
    }
    if (comm->num_derived == 0) {
        return;
    }
    UMI_LIST_FOREACH(node, &comm->group->comms) {
        umx_comm *child = umi_container_of(node, umx_comm, group_node);

        if (child->parent == comm) {
            child->parent = NULL;
        }
    }
}

void
umi_comm_put(umx_comm *comm)
{
    if (!umi_refs_put(&comm->refs)) {
        if (umi_refs_is_last(&comm->refs) && comm->is_closed) {
            umi_comm_group_close_eps(comm->group);
        }
        return;
    }
    if (umi_node_is_linked(&comm->node)) {
        umi_comm_dispatch *dispatch = comm->group->dispatch;

        umi_node_remove(&comm->node);
        umi_map_remove(&dispatch->by_id, &comm->map_node);
        umi_comm_dispatch_forget(dispatch, comm->id);
    }
    umi_comm_inbox_end(comm);
    umx_timer_stop(&comm->doubt);
    umi_node_remove(&comm->group_node);
    disown(comm);
    umi_comm_free_labels(comm);
    for (int i = 0; i < comm->group->size; i++) {
        free(comm->room[i].labels);
        free(comm->room[i].report);
    }
    umi_comm_group_put(comm->group);
    free(comm->room);
    free(comm);
}

void
umi_comm_set_ranks(umx_comm *comm, uint64_t id, int rank, int size,
                   umi_comm_member *const *members)
{
    for (int i = 0; i < size; i++) {
        comm->room[i].member = members[i];
    }
    comm->id    = id;
    comm->rank  = rank;
    comm->size  = size;
    comm->ranks = comm->room;
}

static void tell(umx_comm *comm, const umi_comm_member *except);

void
umi_comm_register(umx_comm *comm)
{
    umi_list_append(&comm->group->dispatch->comms, &comm->node);
    umi_map_add(&comm->group->dispatch->by_id, &comm->map_node, comm->id);
    umi_comm_log_made(comm);
    if (comm->is_revoked) { /* given up before it was made */
        comm->failure.rank = comm->rank;
        tell(comm, NULL);
    }
    for (int i = 0; i < comm->size; i++) {
        const umi_comm_member *member = comm->ranks[i].member;

        if (member->state == UMI_COMM_MEMBER_DEAD) {
            umi_comm_lose(comm, member, "it had ended before");
        }
    }
    umi_comm_dispatch_adopt(comm->group->dispatch);
}

umx_comm *
umi_comm_find(umi_comm_dispatch *dispatch, uint64_t id)
{
    umi_map_node *node = umi_map_find(&dispatch->by_id, id);

    return (node != NULL) ? umi_container_of(node, umx_comm, map_node) : NULL;
}

int
umi_comm_rank_of(const umx_comm *comm, const umi_comm_member *member)
{
    for (int i = 0; comm->ranks != NULL && i < comm->size; i++) {
        if (comm->ranks[i].member == member) {
            return i;
        }
    }
    return -1;
}

umx_status
umi_comm_status(const umx_comm *comm)
{
    if (comm->group->dispatch->worker == NULL) {
        return UMX_ERR_CLOSED;
    }
    if (comm->is_revoked) {
        return UMX_ERR_RANK_FAILED;
    }
    return (comm->is_closed || comm->ranks == NULL) ? UMX_ERR_CLOSED : UMX_OK;
}

int
umx_comm_rank(const umx_comm *comm)
{
    return comm->rank;
}

int
umx_comm_size(const umx_comm *comm)
{
    return comm->size;
}

const char *
umx_comm_name(const umx_comm *comm)
{
    return comm->name;
}

int
umx_comm_member(const umx_comm *comm, int rank, uint64_t *group_p)
{
    *group_p = comm->group->id;
    return comm->ranks[rank].member->rank;
}

const char *
umx_comm_reason(const umx_comm *comm)
{
    return comm->reason;
}

/* ---- failure -------------------------------------------------------------
 */

bool
umx_comm_get_failure(const umx_comm *comm, umx_comm_failure *failure)
{
    UMI_COMM_LOCK(comm);
    if (comm->is_revoked) {
        *failure        = comm->failure;
        failure->group  = comm->group->id;
        failure->member = (failure->rank >= 0 && comm->ranks != NULL) ?
                              comm->ranks[failure->rank].member->rank :
                              -1;
    }
    return comm->is_revoked;
}

/* Find the rank in `comm` of the group's root; -1: the root takes no part. */
static int
root_of(const umx_comm *comm)
{
    return umi_comm_rank_of(comm, &comm->group->members[0]);
}

/* Does this rank have to tell rank `i` itself? The root tells everybody, and is
 * told by everybody, as long as it is there. */
static bool
is_told_by(const umx_comm *comm, int i)
{
    const umi_comm_member *member  = comm->ranks[i].member;
    int                    root    = root_of(comm);
    bool                   is_here = root >= 0 && !comm->ranks[root].is_gone &&
                   umi_comm_member_is_up(comm->ranks[root].member);

    return i != comm->rank && umi_comm_member_is_up(member) &&
           (!is_here || root == comm->rank || i == root || member->out != NULL);
}

/* Tell the other ranks that the communicator is revoked. */
static void
tell(umx_comm *comm, const umi_comm_member *except)
{
    umi_comm_header header = {.kind   = UMI_COMM_FAILED,
                              .source = (uint32_t)comm->rank,
                              .comm   = comm->id};
    umi_comm_failed failed = {
        .rank   = comm->failure.rank,
        .cause  = comm->failure.cause,
        .number = comm->late_number,
        .reason = {(const uint8_t *)comm->reason, comm->reason_len}};
    uint8_t late[UMX_COMM_LATE_MAX * UMI_COMM_NUMBER_SIZE];
    uint8_t data[UMI_COMM_FAILED_MAX];
    size_t  len;

    failed.late = umi_comm_numbers_encode(comm->failure.late,
                                          comm->failure.num_late, late);
    len         = umi_comm_failed_encode(&failed, data, sizeof(data));
    if (comm->ranks == NULL || comm->group->dispatch->worker == NULL) {
        return;
    }
    for (int i = 0; i < comm->size; i++) {
        umi_comm_member *member = comm->ranks[i].member;

        if (member != except && !comm->ranks[i].is_gone &&
            is_told_by(comm, i)) {
            umi_comm_member_send(member, &header, data, len);
        }
    }
}

/* Find the rank in `child` of the one whose fault the end of its parent is; -1:
 * it takes no part. A child that is being made has no ranks of its own yet. */
static int
fault_in(const umx_comm *child, const umx_comm *parent)
{
    int rank = parent->failure.rank;

    return (rank < 0 || child->ranks == NULL) ?
               rank :
               umi_comm_rank_of(child, parent->ranks[rank].member);
}

/* Revoke what is derived from `comm`, as all its ranks do. */
static void
revoke_derived(const umx_comm *comm)
{
    umi_comm_group *group = comm->group;
    umi_node       *node  = group->comms.next;

    while (node != &group->comms) {
        umx_comm *child = umi_container_of(node, umx_comm, group_node);

        node = node->next;
        if (child->parent == comm && !child->is_revoked && !child->is_closed) {
            umi_comm_late_inherit(child, comm);
            umi_comm_revoke(child, fault_in(child, comm), comm->failure.cause,
                            true, "%.*s", (int)comm->reason_len, comm->reason);
            node = group->comms.next; /* callbacks may have changed it */
        }
    }
}

static void
revoke(umx_comm *comm, int rank, umx_status cause,
       const umi_comm_member *except, bool is_told)
{
    comm->is_revoked   = true;
    comm->failure.rank = rank;
    umx_timer_stop(&comm->doubt);
    comm->failure.cause = cause;
    umi_comm_coll_describe_first(comm, &comm->failure.op, &comm->failure.op_id);
    comm->reason_len = strlen(comm->reason);
    umi_comm_late_describe(comm);
    umi_comm_log_revoked(comm);
    umi_comm_hold(comm);
    umi_comm_inbox_revoke(comm);
    if (!is_told) {
        tell(comm, except);
    }
    umi_comm_messages_end(comm, UMX_ERR_RANK_FAILED);
    umi_comm_coll_fail_all(comm);
    umi_comm_inbox_end(comm);
    revoke_derived(comm);
    umi_comm_put(comm);
}

void
umi_comm_revoke(umx_comm *comm, int rank, umx_status cause, bool is_told,
                const char *format, ...)
{
    va_list args;

    if (comm->is_revoked) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(comm->reason, sizeof(comm->reason), format, args);
    va_end(args);
    umi_utf8_end(comm->reason);
    revoke(comm, rank, cause, NULL, is_told);
}

/* Take what the ranks have left in the inbox: it was written before the end
 * that is about to become known here, and an operation may be complete by it.
 * False: there is nothing left that could end. The caller holds the
 * communicator. */
static bool
take_inbox(umx_comm *comm)
{
    if (!comm->is_revoked && !comm->is_closed) {
        (void)umi_comm_inbox_look(comm);
    }
    return !comm->is_revoked && !comm->is_closed;
}

static void
set_reason(umx_comm *comm, const umi_comm_text *text)
{
    size_t len = text->len;

    if (len > sizeof(comm->reason) - 1) {
        len = sizeof(comm->reason) - 1;
    }
    if (len != 0) {
        memcpy(comm->reason, text->data, len);
    }
    comm->reason[len] = '\0';
    umi_utf8_end(comm->reason);
}

void
umi_comm_on_failed(umx_comm *comm, umi_comm_member *from,
                   const umi_comm_failed *failed)
{
    int rank = (failed->rank >= 0 && failed->rank < comm->size) ? failed->rank :
                                                                  -1;

    umi_comm_hold(comm);
    if (take_inbox(comm)) {
        set_reason(comm, &failed->reason);
        umi_comm_late_merge(comm, failed);
        /* Tell the others, too: a rank with an endpoint to this one might see
         * this rank's end before it hears of the failure from anybody else. */
        revoke(comm, rank,
               (failed->cause < 0) ? (umx_status)failed->cause :
                                     UMX_ERR_RANK_FAILED,
               from, false);
    }
    umi_comm_put(comm);
}

/* Revoke the communicator, as the member has ended. */
static void
revoke_for(umx_comm *comm, const umi_comm_member *member, int rank,
           const char *why)
{
    uint64_t stopped = umi_comm_group_stopped_ns(comm->group);

    if (stopped != 0) {
        umi_comm_revoke(comm, comm->rank, UMX_ERR_TIMED_OUT, false,
                        "rank %d has made no progress for %.1f s, and rank %d "
                        "has gone",
                        comm->rank, (double)stopped / 1e9, rank);
        return;
    }
    umi_comm_revoke(
        comm, rank, member->cause, false, "rank %d has ended: %s%s%s", rank,
        umx_status_string(member->cause),
        (why != NULL && why[0] != '\0') ? ": " : "", (why != NULL) ? why : "");
}

void
umi_comm_lose(umx_comm *comm, const umi_comm_member *member, const char *why)
{
    int rank = umi_comm_rank_of(comm, member);

    if (rank < 0 || comm->is_closed) {
        return;
    }
    umi_comm_hold(comm);
    (void)take_inbox(comm);
    if (comm->ranks[rank].is_gone &&
        comm->ranks[rank].num_received >= comm->ranks[rank].num_expected) {
        umi_comm_messages_end_rank(comm, rank);
        if (umi_comm_coll_awaits(comm, rank)) {
            revoke_for(comm, member, rank, why);
        }
    } else {
        revoke_for(comm, member, rank, why);
    }
    umi_comm_put(comm);
}

/* Nobody has said why an operation was lost. */
static void
on_doubt(umx_timer *timer)
{
    umx_comm *comm = umi_container_of(timer, umx_comm, doubt);

    revoke(comm, comm->doubt_rank, comm->doubt_status, NULL, false);
}

bool
umi_comm_doubt(umx_comm *comm, int rank, umx_status status, const char *why)
{
    umi_comm_member *member = comm->ranks[rank].member;

    if (status >= 0 || comm->is_revoked) {
        return false;
    }
    umi_comm_member_check(member, status, why);
    if (comm->is_revoked || member->state == UMI_COMM_MEMBER_SUSPECT) {
        return !comm->is_revoked;
    }
    if (!umi_comm_may_be_end(status)) {
        return false;
    }
    if (comm->doubt_rank < 0) {
        comm->doubt_rank   = rank;
        comm->doubt_status = status;
        (void)snprintf(comm->reason, sizeof(comm->reason),
                       "an operation with rank %d has failed on rank %d: %s",
                       rank, comm->rank,
                       (why != NULL) ? why : umx_status_string(status));
        umi_utf8_end(comm->reason);
        umx_timer_start(comm->group->dispatch->worker, &comm->doubt, DOUBT_NS);
    }
    return true;
}

bool
umx_comm_doubt(umx_comm *comm, int rank, umx_status status, const char *why)
{
    UMI_COMM_LOCK(comm);

    if (status == UMX_ERR_WITHDRAWN) {
        status = UMX_ERR_CONNECTION_RESET;
    }
    return comm->is_revoked || comm->is_closed ||
           umi_comm_doubt(comm, rank, status, why);
}

/* `rank`: whose fault it is. */
static void
abort_comm(umx_comm *comm, int rank, umx_status cause, const char *reason)
{
    if (comm->is_closed || comm->is_revoked) {
        return;
    }
    if (comm->ranks == NULL) {
        if (comm->group->bootstrap != NULL) {
            umi_comm_bootstrap_cancel(comm->group, UMX_ERR_CANCELED);
        } else { /* the split that makes it tells the others */
            umi_comm_revoke(comm, -1, UMX_ERR_CANCELED, true,
                            "the communicator was given up before it was made");
        }
        return;
    }
    umi_comm_revoke(comm, rank, cause, false,
                    "rank %d has aborted the communicator%s%s", comm->rank,
                    (reason != NULL) ? ": " : "",
                    (reason != NULL) ? reason : "");
}

void
umx_comm_abort(umx_comm *comm, const char *reason)
{
    UMI_COMM_LOCK(comm);
    abort_comm(comm, comm->rank, UMX_ERR_CANCELED, reason);
}

void
umx_comm_abort_for(umx_comm *comm, const umx_comm_failure *failure,
                   const char *reason)
{
    UMI_COMM_LOCK(comm);
    const umi_comm_group *group = comm->group;
    int                   rank  = -1;

    if (comm->ranks != NULL && failure->group == group->id &&
        failure->member >= 0 && failure->member < group->size) {
        rank = umi_comm_rank_of(comm, &group->members[failure->member]);
    }
    if (rank < 0) {
        abort_comm(comm, comm->rank, UMX_ERR_CANCELED, reason);
    } else {
        abort_comm(comm, rank, failure->cause, reason);
    }
}

/* ---- leaving -------------------------------------------------------------
 */

/* Tell each rank that has not left that this one leaves, and how many messages
 * were sent to it: by that number it knows when all have come. */
static void
say_goodbye(umx_comm *comm)
{
    size_t          size   = (size_t)comm->size;
    umi_comm_header header = {.kind   = UMI_COMM_BYE,
                              .round  = (uint16_t)comm->rank,
                              .source = (uint32_t)comm->rank,
                              .comm   = comm->id,
                              .number = comm->next_number};
    size_t          at     = size * sizeof(uint64_t) + UMI_COMM_CALL_SIZE;
    size_t    len  = at + umi_comm_count_labels(comm) * UMI_COMM_LABEL_SIZE;
    uint64_t *sent = malloc(len);

    if (sent == NULL) {
        umi_comm_revoke(comm, comm->rank, UMX_ERR_NO_MEMORY, false,
                        "rank %d has no memory to say goodbye", comm->rank);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        sent[i] = comm->ranks[i].num_sent;
    }
    umi_comm_call_encode(&comm->calls[(comm->next_number - 1) % UMI_COMM_CALLS],
                         (uint8_t *)(sent + size));
    umi_comm_write_labels(comm, sent + at / sizeof(*sent));
    for (int i = 0; i < comm->size; i++) {
        if (is_told_by(comm, i) && !comm->ranks[i].is_gone) {
            umi_comm_member_send(comm->ranks[i].member, &header, sent, len);
        }
    }
    free(sent);
}

/* Pass a goodbye on to the other ranks, as the root does. */
static void
pass_on(umx_comm *comm, int rank, const umi_comm_header *header,
        const void *data, size_t len)
{
    umi_comm_header own = *header;

    own.source = (uint32_t)comm->rank;
    for (int i = 0; i < comm->size; i++) {
        if (i != rank && i != comm->rank && !comm->ranks[i].is_gone &&
            umi_comm_member_is_up(comm->ranks[i].member)) {
            umi_comm_member_send(comm->ranks[i].member, &own, data, len);
        }
    }
}

/* Take note that a rank has left, before operation `gone_at`. */
static void
rank_leaves(umx_comm *comm, int rank, uint64_t gone_at, uint64_t num_expected)
{
    umi_comm_rank *from = &comm->ranks[rank];

    from->is_gone      = true;
    from->gone_at      = gone_at;
    from->num_expected = num_expected;
    comm->num_gone++;
}

/* End what waits for a rank that has left. */
static void
end_what_waits(umx_comm *comm, int rank)
{
    const umi_comm_rank *from = &comm->ranks[rank];

    if (!take_inbox(comm)) {
        return;
    }
    if (umi_comm_coll_needs(comm, from->gone_at)) {
        umi_comm_revoke(comm, rank, UMX_ERR_PEER_CLOSED, false,
                        "rank %d has left the communicator", rank);
    } else if (from->num_received == from->num_expected) {
        umi_comm_messages_end_rank(comm, rank);
    }
}

void
umi_comm_rank_is_absent(umx_comm *comm, int rank)
{
    if (comm->is_closed || comm->ranks[rank].is_gone) {
        return;
    }
    umi_comm_hold(comm);
    rank_leaves(comm, rank, 1, 0);
    umi_comm_sends_cancel(comm, rank, UMX_ERR_RANK_FAILED);
    end_what_waits(comm, rank);
    umi_comm_put(comm);
}

/* A rank has left with the labels that are kept: it has left what was derived
 * from `comm` here, too, and which it has not derived. */
static void
leave_derived(umx_comm *comm, int rank)
{
    umi_node *node = comm->group->comms.next;

    while (comm->num_derived != 0 && node != &comm->group->comms) {
        umx_comm *child = umi_container_of(node, umx_comm, group_node);

        node = node->next;
        if (child->parent == comm && !child->is_closed &&
            !child->ranks[rank].is_gone &&
            !umi_comm_rank_has_derived(&comm->ranks[rank], child)) {
            umi_comm_rank_is_absent(child, rank);
            node = comm->group->comms.next; /* callbacks may have changed it */
        }
    }
}

void
umi_comm_on_bye(umx_comm *comm, const umi_comm_header *header, const void *data,
                size_t len)
{
    const uint8_t *bytes = data;
    int            rank  = header->round;
    size_t         at    = (size_t)comm->size * sizeof(uint64_t);
    size_t         end   = at + UMI_COMM_CALL_SIZE;
    umi_comm_call  last  = {.number = header->number - 1};
    uint64_t       num_expected;

    if (rank >= comm->size || rank == comm->rank || len < end ||
        !umi_comm_call_decode(&last, bytes + at, UMI_COMM_CALL_SIZE) ||
        (rank != (int)header->source && root_of(comm) != (int)header->source) ||
        comm->ranks[rank].is_gone) {
        return;
    }
    memcpy(&num_expected, bytes + (size_t)comm->rank * sizeof(num_expected),
           sizeof(num_expected));
    rank_leaves(comm, rank, header->number, num_expected);
    comm->ranks[rank].last = last;
    if (root_of(comm) == comm->rank) {
        pass_on(comm, rank, header, data, len);
    }
    if (comm->is_revoked && rank == root_of(comm)) {
        tell(comm, NULL); /* it may have left without having heard of that */
    }
    umi_comm_hold(comm);
    if (umi_comm_rank_keep_labels(&comm->ranks[rank], bytes + end, len - end)) {
        leave_derived(comm, rank);
    } else {
        umi_comm_revoke(comm, comm->rank, UMX_ERR_NO_MEMORY, false,
                        "rank %d has no memory for a goodbye", comm->rank);
    }
    if (!comm->is_revoked && !comm->is_closed &&
        umi_comm_call_check(comm, rank, &last)) {
        end_what_waits(comm, rank);
    }
    umi_comm_put(comm);
}

/* Leave: `why` is what the others are told if operations are under way. */
static void
close_comm(umx_comm *comm, const char *why)
{
    if (comm->is_closed) {
        return;
    }
    if (comm->ranks == NULL) {
        umx_comm_abort(comm, NULL);
    } else if (!comm->is_revoked && comm->group->dispatch->worker != NULL) {
        if (!umi_list_is_empty(&comm->colls)) {
            umx_comm_abort(comm, why);
        } else {
            say_goodbye(comm);
        }
    }
    umi_comm_log_closed(comm);
    umi_comm_hold(comm);
    comm->is_closed = true;
    umi_comm_messages_end(comm, UMX_ERR_CANCELED);
    umi_comm_coll_drop_early(comm);
    umi_comm_put(comm); /* closes the endpoints, if nothing is under way */
}

void
umx_comm_close(umx_comm *comm)
{
    UMI_COMM_LOCK(comm);
    close_comm(comm, "closed with operations under way");
}

void
umx_comm_destroy(umx_comm *comm)
{
    UMI_COMM_LOCK(comm);
    close_comm(comm, "given back with operations under way");
    comm->is_dropped = true;
    umi_comm_put(comm);
}

/* Find the communicator that was made last of those that are not closed, or not
 * revoked either and not derived from another one; or NULL. */
static umx_comm *
last_open(const umi_comm_dispatch *dispatch, bool is_well)
{
    for (umi_node *node = dispatch->comms.prev; node != &dispatch->comms;
         node           = node->prev) {
        umx_comm *comm = umi_container_of(node, umx_comm, node);

        if (!comm->is_closed &&
            !(is_well && (comm->is_revoked || comm->parent != NULL))) {
            return comm;
        }
    }
    return NULL;
}

void
umx_comm_close_all(umx_worker *worker, const umx_comm_failure *failure,
                   const char *reason)
{
    UMX_LAYER_LOCK(worker);
    const umi_comm_dispatch *dispatch = umx_worker_get_layer(worker,
                                                             UMX_AM_ID_COMM);
    umx_comm                *comm;

    if (dispatch == NULL) {
        return;
    }
    while (failure != NULL && (comm = last_open(dispatch, true)) != NULL) {
        umx_comm_abort_for(comm, failure, reason);
    }
    while ((comm = last_open(dispatch, false)) != NULL) {
        umx_comm_close(comm);
    }
}
