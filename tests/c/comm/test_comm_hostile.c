/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port wrap=malloc */
/* Communicators that are given back at odd moments, and ranks that lie. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#include "comm/communicator.h"
#include "comm/member.h"

enum {
    LARGE = 300000,
    FLOOD = 40,  /* more messages than are left with their sender */
    EARLY = 6000 /* more than the credit of an endpoint allows */
};

static void
steps(world *w, int count)
{
    for (int i = 0; i < count; i++) {
        world_step(w);
    }
}

static void
kill_rank(world *w, int rank)
{
    umx_worker_destroy(w->workers[rank]);
    w->workers[rank] = NULL;
}

static void
barrier(world *w, int rank, job *j)
{
    umx_op_params params = job_params(j);
    umx_request  *req    = NULL;

    job_posted(j, umx_barrier(w->comms[rank], &params, &req), &req);
}

static void
bcast(world *w, int rank, int root, void *data, size_t len, job *j)
{
    umx_op_params params = job_params(j);
    umx_buffer    buf    = umx_host_buffer(data, len);
    umx_request  *req    = NULL;

    job_posted(j, umx_bcast(w->comms[rank], root, &buf, &params, &req), &req);
}

static umx_comm *
split(world *w, int rank, int color, job *j)
{
    umx_op_params params = job_params(j);
    umx_request  *req    = NULL;
    umx_comm     *made   = NULL;

    job_posted(j,
               umx_comm_split(w->comms[rank], color, 0, &params, &made, &req),
               &req);
    assert_non_null(made);
    return made;
}

static void
leave(umx_comm *comm)
{
    umx_comm_close(comm);
    umx_comm_destroy(comm);
}

/* ---- given back ----------------------------------------------------------
 */

/* Messages of an operation that this rank never begins were not freed. */
static void
test_closing_with_an_operation_announced(void **state)
{
    world *w = *state;
    job    j;

    world_open(w, 2);
    barrier(w, 1, &j);
    steps(w, 20);
    umx_comm_close(w->comms[0]);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
}

/* The split communicator went while the failure of a rank was told to those of
 * its group, and the list of these was read on from it. */
static void
test_a_split_given_back_and_a_rank_that_dies(void **state)
{
    world *w = *state;
    job    j;

    world_open(w, 3);
    umx_comm_destroy(split(w, 0, 0, &j));
    steps(w, 20);
    kill_rank(w, 1);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
}

/* The others waited for a rank that had given its communicator back before it
 * was made. */
static void
test_a_split_given_back_before_it_is_made(void **state)
{
    for (int how = 0; how < 3; how++) {
        world        *w = *state;
        umx_comm     *made[2];
        umx_op_params params;
        umx_request  *req = NULL;
        job           jobs[2], j;

        if (how == 0) {
            world_open(w, 2);
        }
        made[0] = split(w, 0, 0, &jobs[0]);
        if (how == 0) {
            umx_comm_destroy(made[0]);
        } else if (how == 1) {
            umx_comm_close(made[0]);
        } else {
            umx_comm_abort(made[0], NULL);
        }
        made[1] = split(w, 1, 0, &jobs[1]);
        world_wait(w, jobs, 2, UMX_OK);
        params = job_params(&j);
        job_posted(&j, umx_barrier(made[1], &params, &req), &req);
        assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
        umx_comm_destroy(made[1]);
        if (how != 0) {
            umx_comm_destroy(made[0]);
        }
    }
}

static void
test_splits_outlive_their_parent(void **state)
{
    world        *w = *state;
    umx_comm     *made[3];
    umx_op_params params;
    job           jobs[3];

    world_open(w, 3);
    for (int i = 0; i < 3; i++) {
        made[i] = split(w, i, 0, &jobs[i]);
    }
    world_wait(w, jobs, 3, UMX_OK);
    for (int i = 0; i < 3; i++) {
        leave(w->comms[i]);
        w->comms[i] = made[i];
    }
    steps(w, 20);
    for (int i = 0; i < 3; i++) {
        umx_request *req = NULL;

        params = job_params(&jobs[i]);
        job_posted(&jobs[i], umx_barrier(made[i], &params, &req), &req);
    }
    world_wait(w, jobs, 3, UMX_OK);
}

