/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port wrap=umi_segment_create wrap=umx_layer_am_send */
/* tests: comm/inbox_cell comm/inbox_keys comm/inbox_out library/loan */
/* Messages of collective operations through inboxes, and ranks that write into
 * them what they like. inbox.c is part of this file, which looks into it. */
#include "comm/inbox.c"

#include "keys/key.h"
#include "world.h"

enum {
    MAX_PIECE = 200000
};

static void
post_barrier(world *w, int rank, job *j)
{
    umx_op_params params = job_params(j);
    umx_request  *req    = NULL;

    job_posted(j, umx_barrier(w->comms[rank], &params, &req), &req);
}

static void
run_barrier(world *w)
{
    job jobs[MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        post_barrier(w, r, &jobs[r]);
    }
    world_wait(w, jobs, w->size, UMX_OK);
}

/* Barriers until all have mapped the inboxes of all. */
static void
open_mapped(world *w, int size)
{
    bool is_mapped = false;

    world_open(w, size);
    for (int i = 0; i < 100 && !is_mapped; i++) {
        run_barrier(w);
        world_step(w);
        is_mapped = true;
        for (int r = 0; r < size; r++) {
            is_mapped = is_mapped && w->comms[r]->inbox != NULL &&
                        w->comms[r]->inbox->num_mapped == (unsigned)size - 1;
        }
    }
    assert_true(is_mapped);
}

/* ---- the ways ------------------------------------------------------------
 */

/* A buffer in a Memory, or not. */
typedef struct place {
    umx_memh      *memh;
    umx_buffer     buf;
    unsigned char *data;
} place;

static void
make_place(world *w, place *p, size_t len, bool is_memory)
{
    *p = (place){0};
    if (is_memory) {
        assert_int_equal(umx_memh_alloc(w->context, len + 1, &p->memh), UMX_OK);
        p->buf      = *umx_memh_buffer(p->memh);
        p->buf.memh = p->memh;
        p->buf.len  = len;
    } else {
        p->buf = umx_host_buffer(calloc(1, len + 1), len);
    }
    p->data = p->buf.data;
}

static void
end_place(place *p)
{
    if (p->memh != NULL) {
        umx_memh_release(p->memh);
    } else {
        free(p->data);
    }
}

static void
run_alltoall(world *w)
{
    size_t counts[MAX_RANKS][MAX_RANKS], in[MAX_RANKS][MAX_RANKS];
    place  send[MAX_RANKS], recv[MAX_RANKS];
    job    jobs[MAX_RANKS];

    for (int r = 0; r < w->size; r++) {
        for (int i = 0; i < w->size; i++) {
            counts[r][i] = (next_random(4) == 0) ? next_random(9) :
                                                   next_random(MAX_PIECE);
            in[i][r]     = counts[r][i];
        }
    }
    for (int r = 0; r < w->size; r++) {
        size_t sent = 0, received = 0, at = 0;

        for (int i = 0; i < w->size; i++) {
            sent += counts[r][i];
            received += in[r][i];
        }
        make_place(w, &send[r], sent, next_random(2) == 0);
        make_place(w, &recv[r], received, next_random(2) == 0);
        for (int i = 0; i < w->size; i++) {
            for (size_t k = 0; k < counts[r][i]; k++) {
                send[r].data[at++] = byte_of(r, i, k);
            }
        }
    }
    for (int r = 0; r < w->size; r++) {
        umx_op_params params      = job_params(&jobs[r]);
        umx_pieces    send_pieces = {.counts = counts[r]};
        umx_pieces    recv_pieces = {.counts = in[r]};
        umx_request  *req         = NULL;

        job_posted(&jobs[r],
                   umx_alltoallv(w->comms[r], &send[r].buf, &send_pieces,
                                 &recv[r].buf, &recv_pieces, &params, &req),
                   &req);
    }
    world_wait(w, jobs, w->size, UMX_OK);
    for (int r = 0; r < w->size; r++) {
        size_t at = 0;

        for (int i = 0; i < w->size; i++) {
            for (size_t k = 0; k < in[r][i]; k++) {
                assert_int_equal(recv[r].data[at++], byte_of(i, r, k));
            }
        }
    }
    for (int r = 0; r < w->size; r++) {
        end_place(&send[r]);
        end_place(&recv[r]);
    }
}

/* More memories than keys are kept, more bytes than a ring has, pieces of all
 * sizes. */
static void
test_alltoall_of_memory_and_other(void **state)
{
    world *w = *state;

    random_state = 4711;
    open_mapped(w, 3);
    for (int i = 0; i < 12; i++) {
        run_alltoall(w);
    }
}

