/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port wrap=shmdt */
/* tests: comm/inbox comm/inbox_out comm/inbox_keys comm/collective_messages */
/* A rank that scribbles on the shared memory which it has with the others, at
 * random, while they exchange collective operations. The others read and write
 * nothing but the rings and their buffers, and they end: with bytes that may be
 * anything, or with a reason that names the rank.
 *
 * HOSTILE_LIVES in the environment: of how many communicators (default 120),
 * HOSTILE_SEED: another sequence. inbox.c is part of this file, which looks
 * into it. */
#include "comm/inbox.c"

#include "keys/memh.h"
#include "world.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, len) ((void)(data), (void)(len))
#define ASAN_UNPOISON_MEMORY_REGION(data, len) ((void)(data), (void)(len))
#endif

enum {
    LIVES    = 120,
    NUM_OPS  = 12, /* of a communicator */
    PATIENCE = 40  /* idle rounds, until the rank gives up */
};

static int hostile; /* the rank that scribbles */

/* ---- a communicator ------------------------------------------------------
 */

/* A communicator, of those of `w`, which outlive it. */
typedef struct life {
    world    *w;
    umx_comm *comms[MAX_RANKS]; /* NULL once it is closed */
    int       size;
    uint64_t  label;
} life;

static void
post_barrier(umx_comm *comm, job *j)
{
    umx_op_params params = job_params(j);
    umx_request  *req    = NULL;

    job_posted(j, umx_barrier(comm, &params, &req), &req);
}

static void
open_life(life *l, world *w)
{
    job  jobs[MAX_RANKS];
    bool is_mapped = false;

    l->w    = w;
    l->size = w->size;
    l->label++;
    for (int r = 0; r < l->size; r++) {
        assert_int_equal(umx_comm_derive(w->comms[r], l->label, &l->comms[r]),
                         UMX_OK);
    }
    for (int i = 0; i < 100 && !is_mapped; i++) {
        is_mapped = true;
        for (int r = 0; r < l->size; r++) {
            post_barrier(l->comms[r], &jobs[r]);
        }
        world_wait(w, jobs, l->size, UMX_OK);
        world_step(w);
        for (int r = 0; r < l->size; r++) {
            is_mapped = is_mapped && l->comms[r]->inbox != NULL &&
                        l->comms[r]->inbox->num_mapped == (unsigned)l->size - 1;
        }
    }
    assert_true(is_mapped);
}

static void
close_life(life *l)
{
    for (int r = 0; r < l->size; r++) {
        umx_comm_close(l->comms[r]);
        umx_comm_destroy(l->comms[r]);
        l->comms[r] = NULL;
    }
}

/* A rank in the middle of nothing: the inbox, while there is one. */
static umi_comm_inbox *
inbox_of(const life *l, int rank)
{
    return (l->comms[rank] != NULL) ? l->comms[rank]->inbox : NULL;
}

/* ---- what is not to be touched -------------------------------------------
 */

/* Memory that nobody uses: the area of a rank in its own inbox, as the rank
 * has it mapped. With two ranks a ring that is left downward is left into it.
 */
typedef struct guard {
    const void *segment; /* that it lies in */
    char       *data;
    size_t      len;
} guard;

static guard guards[MAX_RANKS];

static void
set_guards(const life *l)
{
    for (int r = 0; r < l->size; r++) {
        umi_comm_inbox *inbox = inbox_of(l, r);

        guards[r] = (guard){
            .segment = inbox->memh->segment,
            .data    = umi_comm_area_of(inbox->data, inbox->ring, r),
            .len     = umi_comm_area_size(inbox->ring)};
        if (r != hostile) {
            ASAN_POISON_MEMORY_REGION(guards[r].data, guards[r].len);
        }
    }
}

static void
end_guard(guard *g)
{
    if (g->data == NULL) {
        return;
    }
    ASAN_UNPOISON_MEMORY_REGION(g->data, g->len);
    for (size_t i = 0; i < g->len; i += sizeof(uint64_t)) {
        assert_int_equal(*(uint64_t *)(void *)(g->data + i), 0);
    }
    g->data = NULL;
}

int __real_shmdt(const void *address);
int __wrap_shmdt(const void *address);

/* An inbox is unmapped when its communicator ends, and something else may be
 * mapped there at once. */
int
__wrap_shmdt(const void *address)
{
    for (int r = 0; r < MAX_RANKS; r++) {
        if (guards[r].segment == address) {
            end_guard(&guards[r]);
        }
    }
    return __real_shmdt(address);
}

/* ---- scribbling ----------------------------------------------------------
 */