/* A rank that has left had taken part in the operation: it is not missing. */
static void
test_the_root_of_a_bcast_leaves_at_once(void **state)
{
    world *w  = *state;
    char   in = 0, out = 'x';
    job    j;

    world_open(w, 2);
    bcast(w, 0, 0, &out, 1, &j);
    assert_int_equal(world_wait_one(w, &j), UMX_OK);
    umx_comm_close(w->comms[0]);
    steps(w, 50);
    bcast(w, 1, 0, &in, 1, &j);
    assert_int_equal(world_wait_one(w, &j), UMX_OK);
    assert_int_equal(in, 'x');
    barrier(w, 1, &j);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
}

/* In every state; whatever was under way has to end. */
static void
test_destroyed_with_everything_under_way(void **state)
{
    world *w = *state;

    for (int what = 0; what < 6; what++) {
        char   *data = calloc(4, LARGE);
        receipt posted, coming;
        job     jobs[4];

        assert_non_null(data);
        w->port = 0;
        world_open(w, 3);
        recv_from(w, 0, 1, 77, UINT64_MAX, data, 1, &posted);
        send_to(w, 1, 0, 1, data + LARGE, LARGE, &jobs[0]);
        steps(w, what);
        recv_from(w, 0, 1, 1, UINT64_MAX, data + 2 * LARGE, LARGE, &coming);
        send_to(w, 0, 2, 1, data + 3 * LARGE, LARGE, &jobs[1]);
        barrier(w, 0, &jobs[2]);
        barrier(w, 1, &jobs[3]);
        steps(w, what);
        if (what % 2 == 0) {
            umx_comm_destroy(w->comms[0]);
            w->comms[0] = NULL;
        } else {
            kill_rank(w, 0);
        }
        assert_true(world_wait_one(w, &posted.j) < 0);
        (void)world_wait_one(w, &coming.j);
        for (int i = 0; i < 4; i++) {
            (void)world_wait_one(w, &jobs[i]);
        }
        assert_int_equal(jobs[3].status, UMX_ERR_RANK_FAILED);
        for (int i = 0; i < 3; i++) {
            if (w->comms[i] != NULL) {
                umx_comm_destroy(w->comms[i]);
                w->comms[i] = NULL;
            }
            if (w->workers[i] != NULL) {
                kill_rank(w, i);
            }
        }
        umx_context_release(w->context);
        w->context = NULL;
        free(data);
    }
    world_workers(w, 1);
}

typedef struct giver {
    job       j;
    umx_comm *comm;
} giver;

static void
give_back(umx_request *req, umx_status status, void *arg)
{
    giver *g = arg;

    (void)req;
    g->j.status = status;
    umx_comm_destroy(g->comm);
}

static void
test_destroyed_by_its_own_callback(void **state)
{
    world          *w = *state;
    giver           g;
    char            byte;
    umx_buffer      buf    = umx_host_buffer(&byte, 1);
    umx_op_params   params = job_params(&g.j);
    umx_request    *req    = NULL;
    job             sent, j;
    umx_comm_status got;

    world_open(w, 2);
    g.comm         = w->comms[0];
    params.on_done = give_back;
    params.arg     = &g;
    job_posted(&g.j,
               umx_comm_irecv(w->comms[0], 1, 0, 0, &buf, &params, &req, &got),
               &req);
    barrier(w, 0, &j);
    w->comms[0] = NULL;
    send_to(w, 1, 0, 1, "x", 1, &sent);
    assert_int_equal(world_wait_one(w, &g.j), UMX_OK);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
}