/* Cells and rings wrap around many times. */
static void
test_many_small_ones(void **state)
{
    world *w = *state;

    open_mapped(w, 2);
    for (int i = 0; i < 3 * UMI_COMM_CELLS; i++) {
        size_t         len = (size_t)i * 331 % (UMI_COMM_RING_MAX / RING_SHARE);
        unsigned char *data[2];
        job            jobs[2];

        for (int r = 0; r < 2; r++) {
            umx_op_params params = job_params(&jobs[r]);
            umx_request  *req    = NULL;
            umx_buffer    buf;

            data[r] = malloc(len + 1);
            memset(data[r], (r == 1) ? i : ~i, len);
            buf = umx_host_buffer(data[r], len);
            job_posted(&jobs[r], umx_bcast(w->comms[r], 1, &buf, &params, &req),
                       &req);
        }
        world_wait(w, jobs, 2, UMX_OK);
        if (len != 0) {
            assert_memory_equal(data[0], data[1], len);
        }
        free(data[0]);
        free(data[1]);
    }
    run_barrier(w);
}

/* A rank far ahead fills the inbox; the rest takes the channel. */
static void
test_a_full_inbox(void **state)
{
    enum {
        COUNT = 2 * UMI_COMM_CELLS
    };

    world   *w = *state;
    job      sent[COUNT], received[COUNT];
    uint64_t words[2][COUNT];

    open_mapped(w, 2);
    for (int i = 0; i < COUNT; i++) {
        umx_op_params params = job_params(&sent[i]);
        umx_buffer    buf    = umx_host_buffer(&words[0][i], sizeof(uint64_t));
        umx_request  *req    = NULL;

        words[0][i] = (uint64_t)i * 3;
        job_posted(&sent[i], umx_bcast(w->comms[0], 0, &buf, &params, &req),
                   &req);
    }
    for (int i = 0; i < 20; i++) {
        world_step(w);
    }
    for (int i = 0; i < COUNT; i++) {
        umx_op_params params = job_params(&received[i]);
        umx_buffer    buf    = umx_host_buffer(&words[1][i], sizeof(uint64_t));
        umx_request  *req    = NULL;

        job_posted(&received[i], umx_bcast(w->comms[1], 0, &buf, &params, &req),
                   &req);
    }
    world_wait(w, sent, COUNT, UMX_OK);
    world_wait(w, received, COUNT, UMX_OK);
    assert_memory_equal(words[0], words[1], sizeof(words[0]));
}

/* Post the broadcast of a word from rank 0. */
static void
post_word(world *w, int rank, uint64_t *word, job *j)
{
    umx_op_params params = job_params(j);
    umx_buffer    buf    = umx_host_buffer(word, sizeof(*word));
    umx_request  *req    = NULL;

    job_posted(j, umx_bcast(w->comms[rank], 0, &buf, &params, &req), &req);
}

/* A root that waits for each of its broadcasts has to wait for the other rank
 * once it is half of the inbox ahead, and never takes the channel. */
static void
test_a_root_far_ahead_waits(void **state)
{
    world   *w = *state;
    job      sent, received;
    uint64_t words[2];
    uint64_t ahead = 0;

    open_mapped(w, 2);
    for (uint64_t i = 0; i < 5 * UMI_COMM_CELLS; i++) {
        words[0] = i;
        post_word(w, 0, &words[0], &sent);
        if (sent.status == UMX_OK) {
            assert_true(++ahead <= UMI_COMM_CELLS / 2);
            continue;
        }
        for (; ahead + 1 != 0; ahead--) { /* the other rank catches up */
            post_word(w, 1, &words[1], &received);
            assert_int_equal(world_wait_one(w, &received), UMX_OK);
            assert_int_equal(words[1], i - ahead);
        }
        assert_int_equal(world_wait_one(w, &sent), UMX_OK);
        ahead = 0;
    }
    for (; ahead != 0; ahead--) {
        post_word(w, 1, &words[1], &received);
        assert_int_equal(world_wait_one(w, &received), UMX_OK);
    }
    assert_int_equal(words[1], 5 * UMI_COMM_CELLS - 1);
}

static void
test_two_communicators(void **state)
{
    world    *w = *state;
    umx_comm *worlds[MAX_RANKS], *halves[MAX_RANKS];
    job       jobs[MAX_RANKS];

    open_mapped(w, 3);
    for (int r = 0; r < 3; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;

        job_posted(
            &jobs[r],
            umx_comm_split(w->comms[r], 0, -r, &params, &halves[r], &req),
            &req);
    }
    world_wait(w, jobs, 3, UMX_OK);
    memcpy(worlds, w->comms, sizeof(worlds));
    random_state = 99;
    for (int i = 0; i < 6; i++) {
        for (int r = 0; r < 3; r++) { /* the ranks go the other way round */
            w->comms[r] = (i % 2 == 0) ? worlds[r] : halves[2 - r];
        }
        run_alltoall(w);
    }
    memcpy(w->comms, worlds, sizeof(worlds));
    for (int r = 0; r < 3; r++) {
        umx_comm_close(halves[r]);
        umx_comm_destroy(halves[r]);
    }
}

static void
test_explained(void **state)
{
    world *w = *state;
    char   text[256];

    world_open(w, 2);
    (void)umx_comm_explain(w->comms[0], 1, text, sizeof(text));
    assert_string_equal(text,
                        "channel: there has been no collective operation");
    for (int i = 0; i < 20; i++) {
        run_barrier(w);
    }
    (void)umx_comm_explain(w->comms[0], 1, text, sizeof(text));
    if (w->tls == NULL) {
        assert_non_null(strstr(text, "shared memory: its inbox"));
    } else {
        assert_string_equal(text, "channel: its inbox cannot be mapped");
    }
    (void)umx_comm_explain(w->comms[0], 0, text, sizeof(text));
    assert_string_equal(text, "this rank: copies");
    (void)umx_comm_explain(w->comms[0], 2, text, sizeof(text));
    assert_string_equal(text, "no such rank");
}