/* A number near one at which something goes wrong. */
static uint64_t
odd_number(void)
{
    static const uint64_t odd[] = {
        0,
        8,
        UMI_COMM_CELLS,
        UMI_COMM_RING_MIN,
        UMI_COMM_RING_MAX,
        UMI_COMM_RING_MAX / 2,
        UINT64_C(1) << 16,
        UINT64_C(1) << 31,
        UINT64_C(1) << 32,
        UINT64_C(1) << 63,
    };

    switch (next_random(8)) {
    case 0:
        return next_random(UINT64_MAX);
    case 1:
        return next_random(UMI_COMM_RING_MAX);
    default:
        return odd[next_random(sizeof(odd) / sizeof(*odd))] + next_random(5) -
               2;
    }
}

/* A place in the ring, near the last one at which so many bytes fit. */
static uint32_t
odd_place(uint64_t len)
{
    return (uint32_t)((next_random(2) == 0) ?
                          odd_number() :
                          UMI_COMM_RING_MAX - len + next_random(512) - 256);
}

/* Change one field, or all. */
static void
spoil(umi_comm_cell *c)
{
    uint64_t odd = odd_number();

    switch (next_random(12)) {
    case 0:
        c->kind = (uint8_t)next_random(256);
        break;
    case 1:
        c->kind = (uint8_t)(1 + next_random(UMI_COMM_CELL_SYNC));
        break;
    case 2:
        c->op = (uint8_t)odd;
        break;
    case 3:
        c->round = (uint16_t)odd;
        break;
    case 4:
        c->at = odd_place(c->len);
        break;
    case 5:
        c->number += odd;
        break;
    case 6:
        c->bytes = odd;
        break;
    case 7:
        c->history ^= odd;
        break;
    case 8:
        c->len = odd;
        break;
    case 9:
        c->word = odd;
        break;
    case 10:
        c->what = odd;
        break;
    default:
        for (size_t i = sizeof(c->stamp); i < sizeof(*c); i++) {
            ((unsigned char *)c)[i] = (unsigned char)next_random(256);
        }
    }
}

/* What the rank could say next about the operation that is under way at
 * `victim`. */
static umi_comm_cell
likely_cell(const umx_comm *victim)
{
    umi_comm_cell        c    = {.number = victim->next_number - 1,
                                 .kind = (uint8_t)(1 + next_random(UMI_COMM_CELL_SYNC)),
                                 .len  = odd_number(),
                                 .word = odd_number()};
    const umi_comm_call *call = &victim->calls[c.number % UMI_COMM_CALLS];

    c.op      = (uint8_t)call->op;
    c.what    = call->what;
    c.bytes   = call->bytes;
    c.history = call->history;
    c.round   = (uint16_t)next_random(4);
    if (c.bytes != 0 && next_random(2) == 0) {
        c.len = c.bytes;
    }
    c.at = odd_place(c.len);
    return c;
}

/* Change a cell that is there, or write one more. */
static void
scribble_cell(const life *l, int victim)
{
    umi_comm_out  *out = &inbox_of(l, hostile)->peers[victim].out;
    umi_comm_cell *to = umi_comm_cell_of(out->area, out->sent - next_random(3));
    umi_comm_cell  c;

    if (next_random(3) != 0) {
        c = *to;
        spoil(&c);
        *to = c;
        return;
    }
    c = likely_cell(l->comms[victim]);
    if (next_random(2) == 0) {
        spoil(&c);
    }
    c.stamp = (next_random(8) == 0) ? odd_number() : out->sent + 1;
    to      = umi_comm_cell_of(out->area, out->sent);
    *to     = c;
    out->sent += next_random(4) != 0;
}

static void
scribble_bytes(char *data, size_t len)
{
    size_t at = next_random(len - sizeof(uint64_t));

    for (uint64_t i = next_random(64); i > 0 && at < len; i--) {
        data[at++] = (char)next_random(256);
    }
}

/* Whatever the rank can write to: its area at the victim, its own inbox, and
 * the words beside both in which ranks say that they sleep. */
static void
scribble(const life *l, int victim)
{
    umi_comm_inbox *own  = inbox_of(l, hostile);
    umi_comm_inbox *his  = inbox_of(l, victim);
    char           *area = own->peers[victim].out.area;
    char           *in   = own->peers[victim].in;

    switch (next_random(12)) {
    case 0:
        *umi_comm_consumed_of(in) = odd_number();
        break;
    case 1:
        *umi_comm_consumed_of(in) = his->peers[hostile].out.sent -
                                    next_random(4);
        break;
    case 2:
        *umi_comm_is_mapped_of(area) = next_random(2);
        break;
    case 3:
        scribble_bytes(umi_comm_ring_of(area), 4096);
        break;
    case 4:
        scribble_bytes(in, umi_comm_area_size(own->ring));
        break;
    case 5:
        atomic_store(his->memh->waiters, odd_number());
        break;
    case 6:
        if (next_random(50) == 0) { /* "I am revoked" */
            *(uint64_t *)(void *)own->data = odd_number();
        }
        break;
    default:
        scribble_cell(l, victim);
    }
}