static void
test_destroyed_while_ranks_gather(void **state)
{
    world *w = *state;
    job    jobs[3];

    for (int count = 0; count < 30; count += 3) {
        w->port = 0;
        world_workers(w, 3);
        for (int i = 0; i < 3; i++) {
            umx_comm_params params = world_params(w, i);
            umx_op_params   how    = job_params(&jobs[i]);
            umx_request    *req    = NULL;

            job_posted(&jobs[i],
                       umx_comm_create(w->workers[i], &params, &how,
                                       &w->comms[i], &req),
                       &req);
        }
        steps(w, count);
        if (count % 2 == 0) {
            assert_non_null(w->comms[count % 3]);
            umx_comm_destroy(w->comms[count % 3]);
            w->comms[count % 3] = NULL;
        } else if (jobs[count % 3].req != NULL) {
            op_cancel(jobs[count % 3].req);
        }
        steps(w, 10);
        for (int i = 0; i < 3; i++) {
            if (w->comms[i] != NULL) {
                umx_comm_destroy(w->comms[i]);
                w->comms[i] = NULL;
            }
            (void)world_wait_one(w, &jobs[i]);
        }
        for (int i = 0; i < 3; i++) {
            kill_rank(w, i);
        }
        umx_context_release(w->context);
        w->context = NULL;
    }
    world_workers(w, 1);
}

/* ---- messages ------------------------------------------------------------
 */

/* A message in the program's hands whose bytes were on their way here was freed
 * when they did not come. */
static void
test_a_message_in_hand_whose_sender_dies(void **state)
{
    world            *w    = *state;
    char             *data = malloc((size_t)FLOOD * LARGE);
    umx_comm_message *messages[FLOOD];
    job               jobs[FLOOD];
    int               count = 0;
    umx_comm_status   got;

    world_open(w, 2);
    for (int i = 0; i < FLOOD; i++) {
        send_to(w, 0, 1, 1, data + i * LARGE, LARGE, &jobs[i]);
    }
    for (int i = 0; i < 2000 && count < FLOOD; i++) {
        (void)!umx_worker_drain(w->workers[0]);
        (void)!umx_worker_drain(w->workers[1]);
        while (count < FLOOD &&
               umx_comm_improbe(w->comms[1], 0, 1, UINT64_MAX, &messages[count],
                                &got) == UMX_OK) {
            count++;
        }
    }
    kill_rank(w, 0);
    steps(w, 50);
    while (count > 0) {
        umx_comm_message_return(messages[--count]);
    }
    for (int i = 0; i < FLOOD; i++) {
        (void)world_wait_one(w, &jobs[i]);
    }
    free(data);
}

/* One more is taken while it is brought here. */
static void
test_a_late_message_in_hand_whose_sender_dies(void **state)
{
    for (int pause = 0; pause < 4; pause++) {
        world            *w    = *state;
        char             *data = calloc(FLOOD, LARGE);
        umx_comm_message *message;
        job               jobs[FLOOD];
        umx_comm_status   got;

        w->port = 0;
        world_open(w, 2);
        for (int i = 0; i < FLOOD; i++) {
            send_to(w, 0, 1, (uint64_t)i, data + i * LARGE, LARGE, &jobs[i]);
        }
        for (int i = 0;
             i < 20000 && umx_comm_iprobe(w->comms[1], 0, FLOOD - 2, UINT64_MAX,
                                          &got) != UMX_OK;
             i++) {
            (void)!umx_worker_drain(w->workers[0]);
            (void)!umx_worker_drain(w->workers[1]);
        }
        assert_int_equal(umx_comm_improbe(w->comms[1], 0, FLOOD - 2, UINT64_MAX,
                                          &message, &got),
                         UMX_OK);
        for (int i = 0; i < pause; i++) {
            (void)!umx_worker_drain(w->workers[1]);
        }
        kill_rank(w, 0);
        steps(w, 50);
        umx_comm_message_return(message);
        for (int i = 0; i < FLOOD; i++) {
            (void)world_wait_one(w, &jobs[i]);
        }
        for (int i = 0; i < 2; i++) {
            umx_comm_destroy(w->comms[i]);
            w->comms[i] = NULL;
        }
        kill_rank(w, 1);
        umx_context_release(w->context);
        w->context = NULL;
        free(data);
    }
    world_workers(*state, 1);
}

