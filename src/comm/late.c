/* SPDX-License-Identifier: BSD-3-Clause */
/* late.c: which ranks have not come to a collective operation.
 *
 * An operation waits for some ranks only, and these may have come and wait for
 * others themselves. So ranks that wait tell each other: who waits for a while
 * sends STATE to those that it waits for, with the ranks that have not come as
 * far as it knows. A rank that waits in the same operation answers with those
 * that it knows of, and once more whenever they change. So each learns what it
 * needs along the way on which it waits. A rank that has not come says nothing.
 */
#include "comm/late.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/bootstrap.h"
#include "comm/member.h"
#include "util/utf8.h"

/* The ranks that have not come to an operation, as another rank has said. */
struct umi_comm_report {
    uint64_t number;
    uint32_t count;
    int      ranks[UMX_COMM_LATE_MAX];
};

typedef struct list {
    int count;
    int ranks[UMX_COMM_LATE_MAX];
} list;

/* ---- who is late ---------------------------------------------------------
 */

/* Add a rank, unless it has come to the operation or is on the list. */
static void
add(const umx_comm *comm, list *late, uint64_t number, int rank)
{
    bool has_come = (rank == comm->rank) ? comm->next_number > number :
                                           comm->ranks[rank].come >= number;

    if (has_come || late->count == UMX_COMM_LATE_MAX) {
        return;
    }
    for (int i = 0; i < late->count; i++) {
        if (late->ranks[i] == rank) {
            return;
        }
    }
    late->ranks[late->count++] = rank;
}

static int
compare(const void *a, const void *b)
{
    int first = *(const int *)a, second = *(const int *)b;

    return (first > second) - (first < second);
}

static void
find(const umi_comm_coll *coll, list *late)
{
    const umx_comm *comm = coll->comm;

    for (size_t i = 0; i < coll->max_xfers; i++) {
        const umi_comm_xfer *xfer = &coll->xfers[i];

        if (xfer->is_used && !xfer->is_lost) {
            add(comm, late, coll->number, xfer->rank);
        }
    }
    for (int i = 0; i < comm->size; i++) {
        const umi_comm_report *report = comm->ranks[i].report;

        for (uint32_t k = 0; report != NULL && report->number == coll->number &&
                             k < report->count;
             k++) {
            add(comm, late, coll->number, report->ranks[k]);
        }
    }
    qsort(late->ranks, (size_t)late->count, sizeof(*late->ranks), compare);
}

int
umx_comm_find_late(umx_comm *comm, int *late)
{
    UMI_COMM_LOCK(comm);
    list found = {0};

    if (umi_list_is_empty(&comm->colls)) {
        return 0;
    }
    find(umi_container_of(comm->colls.next, umi_comm_coll, node), &found);
    memcpy(late, found.ranks, (size_t)found.count * sizeof(*late));
    return found.count;
}

/* ---- telling -------------------------------------------------------------
 */

static void
send_state(const umi_comm_coll *coll, const list *late, int rank,
           bool is_answer)
{
    umx_comm       *comm   = coll->comm;
    umi_comm_header header = {.kind   = UMI_COMM_STATE,
                              .op     = (uint8_t)coll->type->kind,
                              .round  = is_answer ? UMI_COMM_ANSWER : 0,
                              .source = (uint32_t)comm->rank,
                              .comm   = comm->id,
                              .number = coll->number};
    umi_comm_state  state  = {.call = {.op      = coll->type->kind,
                                       .what    = coll->what,
                                       .bytes   = coll->bytes,
                                       .history = coll->history}};
    uint8_t         ranks[UMX_COMM_LATE_MAX * UMI_COMM_NUMBER_SIZE];
    uint8_t         data[UMI_COMM_STATE_MAX];
    size_t          len;

    state.late = umi_comm_numbers_encode(late->ranks, late->count, ranks);
    len        = umi_comm_state_encode(&state, data, sizeof(data));
    umi_comm_member_send(comm->ranks[rank].member, &header, data, len);
}

static uint64_t
hash_of(const list *late)
{
    return umx_tag_hash(late->ranks,
                        (size_t)late->count * sizeof(*late->ranks));
}

/* Answer those that have asked, if what is known has changed; and `rank`, which
 * asks now, in any case. -1: nobody does. */