/* ---- operations ----------------------------------------------------------
 */

enum {
    KIND_BARRIER,
    KIND_BCAST,
    KIND_GATHER,
    KIND_SCATTER,
    KIND_ALLGATHER,
    KIND_ALLTOALL,
    KIND_REDUCE,
    KIND_ALLREDUCE,
    KIND_SPLIT,
    KIND_BUFFERS,
    KIND_COUNT
};

/* One operation, the same of all ranks. */
typedef struct plan {
    int    kind, root;
    size_t len;
    bool   is_memory;
} plan;

/* What a rank has of it. Buffers are as long as they must be, and no longer. */
typedef struct part {
    job        j;
    umx_buffer send, recv;
    umx_buffer one, one_in; /* the first of a rank's bytes */
    size_t     counts[MAX_RANKS];
    umx_buffer sends[MAX_RANKS], recvs[MAX_RANKS];
    umx_comm  *made;
} part;

static plan
random_plan(const life *l)
{
    static const size_t lens[] = {0,     8,     16,     1000,    16384,  20000,
                                  65536, 70000, 300000, 1200000, 2500000};

    return (plan){
        .kind      = (int)next_random(KIND_COUNT),
        .root      = (int)next_random((uint64_t)l->size),
        .len       = lens[next_random(sizeof(lens) / sizeof(*lens))],
        .is_memory = next_random(3) == 0,
    };
}

static umx_status
post_pieces(umx_comm *comm, const plan *p, part *it, umx_op_params *how,
            umx_request **req_p)
{
    umx_pieces pieces  = {.counts = it->counts};
    bool       is_root = umx_comm_rank(comm) == p->root;

    switch (p->kind) {
    case KIND_GATHER:
        return umx_gatherv(comm, p->root, &it->one, is_root ? &it->recv : NULL,
                           &pieces, how, req_p);
    case KIND_SCATTER:
        return umx_scatterv(comm, p->root, is_root ? &it->send : NULL, &pieces,
                            &it->one_in, how, req_p);
    case KIND_ALLGATHER:
        return umx_allgatherv(comm, &it->one, &it->recv, &pieces, how, req_p);
    default:
        return umx_alltoallv(comm, &it->send, &pieces, &it->recv, &pieces, how,
                             req_p);
    }
}

static umx_status
post(umx_comm *comm, const plan *p, part *it, umx_op_params *how,
     umx_request **req_p)
{
    umx_reduction what    = {UMX_INT64, UMX_SUM};
    bool          is_root = umx_comm_rank(comm) == p->root;

    switch (p->kind) {
    case KIND_BARRIER:
        return umx_barrier(comm, how, req_p);
    case KIND_BCAST:
        return umx_bcast(comm, p->root, &it->one, how, req_p);
    case KIND_REDUCE:
        return umx_reduce(comm, p->root, &what, &it->one,
                          is_root ? &it->one_in : NULL, how, req_p);
    case KIND_ALLREDUCE:
        return umx_allreduce(comm, &what, &it->one, &it->one_in, how, req_p);
    case KIND_SPLIT:
        return umx_comm_split(comm, 1, 0, how, &it->made, req_p);
    case KIND_BUFFERS:
        return umx_alltoall_buffers(comm, it->sends, it->recvs, NULL, NULL, how,
                                    req_p);
    default:
        return post_pieces(comm, p, it, how, req_p);
    }
}

static void
begin(const life *l, int rank, const plan *p, part *it)
{
    size_t        all = p->len * (size_t)l->size;
    umx_op_params how;
    umx_request  *req = NULL;

    *it            = (part){.made = NULL};
    it->send       = world_new_buffer(l->w, all, p->is_memory);
    it->recv       = world_new_buffer(l->w, all, p->is_memory);
    it->one        = it->send;
    it->one_in     = it->recv;
    it->one.len    = p->len;
    it->one_in.len = p->len;
    for (int r = 0; r < l->size; r++) {
        it->counts[r]    = p->len;
        it->sends[r]     = it->send;
        it->sends[r].len = p->len;
    }
    how = job_params(&it->j);
    job_posted(&it->j, post(l->comms[rank], p, it, &how, &req), &req);
}