/* A send that is cancelled is counted as sent or as not sent, on both sides: a
 * receive that waits ends when its sender has left. */
static void
test_cancelled_at_each_moment(void **state)
{
    world *w    = *state;
    char  *data = calloc(4, LARGE);

    world_open(w, 3);
    for (int moment = 0; moment < 24; moment++) {
        job     sent[2], b[3];
        receipt r[2];
        char    in[3] = {0};

        send_to(w, 0, 1, 1, data, (moment % 2) ? LARGE : 10, &sent[0]);
        if (moment % 3 != 0) {
            recv_from(w, 1, 0, 1, UINT64_MAX, data + LARGE, LARGE, &r[0]);
        }
        steps(w, moment / 6);
        if (sent[0].req != NULL) {
            op_cancel(sent[0].req);
        }
        if (moment % 3 != 0 && r[0].j.req != NULL) {
            op_cancel(r[0].j.req);
            op_cancel(r[0].j.req);
        }
        send_to(w, 0, 1, 2, data, 1, &sent[1]);
        recv_from(w, 1, 0, 2, UINT64_MAX, data, 1, &r[1]);
        assert_int_equal(world_wait_one(w, &r[1].j), UMX_OK);
        assert_int_equal(world_wait_one(w, &sent[1]), UMX_OK);
        if (moment % 3 != 0) {
            (void)world_wait_one(w, &r[0].j);
        }
        for (int i = 0; i < 3; i++) {
            bcast(w, i, 2, &in[i], 1, &b[i]);
        }
        world_wait(w, b, 3, UMX_OK);
        for (;;) { /* what is left of it */
            umx_comm_status found;

            if (umx_comm_iprobe(w->comms[1], 0, 1, UINT64_MAX, &found) !=
                UMX_OK) {
                break;
            }
            recv_from(w, 1, 0, 1, UINT64_MAX, data + LARGE, LARGE, &r[0]);
            (void)world_wait_one(w, &r[0].j);
        }
        (void)world_wait_one(w, &sent[0]);
    }
    {
        receipt last;

        recv_from(w, 1, 0, 9, UINT64_MAX, data, 1, &last);
        umx_comm_close(w->comms[0]);
        assert_int_equal(world_wait_one(w, &last.j), UMX_ERR_RANK_FAILED);
    }
    free(data);
}

static void
test_a_collective_cancelled_at_each_moment(void **state)
{
    world *w    = *state;
    char  *data = calloc(3, LARGE);

    world_open(w, 3);
    for (int moment = 0; moment < 8; moment++) {
        umx_comm *parents[3];
        job       jobs[3];

        memcpy(parents, w->comms, sizeof(parents));
        for (int i = 0; i < 3; i++) {
            w->comms[i] = split(w, i, 0, &jobs[i]);
        }
        for (int i = 0; i < 3; i++) {
            (void)world_wait_one(w, &jobs[i]);
        }
        for (int i = 0; i < 3; i++) {
            bcast(w, i, 0, data + i * LARGE, LARGE, &jobs[i]);
        }
        steps(w, moment);
        if (jobs[moment % 3].req != NULL) {
            op_cancel(jobs[moment % 3].req);
        }
        for (int i = 0; i < 3; i++) {
            umx_status status = world_wait_one(w, &jobs[i]);

            assert_true(status == UMX_OK || status == UMX_ERR_RANK_FAILED);
            umx_comm_destroy(w->comms[i]);
            w->comms[i] = parents[i];
        }
    }
    free(data);
}