/* ---- ranks that write nonsense -------------------------------------------
 */

/* Write a cell as rank 1 into the inbox of rank 0, the next one. */
static void
scribble(world *w, umi_comm_cell c)
{
    umi_comm_out *out = &w->comms[1]->inbox->peers[0].out;

    c.stamp                                 = out->sent + 1;
    *umi_comm_cell_of(out->area, out->sent) = c;
    out->sent++;
}

static void
expect_nonsense(world *w, umi_comm_cell c)
{
    job j;

    open_mapped(w, 2);
    post_barrier(w, 0, &j);
    scribble(w, c);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "rank 1 has written nonsense into the inbox of rank 0");
}

static void
test_a_cell_of_no_kind(void **state)
{
    expect_nonsense(*state, (umi_comm_cell){.kind = 77});
}

static void
test_bytes_outside_of_the_ring(void **state)
{
    expect_nonsense(*state, (umi_comm_cell){.kind = UMI_COMM_CELL_DATA,
                                            .at   = UMI_COMM_RING_MAX - 8,
                                            .len  = 9});
}

static void
test_bytes_of_a_sync_outside_of_the_ring(void **state)
{
    expect_nonsense(*state, (umi_comm_cell){.kind = UMI_COMM_CELL_SYNC,
                                            .at   = UMI_COMM_RING_MAX - 8,
                                            .len  = 9});
}

static void
test_more_bytes_than_there_are(void **state)
{
    expect_nonsense(
        *state, (umi_comm_cell){.kind = UMI_COMM_CELL_DATA, .len = UINT64_MAX});
}

static void
test_a_key_outside_of_the_ring(void **state)
{
    expect_nonsense(
        *state, (umi_comm_cell){
                    .kind = UMI_COMM_CELL_PULL,
                    .key  = {UMI_COMM_RING_MAX / UMI_COMM_CELL_SIZE, KEY_MAX},
                    .len  = 100});
}

/* Post a bcast of rank 1, whose bytes the cell promises elsewhere, and wait for
 * its end. */
static void
receive_nothing(world *w, umi_comm_cell c)
{
    char          data[100];
    umx_buffer    buf = umx_host_buffer(data, sizeof(data));
    umx_op_params params;
    umx_request  *req = NULL;
    job           j;

    params = job_params(&j);
    job_posted(&j, umx_bcast(w->comms[0], 1, &buf, &params, &req), &req);
    c.op      = UMI_COMM_COLL_BCAST;
    c.number  = w->comms[0]->next_number - 1;
    c.what    = 1;
    c.bytes   = sizeof(data);
    c.history = w->comms[0]->calls[c.number % UMI_COMM_CALLS].history;
    c.len     = sizeof(data);
    scribble(w, c);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_RANK_FAILED);
    assert_null(strstr(umx_comm_reason(w->comms[0]), "different"));
}

static void
expect_no_bytes(world *w, umi_comm_cell c)
{
    open_mapped(w, 2);
    receive_nothing(w, c);
    expect_reason(w, 0, "bcast");
}

static void
test_a_key_that_is_none(void **state)
{
    expect_no_bytes(*state,
                    (umi_comm_cell){.kind = UMI_COMM_CELL_PULL, .key.len = 60});
}

/* A loan that nobody has made, and has not agreed on. */
static void
test_a_loan_that_is_none(void **state)
{
    expect_no_bytes(
        *state,
        (umi_comm_cell){.kind = UMI_COMM_CELL_LOAN, .word = 12345, .slot = 3});
}

/* What was never lent is done, a free cell is consumed, and so on: whatever is
 * in the inbox, operations end, one way or the other. */
static void
test_anything_at_all(void **state)
{
    world *w = *state;

    random_state = 31337;
    open_mapped(w, 2);
    for (int round = 0; round < 300 && !w->comms[0]->is_revoked; round++) {
        umi_comm_out *out = &w->comms[1]->inbox->peers[0].out;
        umi_comm_cell c;
        unsigned char bytes[sizeof(c)];

        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (unsigned char)next_random(256);
        }
        memcpy(&c, bytes, sizeof(c));
        c.kind   = (uint8_t)(1 + next_random(UMI_COMM_CELL_LOAN));
        c.number = w->comms[0]->next_number + next_random(3) - 1;
        c.op     = UMI_COMM_COLL_BARRIER;
        c.len &= (next_random(2) == 0) ? 0xffff : ~UINT64_C(0);
        c.word &= (next_random(2) == 0) ? 0xff : ~UINT64_C(0);
        c.at &= (next_random(2) == 0) ? 0xffff : ~UINT32_C(0);
        scribble(w, c);
        *umi_comm_consumed_of(out->area) = next_random(2) * UINT64_MAX;
        world_step(w);
    }
    assert_true(w->comms[0]->is_revoked);
}