static void
answer(umi_comm_coll *coll, int rank)
{
    umx_comm *comm = coll->comm;
    list      late = {0};
    uint64_t  hash;

    find(coll, &late);
    hash = hash_of(&late);
    for (int i = 0; i < comm->size; i++) {
        if (i == rank ||
            (hash != coll->told && comm->ranks[i].asked == coll->number)) {
            send_state(coll, &late, i, true);
        }
    }
    coll->told = hash;
}

void
umi_comm_late_ask(umi_comm_coll *coll)
{
    list late = {0};

    find(coll, &late);
    for (size_t i = 0; i < coll->max_xfers; i++) {
        const umi_comm_xfer *xfer = &coll->xfers[i];

        if (xfer->is_used && !xfer->is_lost && xfer->rank != coll->comm->rank) {
            send_state(coll, &late, xfer->rank, false);
        }
    }
    answer(coll, -1);
}

static void
keep_report(umx_comm *comm, int rank, uint64_t number,
            const umi_comm_numbers *late)
{
    umi_comm_report *report = comm->ranks[rank].report;

    if (report == NULL) {
        report = malloc(sizeof(*report));
        if (report == NULL) { /* it stays unknown */
            return;
        }
        comm->ranks[rank].report = report;
    }
    *report = (umi_comm_report){.number = number};
    for (uint32_t i = 0; i < late->count; i++) {
        uint32_t it = umi_comm_number_at(late, i);

        if (it < (uint32_t)comm->size) {
            report->ranks[report->count++] = (int)it;
        }
    }
}

void
umi_comm_late_on_state(umx_comm *comm, const umi_comm_header *header,
                       const umi_comm_state *state)
{
    int            rank   = (int)header->source;
    umi_comm_call  theirs = state->call;
    umi_comm_coll *coll;
    bool           is_asked = header->round != UMI_COMM_ANSWER;

    theirs.number = header->number;
    if (!umi_comm_call_check(comm, rank, &theirs)) {
        return;
    }
    umi_comm_late_note(comm, rank, header->number);
    keep_report(comm, rank, header->number, &state->late);
    if (is_asked) {
        comm->ranks[rank].asked = header->number;
    }
    coll = umi_comm_coll_find(comm, header->number);
    if (coll != NULL && coll->status == UMX_INPROGRESS) {
        answer(coll, is_asked ? rank : -1);
    }
}

/* ---- the end -------------------------------------------------------------
 */

static void
keep(umx_comm *comm, const list *late, uint64_t number)
{
    comm->failure.num_late = late->count;
    memcpy(comm->failure.late, late->ranks, sizeof(late->ranks));
    comm->late_number = number;
}

void
umi_comm_late_keep(umi_comm_coll *coll)
{
    list late = {0};

    if (!coll->comm->is_revoked) {
        find(coll, &late);
        keep(coll->comm, &late, coll->number);
    }
}

void
umi_comm_late_merge(umx_comm *comm, const umi_comm_failed *failed)
{
    const umi_comm_coll *coll = umi_comm_coll_find(comm, failed->number);
    list                 late = {0};

    if (failed->late.count == 0) {
        return;
    }
    for (uint32_t i = 0; i < failed->late.count; i++) {
        uint32_t rank = umi_comm_number_at(&failed->late, i);

        if (rank < (uint32_t)comm->size) {
            add(comm, &late, failed->number, (int)rank);
        }
    }
    if (coll != NULL) {
        find(coll, &late);
    }
    keep(comm, &late, failed->number);
}

void
umi_comm_late_inherit(umx_comm *comm, const umx_comm *parent)
{
    comm->failure.num_late = parent->failure.num_late;
    memcpy(comm->failure.late, parent->failure.late,
           sizeof(comm->failure.late));
}

void
umi_comm_late_describe(umx_comm *comm)
{
    uint32_t ranks[UMX_COMM_LATE_MAX];
    char     text[UMI_COMM_RANKS_TEXT_MAX];
    int      count = comm->failure.num_late;
    size_t   len   = comm->reason_len;

    if (count <= 0) {
        return;
    }
    for (int i = 0; i < count; i++) {
        ranks[i] = (uint32_t)comm->failure.late[i];
    }
    umi_comm_bootstrap_name_ranks(
        text, sizeof(text), ranks, (unsigned)count,
        (count < UMX_COMM_LATE_MAX) ? (unsigned)count : (unsigned)count + 1);
    (void)snprintf(comm->reason + len, sizeof(comm->reason) - len,
                   "; rank%s %s had not come to it", (count == 1) ? "" : "s",
                   text);
    umi_utf8_end(comm->reason);
}