/* Requests without a callback are the program's until it gives them back. */
static void
test_kept_requests(void **state)
{
    world          *w    = *state;
    umx_request    *req  = NULL;
    char            byte = 0;
    umx_buffer      buf  = umx_host_buffer(&byte, 1);
    umx_comm_status got;
    job             j, sent;

    world_open(w, 2);
    barrier(w, 1, &j);
    send_to(w, 1, 0, 5, "x", 1, &sent);
    assert_int_equal(
        umx_comm_irecv(w->comms[0], 1, 5, UINT64_MAX, &buf, NULL, &req, &got),
        UMX_INPROGRESS);
    assert_int_equal(umx_request_wait(req, 10 * SECOND_NS), UMX_OK);
    assert_int_equal(umx_comm_result(req)->tag, 5);
    assert_int_equal(umx_comm_result(req)->source, 1);
    umx_request_release(req);
    req = NULL;
    if (umx_barrier(w->comms[0], NULL, &req) == UMX_INPROGRESS) {
        assert_int_equal(umx_request_wait(req, 10 * SECOND_NS), UMX_OK);
        umx_request_release(req);
    }
    assert_int_equal(world_wait_one(w, &j), UMX_OK);
    assert_int_equal(umx_barrier(w->comms[0], NULL, &req), UMX_INPROGRESS);
    assert_int_equal(umx_request_wait(req, SECOND_NS / 100), UMX_ERR_TIMED_OUT);
    umx_comm_destroy(w->comms[0]);
    w->comms[0] = NULL;
    assert_int_equal(umx_request_wait(req, 10 * SECOND_NS),
                     UMX_ERR_RANK_FAILED);
    umx_request_release(req);
}

static void
test_the_shortest_times(void **state)
{
    world *w = *state;
    job    jobs[2];

    world_workers(w, 2);
    for (int i = 0; i < 2; i++) {
        umx_comm_params params = world_params(w, i);
        umx_op_params   how    = job_params(&jobs[i]);
        umx_request    *req    = NULL;

        params.field_mask |= UMX_COMM_FIELD_HEARTBEAT;
        params.heartbeat_ns = 1;
        job_posted(
            &jobs[i],
            umx_comm_create(w->workers[i], &params, &how, &w->comms[i], &req),
            &req);
    }
    world_wait(w, jobs, 2, UMX_OK);
    steps(w, 20);
}

/* ---- lies ----------------------------------------------------------------
 */

/* Send what a rank of the group would not. */
static void
lie(world *w, int from, int to, umi_comm_header header, const void *data,
    size_t len)
{
    umx_comm        *comm   = w->comms[from];
    umi_comm_member *member = comm->ranks[to].member;

    if (header.comm == 0) {
        header.comm = comm->id;
    }
    umi_comm_member_send(member, &header, data, len);
}

/* It has sent fewer messages than it said, and its end was ignored since it
 * had left. */
static void
test_a_rank_that_leaves_with_messages_unsent(void **state)
{
    world          *w       = *state;
    uint64_t        sent[3] = {9, 9, 9};
    umi_comm_header bye     = {
            .kind = UMI_COMM_BYE, .round = 2, .source = 2, .number = 1};
    receipt r;
    char    byte;

    world_open(w, 3);
    recv_from(w, 1, 2, 1, UINT64_MAX, &byte, 1, &r);
    lie(w, 2, 0, bye, sent, sizeof(sent)); /* which tells rank 1 */
    steps(w, 50);
    assert_int_equal(r.j.status, UMX_INPROGRESS);
    kill_rank(w, 2);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
    recv_from(w, 1, 2, 1, UINT64_MAX, &byte, 1, &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_ERR_RANK_FAILED);
}

/* The root, which takes no part, has left. */
static void
test_a_stopped_rank_of_a_split_without_the_root(void **state)
{
    world          *w = *state;
    umx_comm       *made[3];
    umx_op_params   params;
    umx_buffer      buf;
    umx_comm_status got;
    umx_request    *req = NULL;
    job             jobs[3], j;
    char            byte;

    world_workers(w, 3);
    for (int i = 0; i < 3; i++) {
        umx_comm_params how = world_params(w, i);

        how.field_mask |= UMX_COMM_FIELD_HEARTBEAT;
        how.heartbeat_ns = SECOND_NS / 5;
        params           = job_params(&jobs[i]);
        req              = NULL;
        job_posted(
            &jobs[i],
            umx_comm_create(w->workers[i], &how, &params, &w->comms[i], &req),
            &req);
    }
    world_wait(w, jobs, 3, UMX_OK);
    for (int i = 0; i < 3; i++) {
        made[i] = split(w, i, i != 0, &jobs[i]);
    }
    world_wait(w, jobs, 3, UMX_OK);
    for (int i = 0; i < 3; i++) {
        leave(w->comms[i]);
        w->comms[i] = made[i];
    }
    buf    = umx_host_buffer(&byte, 1);
    params = job_params(&j);
    req    = NULL;
    job_posted(&j, umx_comm_irecv(made[1], 1, 0, 0, &buf, &params, &req, &got),
               &req);
    while (w->comms[1]->group->members[2].out == NULL) {
        world_step(w);
    }
    world_move_away(w, 2);
    w->is_stopped[2] = true;
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
    w->is_stopped[2] = false;
}