/* A receiver that says to have consumed what was not sent, or nothing. */
static void
test_a_receiver_that_lies(void **state)
{
    static const uint64_t lies[] = {0, 1, UINT64_MAX, UINT64_C(1) << 40};

    world *w = *state;

    open_mapped(w, 2);
    for (int i = 0; i < 4 * UMI_COMM_CELLS; i++) {
        *umi_comm_consumed_of(
            w->comms[1]->inbox->peers[0].out.area) = lies[i % 4];
        run_barrier(w);
    }
}

/* Bytes that are pulled from a rank that has been revoked are not used: the
 * operation waits for the reason. */
static void
test_a_revoked_sender(void **state)
{
    world        *w = *state;
    place         from, to;
    umx_op_params params;
    umx_request  *req = NULL;
    job           jobs[2];

    open_mapped(w, 2);
    make_place(w, &from, 100000, true);
    make_place(w, &to, 100000, false);
    params = job_params(&jobs[1]);
    job_posted(&jobs[1], umx_bcast(w->comms[1], 1, &from.buf, &params, &req),
               &req);
    umi_comm_inbox_revoke(w->comms[1]);
    params = job_params(&jobs[0]);
    job_posted(&jobs[0], umx_bcast(w->comms[0], 1, &to.buf, &params, &req),
               &req);
    for (int i = 0; i < 20; i++) {
        world_step(w);
    }
    assert_int_equal(jobs[0].status, UMX_INPROGRESS);
    umx_comm_abort(w->comms[1], "of a reason");
    world_wait(w, jobs, 2, UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "of a reason");
    end_place(&from);
    end_place(&to);
}

/* Memory that rank 1 broadcasts, and that rank 0 pulls. */
typedef struct pulled {
    place from, to;
    job   jobs[2];
} pulled;

static void
post_pulled(world *w, pulled *p, int rank)
{
    umx_op_params params = job_params(&p->jobs[rank]);
    umx_buffer   *buf    = (rank == 1) ? &p->from.buf : &p->to.buf;
    umx_request  *req    = NULL;

    job_posted(&p->jobs[rank], umx_bcast(w->comms[rank], 1, buf, &params, &req),
               &req);
}

static void
open_pulled(world *w, pulled *p)
{
    open_mapped(w, 2);
    make_place(w, &p->from, 100000, true);
    make_place(w, &p->to, 100000, false);
    post_pulled(w, p, 1);
}

static void
end_pulled(pulled *p)
{
    end_place(&p->from);
    end_place(&p->to);
}

/* A rank that is not revoked, but says so in its inbox, would let the others
 * wait for the reason for ever. */
static void
test_a_sender_that_says_falsely_that_it_is_revoked(void **state)
{
    world *w = *state;
    pulled p;

    open_pulled(w, &p);
    umi_comm_inbox_revoke(w->comms[1]);
    post_pulled(w, &p, 0);
    assert_int_equal(world_wait_one(w, &p.jobs[0]), UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "an operation with rank 1 has failed on rank 0: bcast");
    (void)world_wait_one(w, &p.jobs[1]);
    end_pulled(&p);
}

/* Change the key that rank 1 has just sent: the memory cannot be mapped, so
 * that rank 0 asks rank 1 for the bytes. */
static void
forbid_mapping(const world *w)
{
    const umi_comm_out *out      = &w->comms[1]->inbox->peers[0].out;
    umi_comm_cell      *cell     = umi_comm_cell_of(out->area, out->sent - 1);
    char               *bytes_at = umi_comm_ring_of(out->area) +
                     (size_t)cell->key.line * UMI_COMM_CELL_SIZE;
    umi_key key;
    uint8_t bytes[UMI_KEY_MAX];
    size_t  len;

    assert_int_equal(cell->kind, UMI_COMM_CELL_PULL);
    assert_true(umi_key_decode(&key, bytes_at, cell->key.len));
    key.flags &= UMI_KEY_READONLY;
    key.segment = 0;
    key.place   = 0;
    len         = umi_key_encode(&key, bytes);
    assert_true(len != 0 && len <= cell->key.len);
    memcpy(bytes_at, bytes, len);
    cell->key.len = (uint16_t)len;
}

/* Have rank 0 ask rank 1 for the bytes. */
static void
ask_for_bytes(world *w, pulled *p)
{
    forbid_mapping(w);
    post_pulled(w, p, 0);
    assert_int_equal(p->jobs[0].status, UMX_INPROGRESS);
}

static void
test_bytes_that_a_rank_is_asked_for(void **state)
{
    world *w = *state;
    pulled p;

    open_pulled(w, &p);
    memset(p.from.data, 7, 100000);
    ask_for_bytes(w, &p);
    world_wait(w, p.jobs, 2, UMX_OK);
    assert_memory_equal(p.from.data, p.to.data, 100000);
    end_pulled(&p);
}

/* The rank ends before it has answered. */
static void
test_bytes_that_a_rank_is_asked_for_and_does_not_send(void **state)
{
    world *w = *state;
    pulled p;

    open_pulled(w, &p);
    ask_for_bytes(w, &p);
    umx_worker_destroy(w->workers[1]);
    w->workers[1] = NULL;
    assert_int_equal(world_wait_one(w, &p.jobs[0]), UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "rank 1");
    end_pulled(&p);
}

