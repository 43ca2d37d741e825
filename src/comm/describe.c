/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c: communicators, and which ranks they wait for, for people. */
#include "comm/describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/bootstrap.h"
#include "comm/member.h"
#include "comm/send_recv.h"
#include "util/clock.h"
#include "util/lines.h"
#include "util/log.h"

enum {
    SHOWN = 4 /* receives, and messages, of each communicator */
};

/* ---- words ---------------------------------------------------------------
 */

static bool
awaits(const umi_comm_coll *coll, int rank)
{
    for (size_t i = 0; i < coll->max_xfers; i++) {
        const umi_comm_xfer *xfer = &coll->xfers[i];

        if (xfer->is_used && xfer->rank == rank && xfer->sub == NULL) {
            return true;
        }
    }
    return false;
}

/* Name the ranks that an operation waits for; "" if its bytes are on their way
 * only. */
static void
name_awaited(const umi_comm_coll *coll, char text[UMI_COMM_RANKS_TEXT_MAX])
{
    uint32_t ranks[UMI_COMM_PENDING_MAX];
    unsigned count = 0, total = 0;

    for (int rank = 0; rank < coll->comm->size; rank++) {
        if (awaits(coll, rank)) {
            if (count < UMI_COMM_PENDING_MAX) {
                ranks[count++] = (uint32_t)rank;
            }
            total++;
        }
    }
    text[0] = '\0';
    if (total != 0) {
        umi_comm_bootstrap_name_ranks(text, UMI_COMM_RANKS_TEXT_MAX, ranks,
                                      count, total);
    }
}

static const char *
name_of(const umx_comm *comm)
{
    return (comm->name[0] != '\0') ? comm->name : "without a name";
}

/* ---- the log -------------------------------------------------------------
 */

void
umi_comm_log_made(const umx_comm *comm)
{
    umi_log((comm->parent != NULL) ? UMI_LOG_DEBUG : UMI_LOG_INFO,
            "communicator '%s': made, this is rank %d of %d", name_of(comm),
            comm->rank, comm->size);
}

void
umi_comm_log_revoked(const umx_comm *comm)
{
    umi_log(UMI_LOG_INFO,
            "communicator '%s', rank %d of %d: ended by a failure%s%s: %s",
            name_of(comm), comm->rank, comm->size,
            (comm->failure.op[0] != '\0') ? " during " : "", comm->failure.op,
            (comm->reason[0] != '\0') ? comm->reason :
                                        umx_status_string(comm->failure.cause));
}

void
umi_comm_log_closed(const umx_comm *comm)
{
    umi_log((comm->parent != NULL) ? UMI_LOG_DEBUG : UMI_LOG_INFO,
            "communicator '%s', rank %d of %d: closed", name_of(comm),
            comm->rank, comm->size);
}

void
umi_comm_log_late(const umi_comm_coll *coll)
{
    const umx_comm *comm = coll->comm;
    char            ranks[UMI_COMM_RANKS_TEXT_MAX];

    name_awaited(coll, ranks);
    umi_log_line(
        UMI_LOG_INFO,
        "communicator '%s', rank %d of %d: %s #%llu has waited for "
        "%.1f s for %s%s",
        name_of(comm), comm->rank, comm->size,
        umi_comm_coll_name(coll->type->kind), (unsigned long long)coll->number,
        (double)coll->waited_ns / 1e9,
        (ranks[0] != '\0') ? "ranks " : "bytes that are on their way", ranks);
}

void
umi_comm_log_missing(const umi_comm_bootstrap *bootstrap)
{
    uint32_t ranks[UMI_COMM_PENDING_MAX];
    unsigned count = umi_comm_bootstrap_find_missing(bootstrap, ranks,
                                                     UMI_COMM_PENDING_MAX);
    char     text[UMI_COMM_RANKS_TEXT_MAX];

    umi_comm_bootstrap_name_ranks(
        text, sizeof(text), ranks, count,
        (unsigned)(bootstrap->group->size - 1 - bootstrap->num_guests));
    umi_log_line(UMI_LOG_INFO,
                 "communicator '%s': %d of %d ranks have come; not: %s",
                 name_of(bootstrap->comm), bootstrap->num_guests + 1,
                 bootstrap->group->size, text);
}

/* ---- descriptions --------------------------------------------------------
 */

static void
describe_coll(const umi_comm_coll *coll, const umi_lines *lines)
{
    char     ranks[UMI_COMM_RANKS_TEXT_MAX];
    unsigned num_moving = 0;

    for (size_t i = 0; i < coll->max_xfers; i++) {
        num_moving += coll->xfers[i].is_used &&
                      (coll->xfers[i].sub != NULL || coll->xfers[i].is_filling);
    }
    name_awaited(coll, ranks);
    umi_lines_add(lines,
                  "    %s #%llu waits%s%s since more than %.1f s; %u transfers "
                  "are under way",
                  umi_comm_coll_name(coll->type->kind),
                  (unsigned long long)coll->number,
                  (ranks[0] != '\0') ? " for ranks " : "", ranks,
                  (double)coll->waited_ns / 1e9, num_moving);
}

static void
describe_recv(const umi_comm_recv *recv, const umi_lines *lines)
{
    char source[32] = "any rank", tag[64] = "any tag";

    if (recv->source >= 0) {
        snprintf(source, sizeof(source), "rank %d", recv->source);
    }
    if (recv->mask == UINT64_MAX) {
        snprintf(tag, sizeof(tag), "tag %" PRIu64, recv->tag);
    } else if (recv->mask != 0) {
        snprintf(tag, sizeof(tag), "tag %#" PRIx64 " with mask %#" PRIx64,
                 recv->tag, recv->mask);
    }
    umi_lines_add(lines, "    a %s waits for a message of %s with %s",
                  recv->is_probe ? "probe" : "receive", source, tag);
}