/* Each rank would have had the messages of the other. */
static void
test_two_ranks_on_one_worker(void **state)
{
    world          *w = *state;
    umx_comm_params params;
    umx_op_params   how;
    umx_request    *req;
    umx_comm       *comms[2];
    job             jobs[2];

    world_workers(w, 1);
    w->size = 2;
    for (int i = 0; i < 2; i++) {
        params = world_params(w, i);
        how    = job_params(&jobs[i]);
        req    = NULL;
        job_posted(
            &jobs[i],
            umx_comm_create(w->workers[0], &params, &how, &comms[i], &req),
            &req);
    }
    w->size = 1;
    world_wait(w, jobs, 2, UMX_ERR_REJECTED);
    assert_non_null(strstr(umx_comm_reason(comms[0]), "worker"));
    umx_comm_destroy(comms[0]);
    umx_comm_destroy(comms[1]);
}

static bool is_starved; /* of what is as small as the next */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *
__wrap_malloc(size_t size)
{
    return (is_starved && size == sizeof(umi_comm_orphan)) ?
               NULL :
               __real_malloc(size);
}

/* A message that came too early cannot be kept: its sender is told. */
static void
test_no_memory_for_an_early_message(void **state)
{
    world          *w      = *state;
    umi_comm_header header = {
        .kind = UMI_COMM_MESSAGE, .source = 1, .comm = 12345};
    job jobs[2];

    world_open(w, 2);
    lie(w, 1, 0, header, "x", 1);
    is_starved = true;
    steps(w, 20);
    is_starved = false;
    for (int i = 0; i < 2; i++) {
        barrier(w, i, &jobs[i]);
    }
    world_wait(w, jobs, 2, UMX_ERR_RANK_FAILED);
}

/* As many messages of a communicator that nobody knows as its credit allows.
 */
static void
flood(world *w, int from, int to)
{
    umi_comm_header header = {
        .kind = UMI_COMM_MESSAGE, .source = (uint32_t)from, .comm = 12345};

    for (int i = 0; i < EARLY; i++) {
        lie(w, from, to, header, "x", 1);
    }
    steps(w, 200);
}

static unsigned
orphans_of(const world *w, int rank)
{
    return w->comms[rank]->group->dispatch->num_orphans;
}

/* The first messages were dropped for those of another rank, and nobody told.
 */
static void
test_a_flood_does_not_cost_others_their_early_messages(void **state)
{
    world      *w = *state;
    umx_comm   *made[2];
    const void *address;
    size_t      len;
    job         jobs[2];

    world_open(w, 3);
    assert_int_equal(umx_worker_get_address(w->workers[0], &address, &len),
                     UMX_OK);
    for (int i = 1; i >= 0; i--) { /* the root comes last */
        umx_comm_params params = {
            .rank = i, .size = 2, .root = address, .root_len = len};
        umx_op_params how = job_params(&jobs[i]);
        umx_request  *req = NULL;

        if (i == 0) {
            flood(w, 2, 0);
            assert_in_range(orphans_of(w, 0), 4096 + 1, EARLY);
        }
        job_posted(
            &jobs[i],
            umx_comm_create(w->workers[i], &params, &how, &made[i], &req),
            &req);
        steps(w, 50);
        if (i == 1) {
            assert_int_equal(orphans_of(w, 0), 1); /* its HELLO */
        }
    }
    world_wait(w, jobs, 2, UMX_OK);
    umx_comm_close(made[0]);
    umx_comm_close(made[1]);
    umx_comm_destroy(made[0]);
    umx_comm_destroy(made[1]);
    kill_rank(w, 2); /* the rest of its flood waits for credit */
}