/* It is revoked while it answers, or says so. */
static void
test_bytes_that_a_revoked_rank_is_asked_for(void **state)
{
    world *w = *state;
    pulled p;

    open_pulled(w, &p);
    forbid_mapping(w);
    post_pulled(w, &p, 0);
    umi_comm_inbox_revoke(w->comms[1]);
    assert_int_equal(world_wait_one(w, &p.jobs[0]), UMX_ERR_RANK_FAILED);
    expect_reason(w, 0, "an operation with rank 1 has failed on rank 0: bcast");
    (void)world_wait_one(w, &p.jobs[1]);
    end_pulled(&p);
}

/* Split the ranks of a world whose inboxes are mapped, and map those of the new
 * communicator, which takes the place of the other one. */
static void
split_mapped(world *w, umx_comm **parents)
{
    job jobs[2];

    open_mapped(w, 2);
    for (int r = 0; r < 2; r++) {
        umx_op_params params = job_params(&jobs[r]);
        umx_request  *req    = NULL;

        parents[r] = w->comms[r];
        job_posted(
            &jobs[r],
            umx_comm_split(parents[r], 0, 0, &params, &w->comms[r], &req),
            &req);
    }
    world_wait(w, jobs, 2, UMX_OK);
    for (int i = 0; i < 5; i++) {
        run_barrier(w);
        world_step(w);
    }
}

/* The communicator has ended, and that it was split off has not. */
static void
expect_only_split_ended(world *w, umx_comm **parents)
{
    for (int r = 0; r < 2; r++) {
        umx_comm_destroy(w->comms[r]);
        w->comms[r] = parents[r];
        assert_int_equal(parents[r]->group->members[1 - r].state,
                         UMI_COMM_MEMBER_ALIVE);
    }
    run_barrier(w);
}

/* What rank 1 has lent is gone before rank 0 reads it, and nobody says why:
 * that says nothing about the process, so it ends this communicator only. */
static void
test_a_memory_that_is_gone_ends_one_communicator(void **state)
{
    world        *w = *state;
    place         from, to;
    umx_comm     *parents[2];
    umx_op_params params;
    umx_request  *req = NULL;
    job           jobs[2];

    split_mapped(w, parents);
    make_place(w, &from, 1000000, true);
    make_place(w, &to, 1000000, false);
    params = job_params(&jobs[1]);
    job_posted(&jobs[1], umx_bcast(w->comms[1], 1, &from.buf, &params, &req),
               &req);
    end_place(&from);
    params = job_params(&jobs[0]);
    job_posted(&jobs[0], umx_bcast(w->comms[0], 1, &to.buf, &params, &req),
               &req);
    world_wait(w, jobs, 2, UMX_ERR_RANK_FAILED);
    expect_reason(w, 1, "an operation with rank 1 has failed on rank 0: bcast");
    end_place(&to);
    expect_only_split_ended(w, parents);
}

static void
test_a_loan_that_is_gone_ends_one_communicator(void **state)
{
    world    *w = *state;
    umx_comm *parents[2];

    split_mapped(w, parents);
    receive_nothing(
        w,
        (umi_comm_cell){.kind = UMI_COMM_CELL_LOAN, .word = 12345, .slot = 3});
    expect_reason(w, 0, "an operation with rank 1 has failed on rank 0: bcast");
    expect_only_split_ended(w, parents);
}

/* ---- bytes that come while they are received ------------------------------
 */

enum {
    LATE = 100000 /* bytes of a message */
};

/* A broadcast of rank 1, whose cell rank 1 writes by hand, and then byte for
 * byte. */
typedef struct late {
    world         *w;
    umi_comm_cell *cell; /* where rank 0 sees it */
    char          *ring;
    unsigned char *data; /* of rank 0 */
    job            j;
} late;

static void
open_late(late *l, world *w, umi_comm_cell_kind kind)
{
    umi_comm_out *out;
    umx_buffer    buf;
    umx_op_params params;
    umx_request  *req = NULL;

    open_mapped(w, 2);
    out     = &w->comms[1]->inbox->peers[0].out;
    l->w    = w;
    l->data = calloc(1, LATE + 1);
    l->cell = umi_comm_cell_of(out->area, out->sent);
    l->ring = umi_comm_ring_of(out->area);
    buf     = umx_host_buffer(l->data, LATE);
    params  = job_params(&l->j);
    job_posted(&l->j, umx_bcast(w->comms[0], 1, &buf, &params, &req), &req);
    scribble(
        w, (umi_comm_cell){
               .kind   = (uint8_t)kind,
               .op     = UMI_COMM_COLL_BCAST,
               .number = w->comms[0]->next_number - 1,
               .what   = 1,
               .bytes  = LATE,
               .history =
                   w->comms[0]
                       ->calls[(w->comms[0]->next_number - 1) % UMI_COMM_CALLS]
                       .history,
               .len = LATE});
}