static void
end(const life *l, part *it)
{
    world_free_buffer(&it->send);
    world_free_buffer(&it->recv);
    for (int r = 0; r < l->size; r++) {
        free(it->recvs[r].data);
    }
    if (it->made != NULL) {
        umx_comm_close(it->made);
        umx_comm_destroy(it->made);
    }
}

/* ---- the test ------------------------------------------------------------
 */

static bool
is_over(const life *l)
{
    for (int r = 0; r < l->size; r++) {
        if (inbox_of(l, r) == NULL || l->comms[r]->is_revoked) {
            return true;
        }
    }
    return false;
}

static void
scribble_somewhere(const life *l)
{
    int victim = (int)next_random((uint64_t)l->size - 1);

    scribble(l, victim + (victim >= hostile));
}

/* Let the ranks go on one by one, and scribble between. */
static void
go_on(const life *l, int how_often)
{
    int first = (int)next_random((uint64_t)l->size);

    for (int i = 0; i < l->size; i++) {
        int rank = (first + i) % l->size;

        for (int k = 0; k < how_often && !is_over(l); k++) {
            scribble_somewhere(l);
        }
        (void)!umx_worker_drain(l->w->workers[rank]);
    }
}

static bool
have_ended(const life *l, const part *parts)
{
    for (int r = 0; r < l->size; r++) {
        if (parts[r].j.status == UMX_INPROGRESS) {
            return false;
        }
    }
    return true;
}

/* Run one operation of all. */
static void
run(life *l, const plan *p)
{
    part parts[MAX_RANKS];
    int  first = (int)next_random((uint64_t)l->size);

    for (int i = 0; i < l->size; i++) {
        int rank = (first + i) % l->size;

        begin(l, rank, p, &parts[rank]);
        for (uint64_t k = next_random(4); k > 0 && !is_over(l); k--) {
            scribble_somewhere(l);
        }
    }
    for (int i = 0; i < PATIENCE && !have_ended(l, parts); i++) {
        go_on(l, (int)next_random(3));
        world_step(l->w);
    }
    if (!have_ended(l, parts)) { /* what came from it was lost */
        umx_comm_abort(l->comms[hostile], "enough");
    }
    for (int r = 0; r < l->size; r++) {
        (void)world_wait_one(l->w, &parts[r].j);
    }
    for (int r = 0; r < l->size; r++) {
        end(l, &parts[r]);
    }
}

/* Is the rank held responsible, or named by the reason? It may have told the
 * others that one of them writes nonsense, too. */
static bool
is_named(const umx_comm *comm)
{
    const char      *reason = umx_comm_reason(comm);
    char             name[16];
    umx_comm_failure failure;

    (void)snprintf(name, sizeof(name), "rank %d", hostile);
    return (umx_comm_get_failure(comm, &failure) && failure.rank == hostile) ||
           strstr(reason, name) != NULL;
}

/* Whoever has ended says why, and nothing else has ended. */
static void
expect_named(const life *l)
{
    for (int r = 0; r < l->size; r++) {
        if (r != hostile && l->comms[r]->is_revoked && !is_named(l->comms[r])) {
            fail_msg("rank %d: %s", r, umx_comm_reason(l->comms[r]));
        }
        assert_false(l->w->comms[r]->is_revoked);
    }
}

static uint64_t
number_from(const char *name, uint64_t fallback)
{
    const char *value = getenv(name);

    return (value != NULL) ? strtoull(value, NULL, 0) : fallback;
}

static void
run_lives(world *w, int size)
{
    uint64_t num_lives = number_from("HOSTILE_LIVES", LIVES);
    life     l         = {.label = 0};
    unsigned num_ended = 0;

    random_state = number_from("HOSTILE_SEED", 20261129);
    world_open(w, size);
    for (uint64_t i = 0; i < num_lives; i++) {
        unit_limit_time();
        hostile = (int)next_random((uint64_t)size);
        open_life(&l, w);
        set_guards(&l);
        for (int k = 0; k < NUM_OPS && !is_over(&l); k++) {
            plan p = random_plan(&l);

            run(&l, &p);
        }
        expect_named(&l);
        num_ended += is_over(&l);
        close_life(&l);
        for (int r = 0; r < size; r++) {
            assert_null(guards[r].data); /* it was looked at */
        }
    }
    assert_true(num_ended > num_lives / 2); /* it does harm */
}

static void
test_a_rank_that_scribbles(void **state)
{
    run_lives(*state, 2);
}

static void
test_a_rank_of_three_that_scribbles(void **state)
{
    run_lives(*state, 3);
}

#define LOCAL_TEST(f)                            \
    {                                            \
#f, f, world_setup, world_teardown, NULL \
    }

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        LOCAL_TEST(test_a_rank_that_scribbles),
        LOCAL_TEST(test_a_rank_of_three_that_scribbles),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