static void
describe_messages(const umx_comm *comm, const umi_lines *lines)
{
    unsigned count = 0;

    UMI_LIST_FOREACH(node, &comm->posted) {
        const umi_comm_recv *recv = umi_container_of(node, umi_comm_recv, node);

        if (!recv->is_watch && count++ < SHOWN) {
            describe_recv(recv, lines);
        }
    }
    if (count > SHOWN) {
        umi_lines_add(lines, "    %u more receives wait", count - SHOWN);
    }
    count = 0;
    UMI_LIST_FOREACH(node, &comm->unexpected) {
        const umx_comm_message *message = umi_container_of(
            node, umx_comm_message, node);

        if (count++ < SHOWN) {
            umi_lines_add(lines,
                          "    no receive has asked for a message of rank %d "
                          "with tag %" PRIu64,
                          message->info.source, message->info.tag);
        }
    }
    if (count > SHOWN) {
        umi_lines_add(lines, "    %u more messages wait for receives",
                      count - SHOWN);
    }
    count = 0;
    UMI_LIST_FOREACH(node, &comm->sends) {
        const umi_comm_send *send = umi_container_of(node, umi_comm_send, node);

        if (count++ < SHOWN) {
            umi_lines_add(lines,
                          "    a send of %zu bytes to rank %d is not "
                          "complete",
                          send->buf.len, send->dest);
        }
    }
    if (count > SHOWN) {
        umi_lines_add(lines, "    %u more sends are not complete",
                      count - SHOWN);
    }
}

static void
describe_bootstrap(const umx_comm *comm, const umi_lines *lines)
{
    const umi_comm_bootstrap *bootstrap = comm->group->bootstrap;
    uint32_t                  ranks[UMI_COMM_PENDING_MAX];
    char                      text[UMI_COMM_RANKS_TEXT_MAX];
    unsigned                  count;

    if (bootstrap == NULL) {
        return;
    }
    if (!umi_comm_bootstrap_is_root(bootstrap)) {
        umi_lines_add(
            lines, "    is being made: waits for rank 0%s%s%s%s",
            (bootstrap->missing[0] != '\0') ? ", which waits for ranks " : "",
            bootstrap->missing, (bootstrap->last_error[0] != '\0') ? ": " : "",
            bootstrap->last_error);
        return;
    }
    count = umi_comm_bootstrap_find_missing(bootstrap, ranks,
                                            UMI_COMM_PENDING_MAX);
    umi_comm_bootstrap_name_ranks(
        text, sizeof(text), ranks, count,
        (unsigned)(comm->group->size - 1 - bootstrap->num_guests));
    umi_lines_add(lines,
                  "    is being made: %d of %d ranks have come; it waits for "
                  "ranks %s",
                  bootstrap->num_guests + 1, comm->group->size, text);
}

/* Name the ranks of which something is the matter. */
static void
describe_ranks(const umx_comm *comm, const umi_lines *lines)
{
    static const char *const states[] = {
        [UMI_COMM_MEMBER_ALIVE]   = "",
        [UMI_COMM_MEMBER_SUSPECT] = "cannot be reached",
        [UMI_COMM_MEMBER_DEAD]    = "has ended",
        [UMI_COMM_MEMBER_LEFT]    = "",
    };

    for (int i = 0; comm->ranks != NULL && i < comm->size; i++) {
        const umi_comm_member *member = comm->ranks[i].member;

        if (comm->ranks[i].is_gone) {
            umi_lines_add(lines, "    rank %d has left", i);
        } else if (states[member->state][0] != '\0') {
            umi_lines_add(lines, "    rank %d %s", i, states[member->state]);
        }
    }
}

static void
describe_comm(const umx_comm *comm, const umi_lines *lines)
{
    const char *reason = comm->reason;

    umi_lines_add(lines,
                  "  communicator '%s'%s: rank %d of %d%s%s%s%s; %llu "
                  "collective operations so far",
                  name_of(comm), (comm->parent != NULL) ? " (derived)" : "",
                  (comm->rank >= 0) ? comm->rank : comm->group->rank,
                  comm->size, comm->is_closed ? ", closed" : "",
                  comm->is_revoked ? ", ended by a failure" : "",
                  (reason[0] != '\0') ? ": " : "", reason,
                  (unsigned long long)(comm->next_number - 1));
    if (comm->ranks == NULL) {
        describe_bootstrap(comm, lines);
    }
    UMI_LIST_FOREACH(node, &comm->colls) {
        describe_coll(umi_container_of(node, umi_comm_coll, node), lines);
    }
    describe_messages(comm, lines);
    describe_ranks(comm, lines);
}

void
umi_comm_describe(const umx_dependent *dependent, umx_line_fn fn, void *arg)
{
    const umi_comm_dispatch *dispatch =
        (const umi_comm_dispatch *)(const void *)dependent;
    umi_lines lines = {.fn = fn, .arg = arg};

    UMI_LIST_FOREACH(group_node, &dispatch->groups) {
        const umi_comm_group *group = umi_container_of(group_node,
                                                       umi_comm_group, node);

        UMI_LIST_FOREACH(node, &group->comms) {
            const umx_comm *comm = umi_container_of(node, umx_comm, group_node);

            if (!comm->is_closed || !umi_refs_is_last(&comm->refs)) {
                describe_comm(comm, &lines);
            }
        }
    }
}