/* Write the bytes up to `end`, and let rank 0 look. */
static void
write_up_to(late *l, size_t end)
{
    for (size_t i = l->cell->word; i < end; i++) {
        l->ring[i] = (char)byte_of(1, 0, i);
    }
    l->cell->word = end;
    world_step(l->w);
}

static void
expect_late(const late *l, size_t end)
{
    for (size_t i = 0; i < LATE; i++) {
        assert_int_equal(l->data[i], (i < end) ? byte_of(1, 0, i) : 0);
    }
}

static void
test_bytes_are_copied_as_they_come(void **state)
{
    late l;

    open_late(&l, *state, UMI_COMM_CELL_DATA);
    for (size_t end = 0; end < LATE; end += 12345) {
        write_up_to(&l, end);
        assert_int_equal(l.j.status, UMX_INPROGRESS);
        expect_late(&l, end);
        assert_false(umi_list_is_empty(&l.w->comms[0]->fillings));
    }
    write_up_to(&l, LATE);
    assert_int_equal(world_wait_one(l.w, &l.j), UMX_OK);
    expect_late(&l, LATE);
    assert_true(umi_list_is_empty(&l.w->comms[0]->fillings));
    free(l.data);
}

/* What its sender has waited for is said when all has come. */
static void
test_a_sync_that_comes_late_is_done_when_it_has_come(void **state)
{
    const umi_comm_out *out;
    late                l;
    uint64_t            sent;

    open_late(&l, *state, UMI_COMM_CELL_SYNC);
    out  = &l.w->comms[0]->inbox->peers[1].out;
    sent = out->sent;
    write_up_to(&l, LATE - 1);
    assert_int_equal(out->sent, sent);
    write_up_to(&l, LATE);
    assert_int_equal(world_wait_one(l.w, &l.j), UMX_OK);
    assert_int_equal(out->sent, sent + 1);
    free(l.data);
}

/* It says that there are more than it sends, and then less than before. */
static void
test_a_sender_that_lies_about_its_progress(void **state)
{
    late l;

    open_late(&l, *state, UMI_COMM_CELL_DATA);
    write_up_to(&l, 5000);
    l.cell->word = 10;
    world_step(l.w);
    assert_int_equal(l.j.status, UMX_INPROGRESS);
    expect_late(&l, 5000);
    l.cell->word = UINT64_MAX;
    assert_int_equal(world_wait_one(l.w, &l.j), UMX_OK);
    assert_int_equal(l.data[LATE], 0);
    free(l.data);
}

/* The caller has its buffer back at once, also if the sender goes on. */
static void
test_nothing_is_written_once_it_is_cancelled(void **state)
{
    late l;

    open_late(&l, *state, UMI_COMM_CELL_DATA);
    write_up_to(&l, 5000);
    assert_int_equal(l.j.status, UMX_INPROGRESS);
    assert_int_equal(umx_request_cancel(l.j.req), UMX_OK);
    memset(l.data, 0, LATE);
    write_up_to(&l, LATE);
    expect_late(&l, 0);
    assert_true(umi_list_is_empty(&l.w->comms[0]->fillings));
    free(l.data);
}

/* The sender ends while it writes. */
static void
test_bytes_that_never_come_end_with_their_rank(void **state)
{
    late l;

    open_late(&l, *state, UMI_COMM_CELL_DATA);
    write_up_to(&l, 5000);
    umx_comm_abort(l.w->comms[1], "of a reason");
    assert_int_equal(world_wait_one(l.w, &l.j), UMX_ERR_RANK_FAILED);
    assert_true(umi_list_is_empty(&l.w->comms[0]->fillings));
    free(l.data);
}

/* ---- ranks that cannot be told -------------------------------------------
 */

static bool is_mute; /* nothing can be sent by the channel */

umx_status __real_umx_layer_am_send(umx_ep *ep, uint16_t id, const void *header,
                                    size_t header_len, const umx_buffer *buf,
                                    const umx_op_params *params,
                                    umx_request        **req_p);
umx_status __wrap_umx_layer_am_send(umx_ep *ep, uint16_t id, const void *header,
                                    size_t header_len, const umx_buffer *buf,
                                    const umx_op_params *params,
                                    umx_request        **req_p);

umx_status
__wrap_umx_layer_am_send(umx_ep *ep, uint16_t id, const void *header,
                         size_t header_len, const umx_buffer *buf,
                         const umx_op_params *params, umx_request **req_p)
{
    return is_mute ? UMX_ERR_NO_MEMORY :
                     __real_umx_layer_am_send(ep, id, header, header_len, buf,
                                              params, req_p);
}

/* The inbox of rank 1 is full, and the channel takes nothing. */
static void
silence(const world *w)
{
    umi_comm_out *out;

    assert_non_null(w->comms[0]->inbox);
    out       = &w->comms[0]->inbox->peers[1].out;
    out->sent = out->consumed + UMI_COMM_CELLS;
    is_mute   = true;
}

/* The communicator ends in the middle of the message. */
static void
expect_silenced(world *w, job *j)
{
    assert_int_equal(world_wait_one(w, j), UMX_ERR_RANK_FAILED);
    is_mute = false;
    expect_reason(w, 0, "rank 1 has ended");
}