/* Ranks that flood and end, one after the other, leave no more than one may
 * have. */
static void
test_floods_of_ended_ranks_are_forgotten(void **state)
{
    world   *w = *state;
    unsigned one;

    world_open(w, 5);
    flood(w, 1, 0);
    one = orphans_of(w, 0);
    assert_true(one > 0);
    for (int i = 2; i < 5; i++) {
        kill_rank(w, i - 1);
        steps(w, 50);
        flood(w, i, 0);
        assert_true(orphans_of(w, 0) <= 2 * one);
    }
    kill_rank(w, 4);
}

static void
test_lies_end_in_an_error_or_in_nothing(void **state)
{
    static const uint8_t kinds[] = {UMI_COMM_MESSAGE,
                                    UMI_COMM_COLLECTIVE,
                                    UMI_COMM_HELLO,
                                    UMI_COMM_TABLE,
                                    UMI_COMM_REFUSE,
                                    UMI_COMM_PENDING,
                                    UMI_COMM_FAILED,
                                    UMI_COMM_BYE,
                                    UMI_COMM_PING,
                                    UMI_COMM_STATE,
                                    0,
                                    99};

    world   *w    = *state;
    uint64_t seed = 88172645463325252u;

    for (int round = 0; round < 12; round++) {
        char in[3], data[64];
        job  jobs[3];

        w->port = 0;
        world_open(w, 3);
        for (int i = 0; i < 200; i++) {
            uint64_t        r[4];
            umi_comm_header header;

            for (int k = 0; k < 4; k++) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                r[k] = seed;
            }
            memset(data, (int)(r[3] >> 8), sizeof(data));
            header = (umi_comm_header){
                .kind   = (r[0] % 4 == 0) ? kinds[(r[0] >> 8) % sizeof(kinds)] :
                                            kinds[round % (int)sizeof(kinds)],
                .op     = (uint8_t)(r[0] >> 16) % 12,
                .round  = (uint16_t)((r[0] >> 24) % 5),
                .source = (uint32_t)((r[1] % 3 == 0) ? r[1] >> 32 : r[1] % 4),
                .comm   = (r[1] >> 8) % 5 == 0 ? r[2] : 0,
                .number = (r[1] >> 16) % 4 == 0 ? r[3] : (r[1] >> 20) % 4,
                .what   = (r[2] % 2) ? UINT32_MAX : r[2],
                .bytes  = (r[2] >> 8) % 2};
            lie(w, 1 + (int)(r[3] % 2), (r[3] >> 4) % 2 ? 0 : 1 + !(r[3] % 2),
                header, data, r[3] % 5 == 0 ? 24 : r[3] % sizeof(data));
        }
        steps(w, 20);
        for (int i = 0; i < 3; i++) {
            bcast(w, i, 0, &in[i], 1, &jobs[i]);
        }
        steps(w, 20);
        for (int i = 2; i >= 0; i--) {
            umx_comm_destroy(w->comms[i]);
            w->comms[i] = NULL;
        }
        for (int i = 0; i < 3; i++) {
            (void)world_wait_one(w, &jobs[i]);
            kill_rank(w, i);
        }
        umx_context_release(w->context);
        w->context = NULL;
    }
    world_workers(w, 1);
}

/* ---- many ----------------------------------------------------------------
 */