static void
test_a_rank_that_cannot_be_told_that_its_bytes_are_here(void **state)
{
    world *w = *state;
    pulled p;

    open_pulled(w, &p);
    silence(w);
    post_pulled(w, &p, 0);
    expect_silenced(w, &p.jobs[0]);
    (void)world_wait_one(w, &p.jobs[1]);
    end_pulled(&p);
}

static void
test_a_rank_that_cannot_be_told_that_it_has_answered(void **state)
{
    world *w = *state;
    pulled p;

    open_pulled(w, &p);
    ask_for_bytes(w, &p);
    silence(w);
    expect_silenced(w, &p.jobs[0]);
    (void)world_wait_one(w, &p.jobs[1]);
    end_pulled(&p);
}

static void
test_a_rank_that_cannot_be_told_that_all_pieces_are_here(void **state)
{
    late l;

    open_late(&l, *state, UMI_COMM_CELL_SYNC);
    write_up_to(&l, 5000);
    silence(l.w);
    write_up_to(&l, LATE);
    expect_silenced(l.w, &l.j);
    free(l.data);
}

/* ---- room ----------------------------------------------------------------
 */

/* Broadcasts of rank 0 of almost half of the ring: the next one does not fit
 * behind the last one, nor before the first. */
static void
test_what_the_ring_has_no_room_for_is_lent(void **state)
{
    enum {
        COUNT = 4,
        LEN   = UMI_COMM_RING_MAX / RING_SHARE - 64
    };

    world         *w = *state;
    job            sent[COUNT], received[COUNT];
    unsigned char *data[2][COUNT];
    umx_op_params  params;
    umx_buffer     buf;
    umx_request   *req;

    open_mapped(w, 2);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < COUNT; i++) {
            data[r][i] = malloc(LEN);
            memset(data[r][i], (r == 0) ? 1 + i : 0, LEN);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        params = job_params(&sent[i]);
        buf    = umx_host_buffer(data[0][i], LEN);
        req    = NULL;
        job_posted(&sent[i], umx_bcast(w->comms[0], 0, &buf, &params, &req),
                   &req);
    }
    for (int i = 0; i < COUNT; i++) {
        params = job_params(&received[i]);
        buf    = umx_host_buffer(data[1][i], LEN);
        req    = NULL;
        job_posted(&received[i], umx_bcast(w->comms[1], 0, &buf, &params, &req),
                   &req);
    }
    world_wait(w, sent, COUNT, UMX_OK);
    world_wait(w, received, COUNT, UMX_OK);
    for (int i = 0; i < COUNT; i++) {
        assert_memory_equal(data[0][i], data[1][i], LEN);
        free(data[0][i]);
        free(data[1][i]);
    }
}

/* Larger segments than this are refused; 0: none is. */
static size_t most_shared;
static size_t num_refused;

umx_status __real_umi_segment_create(size_t len, void **segment_p,
                                     int *number_p);
umx_status __wrap_umi_segment_create(size_t len, void **segment_p,
                                     int *number_p);

umx_status
__wrap_umi_segment_create(size_t len, void **segment_p, int *number_p)
{
    if (most_shared != 0 && len > most_shared) {
        num_refused++;
        return UMX_ERR_SEGMENT_LIMIT;
    }
    return __real_umi_segment_create(len, segment_p, number_p);
}

/* Each rank takes what it gets, and each finds out what the others have got. */
static void
test_rings_are_as_large_as_the_system_gives(void **state)
{
    world *w = *state;

    world_open(w, 3);
    most_shared = 600 * 1024;
    run_barrier(w);
    most_shared = 0;
    for (int i = 0; i < 20; i++) {
        run_barrier(w);
        world_step(w);
    }
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 3; i++) {
            const umi_comm_inbox *inbox = w->comms[r]->inbox;

            assert_non_null(inbox);
            assert_true(i == r || inbox->peers[i].out.rkey != NULL);
            assert_true(i == r ||
                        inbox->peers[i].out.ring == w->comms[i]->inbox->ring);
        }
    }
    assert_true(w->comms[0]->inbox->ring < UMI_COMM_RING_MAX);
    random_state = 815;
    for (int i = 0; i < 6; i++) {
        run_alltoall(w);
    }
}

/* Without any there is no inbox. */
static void
test_without_shared_memory_messages_take_the_channel(void **state)
{
    world *w = *state;

    world_open(w, 2);
    most_shared = 1;
    num_refused = 0;
    run_barrier(w);
    run_barrier(w);
    most_shared = 0;
    assert_true(num_refused > 2); /* each size */
    assert_true(w->comms[0]->has_no_inbox);
    random_state = 815;
    run_alltoall(w);
}