static void
test_a_thousand_communicators(void **state)
{
    enum {
        COUNT = 1000
    };

    world           *w = *state;
    umx_worker_stats stats;
    umx_comm        *parents[2];
    job              jobs[2];

    world_open(w, 2);
    memcpy(parents, w->comms, sizeof(parents));
    for (int k = 0; k < COUNT; k++) {
        for (int i = 0; i < 2; i++) {
            w->comms[i] = split(w, i, 0, &jobs[i]);
        }
        world_wait(w, jobs, 2, UMX_OK);
        for (int i = 0; i < 2; i++) {
            barrier(w, i, &jobs[i]);
        }
        world_wait(w, jobs, 2, UMX_OK);
        for (int i = 0; i < 2; i++) {
            leave(w->comms[i]);
            w->comms[i] = parents[i];
        }
    }
    steps(w, 20);
    for (int i = 0; i < 2; i++) {
        umx_worker_query(w->workers[i], &stats);
        assert_int_equal(stats.requests_in_use, 0);
        assert_int_equal(w->comms[i]->group->refs.count, 1);
        assert_int_equal(w->comms[i]->group->dispatch->num_orphans, 0);
    }
}

/* Goodbyes that cross, as each rank leaves before it hears of the other, are
 * known to be of what has ended here; and a rank that has left gets none. */
static void
test_goodbyes_do_not_pile_up(void **state)
{
    enum {
        COUNT = 600
    };

    static umx_comm *comms[COUNT][2];

    world *w = *state;
    job    jobs[2];

    world_open(w, 2);
    for (int is_crossing = 0; is_crossing < 2; is_crossing++) {
        for (int k = 0; k < COUNT; k++) {
            for (int i = 0; i < 2; i++) {
                comms[k][i] = split(w, i, 0, &jobs[i]);
            }
            world_wait(w, jobs, 2, UMX_OK);
        }
        for (int i = 0; i < 2; i++) {
            for (int k = 0; k < COUNT; k++) {
                leave(comms[k][i]);
            }
            if (!is_crossing) {
                steps(w, 20);
            }
        }
        steps(w, 20);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(w->comms[i]->group->dispatch->num_orphans, 0);
        }
    }
}

/* The ids of the oldest are forgotten. */
static void
test_few_freed_communicators_are_remembered(void **state)
{
    world             *w = *state;
    umi_comm_dispatch *dispatch;

    world_open(w, 2);
    dispatch = w->comms[0]->group->dispatch;
    for (uint64_t id = 1; id <= UMI_COMM_PAST_MAX + 10; id++) {
        umi_comm_dispatch_forget(dispatch, id);
    }
    assert_int_equal(dispatch->past.count, UMI_COMM_PAST_MAX);
    assert_null(umi_map_find(&dispatch->past, 10));
    assert_non_null(umi_map_find(&dispatch->past, 11));
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_closing_with_an_operation_announced),
        WORLD_TEST(test_a_split_given_back_and_a_rank_that_dies),
        WORLD_TEST(test_a_split_given_back_before_it_is_made),
        WORLD_TEST(test_splits_outlive_their_parent),
        WORLD_TEST(test_the_root_of_a_bcast_leaves_at_once),
        WORLD_TEST(test_destroyed_with_everything_under_way),
        WORLD_TEST(test_destroyed_by_its_own_callback),
        WORLD_TEST(test_destroyed_while_ranks_gather),
        WORLD_TEST(test_a_message_in_hand_whose_sender_dies),
        WORLD_TEST(test_a_late_message_in_hand_whose_sender_dies),
        WORLD_TEST(test_cancelled_at_each_moment),
        WORLD_TEST(test_a_collective_cancelled_at_each_moment),
        WORLD_TEST(test_kept_requests),
        WORLD_TEST(test_the_shortest_times),
        WORLD_TEST(test_a_rank_that_leaves_with_messages_unsent),
        WORLD_TEST(test_a_stopped_rank_of_a_split_without_the_root),
        WORLD_TEST(test_two_ranks_on_one_worker),
        WORLD_TEST(test_no_memory_for_an_early_message),
        WORLD_TEST(test_a_flood_does_not_cost_others_their_early_messages),
        WORLD_TEST(test_floods_of_ended_ranks_are_forgotten),
        WORLD_TEST(test_lies_end_in_an_error_or_in_nothing),
        WORLD_TEST(test_a_thousand_communicators),
        WORLD_TEST(test_goodbyes_do_not_pile_up),
        WORLD_TEST(test_few_freed_communicators_are_remembered),
    };

    return UNIT_RUN(tests);
}