/* What is no inbox of this many ranks is not mapped. */
static void
test_sizes_that_are_of_no_inbox(void **state)
{
    (void)state;
    for (int ranks = 2; ranks < 100; ranks = ranks * 3 / 2) {
        size_t ring = umi_comm_ring_size(ranks);
        size_t size = umi_comm_inbox_size(ranks, ring);

        assert_int_equal(umi_comm_ring_within(ranks, size), ring);
        assert_int_equal(umi_comm_ring_within(ranks, size + 64), 0);
        assert_int_equal(umi_comm_ring_within(ranks, 0), 0);
        assert_int_equal(
            umi_comm_ring_within(ranks, umi_comm_inbox_size(ranks, 2 * ring)),
            0);
        assert_int_equal(
            umi_comm_ring_within(ranks, umi_comm_inbox_size(ranks, ring / 2)),
            (ring / 2 >= UMI_COMM_RING_MIN) ? ring / 2 : 0);
        assert_true(ring * (size_t)ranks <= UMI_COMM_RINGS_MAX ||
                    ring == UMI_COMM_RING_MIN);
    }
}

/* ---- the end of a rank ---------------------------------------------------
 */

/* Rank 0 waits in a barrier that rank 1 has ended: the last message lies in the
 * inbox of rank 0. */
static void
open_with_barrier_to_end(world *w, job *waiting)
{
    job done;

    open_mapped(w, 2);
    post_barrier(w, 0, waiting);
    post_barrier(w, 1, &done);
    (void)umi_comm_inbox_look(w->comms[1]);
    assert_int_equal(waiting->status, UMX_INPROGRESS);
    assert_true(umi_list_is_empty(&w->comms[1]->colls));
}

static void
test_what_lies_in_the_inbox_is_taken_before_a_failure(void **state)
{
    world          *w      = *state;
    umi_comm_failed failed = {.rank = 1, .cause = UMX_ERR_CANCELED};
    job             waiting;

    open_with_barrier_to_end(w, &waiting);
    umi_comm_on_failed(w->comms[0], w->comms[0]->ranks[1].member, &failed);
    assert_true(w->comms[0]->is_revoked);
    assert_int_equal(world_wait_one(w, &waiting), UMX_OK);
}

static void
test_what_lies_in_the_inbox_is_taken_before_a_rank_is_lost(void **state)
{
    world *w = *state;
    job    waiting;

    open_with_barrier_to_end(w, &waiting);
    umi_comm_member_fail(w->comms[0]->ranks[1].member, UMX_ERR_CONNECTION_RESET,
                         "");
    assert_true(w->comms[0]->is_revoked);
    assert_int_equal(world_wait_one(w, &waiting), UMX_OK);
}

#define LOCAL_TEST(f)                            \
    {                                            \
#f, f, world_setup, world_teardown, NULL \
    }

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        LOCAL_TEST(test_alltoall_of_memory_and_other),
        LOCAL_TEST(test_many_small_ones),
        LOCAL_TEST(test_a_full_inbox),
        LOCAL_TEST(test_a_root_far_ahead_waits),
        LOCAL_TEST(test_two_communicators),
        LOCAL_TEST(test_bytes_are_copied_as_they_come),
        LOCAL_TEST(test_a_sync_that_comes_late_is_done_when_it_has_come),
        LOCAL_TEST(test_a_sender_that_lies_about_its_progress),
        LOCAL_TEST(test_nothing_is_written_once_it_is_cancelled),
        LOCAL_TEST(test_bytes_that_never_come_end_with_their_rank),
        LOCAL_TEST(test_what_the_ring_has_no_room_for_is_lent),
        LOCAL_TEST(test_rings_are_as_large_as_the_system_gives),
        LOCAL_TEST(test_without_shared_memory_messages_take_the_channel),
        cmocka_unit_test(test_sizes_that_are_of_no_inbox),
        WORLD_TEST(test_explained),
        LOCAL_TEST(test_a_cell_of_no_kind),
        LOCAL_TEST(test_bytes_outside_of_the_ring),
        LOCAL_TEST(test_bytes_of_a_sync_outside_of_the_ring),
        LOCAL_TEST(test_more_bytes_than_there_are),
        LOCAL_TEST(test_a_key_outside_of_the_ring),
        LOCAL_TEST(test_a_key_that_is_none),
        LOCAL_TEST(test_a_loan_that_is_none),
        LOCAL_TEST(test_anything_at_all),
        LOCAL_TEST(test_a_receiver_that_lies),
        LOCAL_TEST(test_a_revoked_sender),
        LOCAL_TEST(test_a_sender_that_says_falsely_that_it_is_revoked),
        LOCAL_TEST(test_bytes_that_a_rank_is_asked_for),
        LOCAL_TEST(test_bytes_that_a_rank_is_asked_for_and_does_not_send),
        LOCAL_TEST(test_bytes_that_a_revoked_rank_is_asked_for),
        LOCAL_TEST(test_a_rank_that_cannot_be_told_that_its_bytes_are_here),
        LOCAL_TEST(test_a_rank_that_cannot_be_told_that_it_has_answered),
        LOCAL_TEST(test_a_rank_that_cannot_be_told_that_all_pieces_are_here),
        LOCAL_TEST(test_a_loan_that_is_gone_ends_one_communicator),
        LOCAL_TEST(test_a_memory_that_is_gone_ends_one_communicator),
        LOCAL_TEST(test_what_lies_in_the_inbox_is_taken_before_a_failure),
        LOCAL_TEST(test_what_lies_in_the_inbox_is_taken_before_a_rank_is_lost),
    };

    return UNIT_RUN(tests);
}
