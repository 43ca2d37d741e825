/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
#include <string.h>
#include <umx/region.h>

#include "world.h"

enum {
    LENGTH = 4096
};

typedef struct regions {
    world      *w;
    umx_memh   *memhs[MAX_RANKS];
    umx_region *regions[MAX_RANKS];
    job         jobs[MAX_RANKS];
} regions;

static size_t
length_of(int rank)
{
    return LENGTH + 64 * (size_t)rank;
}

static void
make_memories(regions *r, world *w, int size)
{
    *r = (regions){.w = w};
    world_open(w, size);
    for (int i = 0; i < size; i++) {
        assert_int_equal(umx_memh_alloc(w->context, length_of(i), &r->memhs[i]),
                         UMX_OK);
    }
}

/* Create the region of a rank. Its record is as many bytes as its rank says. */
static void
create(regions *r, int rank)
{
    umx_op_params how    = job_params(&r->jobs[rank]);
    umx_request  *req    = NULL;
    char          record = (char)('a' + rank);
    char          text[MAX_RANKS];

    memset(text, record, sizeof(text));
    job_posted(&r->jobs[rank],
               umx_region_create(r->w->comms[rank], r->memhs[rank], text,
                                 (size_t)rank, &how, &r->regions[rank], &req),
               &req);
}

static void
create_all(regions *r)
{
    for (int i = 0; i < r->w->size; i++) {
        create(r, i);
    }
    world_wait(r->w, r->jobs, r->w->size, UMX_OK);
}

static void
give_back(regions *r)
{
    for (int i = 0; i < r->w->size; i++) {
        if (r->regions[i] != NULL) {
            umx_region_destroy(r->regions[i]);
        }
        if (r->memhs[i] != NULL) {
            umx_memh_release(r->memhs[i]);
        }
    }
}

static umx_status
put(regions *r, int from, int to, uint64_t offset, uint64_t value)
{
    umx_rma_item  item = {.offset = offset,
                          .buf    = umx_host_buffer(&value, sizeof(value))};
    job           j;
    umx_op_params how = job_params(&j);
    umx_request  *req = NULL;

    job_posted(
        &j,
        umx_rma_put(umx_region_rkey(r->regions[from], to), &item, &how, &req),
        &req);
    return world_wait_one(r->w, &j);
}

static void
test_every_rank_knows_memory_and_record_of_each(void **state)
{
    regions r;
    size_t  len;

    make_memories(&r, *state, 3);
    create_all(&r);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            const char *record = umx_region_record(r.regions[i], k, &len);

            assert_int_equal(len, k);
            for (size_t n = 0; n < len; n++) {
                assert_int_equal(record[n], 'a' + k);
            }
            assert_int_equal(umx_region_length(r.regions[i], k), length_of(k));
            assert_true((umx_region_rkey(r.regions[i], k) == NULL) == (i == k));
        }
        assert_ptr_equal(umx_region_pointer(r.regions[i], i),
                         umx_memh_buffer(r.memhs[i])->data);
    }
    give_back(&r);
}

static void
test_every_rank_reaches_the_memory_of_each(void **state)
{
    regions   r;
    uint64_t *numbers;

    make_memories(&r, *state, 3);
    create_all(&r);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            if (i != k) {
                assert_int_equal(put(&r, i, k, 8 * (uint64_t)i, 100 + i),
                                 UMX_OK);
            }
        }
    }
    for (int k = 0; k < 3; k++) {
        numbers = umx_region_pointer(r.regions[k], k);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(numbers[i], (i == k) ? 0 : 100 + i);
        }
    }
    give_back(&r);
}

static void
test_memory_is_mapped_over_shared_memory_only(void **state)
{
    regions r;
    void   *data;

    make_memories(&r, *state, 2);
    create_all(&r);
    data = umx_region_pointer(r.regions[0], 1);
    if (r.w->tls != NULL) {
        assert_null(data);
        give_back(&r);
        return;
    }
    assert_non_null(data);
    assert_ptr_equal(data, umx_rkey_pointer(umx_region_rkey(r.regions[0], 1)));
    strcpy(umx_region_pointer(r.regions[1], 1), "seen");
    assert_string_equal(data, "seen");
    give_back(&r);
}

static void
test_a_rank_without_memory_reaches_the_others(void **state)
{
    regions r;

    make_memories(&r, *state, 2);
    umx_memh_release(r.memhs[1]);
    r.memhs[1] = NULL;
    create_all(&r);
    assert_null(umx_region_rkey(r.regions[0], 1));
    assert_null(umx_region_pointer(r.regions[0], 1));
    assert_null(umx_region_pointer(r.regions[1], 1));
    assert_int_equal(umx_region_length(r.regions[0], 1), 0);
    assert_int_equal(put(&r, 1, 0, 0, 7), UMX_OK);
    give_back(&r);
}

static void
test_a_region_of_one_rank_is_made_at_once(void **state)
{
    regions r;

    make_memories(&r, *state, 1);
    create(&r, 0);
    assert_int_equal(r.jobs[0].status, UMX_OK);
    assert_int_equal(r.jobs[0].calls, 0);
    assert_null(umx_region_rkey(r.regions[0], 0));
    give_back(&r);
}

static void
test_regions_are_made_among_collective_operations(void **state)
{
    regions       a;
    umx_region   *others[2];
    job           jobs[2], barriers[2];
    umx_request  *req;
    umx_op_params how;

    make_memories(&a, *state, 2);
    for (int i = 0; i < 2; i++) { /* one begins with the barrier */
        for (int step = 0; step < 2; step++) {
            if (step == i) {
                how = job_params(&barriers[i]);
                job_posted(&barriers[i], umx_barrier(a.w->comms[i], &how, &req),
                           &req);
            } else {
                create(&a, i);
            }
        }
        how = job_params(&jobs[i]);
        job_posted(&jobs[i],
                   umx_region_create(a.w->comms[i], a.memhs[i], "x", 1, &how,
                                     &others[i], &req),
                   &req);
    }
    world_wait(a.w, a.jobs, 2, UMX_OK);
    world_wait(a.w, barriers, 2, UMX_OK);
    world_wait(a.w, jobs, 2, UMX_OK);
    umx_region_destroy(others[0]);
    umx_region_destroy(others[1]);
    give_back(&a);
}

static void
test_a_long_record_is_refused(void **state)
{
    static const char long_record[UMX_REGION_RECORD_MAX + 1];
    regions           r;
    umx_request      *req;

    make_memories(&r, *state, 1);
    assert_int_equal(umx_region_create(r.w->comms[0], r.memhs[0], long_record,
                                       sizeof(long_record), NULL, &r.regions[0],
                                       &req),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_region_create(r.w->comms[0], r.memhs[0], long_record,
                                       sizeof(long_record) - 1, NULL,
                                       &r.regions[0], &req),
                     UMX_OK);
    give_back(&r);
}

/* Wait until rank 1 has heard what rank 0 has told before: a long message goes
 * the same way, behind that. Short ones may overtake it. */
static void
let_rank_1_hear(world *w)
{
    static char text[1 << 20], got[sizeof(text)];
    job         sent;
    receipt     r;

    send_to(w, 0, 1, 7, text, sizeof(text), &sent);
    recv_from(w, 1, 0, 7, UINT64_MAX, got, sizeof(got), &r);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
}

/* A rank that has heard of it. Who has all messages before may succeed. */
static void
test_a_creation_that_is_cancelled_fails_on_every_rank(void **state)
{
    umx_comm_failure failure;
    const char      *why;
    regions          r;
    int              late[UMX_COMM_LATE_MAX];

    make_memories(&r, *state, 2);
    create(&r, 0);
    assert_int_equal(r.jobs[0].status, UMX_INPROGRESS);
    assert_false(umx_region_get_failure(r.regions[0], &failure, &why));
    assert_int_equal(umx_region_find_late(r.regions[0], late), 1);
    assert_int_equal(late[0], 1);
    (void)umx_request_cancel(r.jobs[0].req);
    (void)world_wait_one(r.w, &r.jobs[0]);
    assert_int_not_equal(r.jobs[0].status, UMX_OK);
    let_rank_1_hear(r.w);
    create(&r, 1);
    assert_int_equal(world_wait_one(r.w, &r.jobs[1]), UMX_ERR_RANK_FAILED);
    assert_true(umx_region_get_failure(r.regions[1], &failure, &why));
    assert_int_equal(failure.rank, 0);
    assert_int_equal(failure.cause, UMX_ERR_CANCELED);
    assert_true(why[0] != '\0');
    give_back(&r);
}

static void
test_a_region_is_given_back_while_it_is_made(void **state)
{
    regions r;

    make_memories(&r, *state, 2);
    create(&r, 0);
    umx_region_destroy(r.regions[0]);
    r.regions[0] = NULL;
    (void)world_wait_one(r.w, &r.jobs[0]);
    assert_int_not_equal(r.jobs[0].status, UMX_OK);
    give_back(&r);
}

static void
test_a_rank_that_ends_fails_the_creation(void **state)
{
    regions r;

    make_memories(&r, *state, 3);
    create(&r, 0);
    create(&r, 1);
    umx_comm_abort(r.w->comms[2], "enough");
    (void)world_wait_one(r.w, &r.jobs[0]);
    (void)world_wait_one(r.w, &r.jobs[1]);
    assert_int_equal(r.jobs[0].status, UMX_ERR_RANK_FAILED);
    assert_int_equal(r.jobs[1].status, UMX_ERR_RANK_FAILED);
    create(&r, 2);
    assert_int_equal(r.jobs[2].status, UMX_ERR_RANK_FAILED);
    r.regions[2] = NULL;
    give_back(&r);
}

static void
test_a_region_outlives_its_worker(void **state)
{
    regions r;

    make_memories(&r, *state, 2);
    create_all(&r);
    for (int i = 0; i < 2; i++) {
        umx_comm_close(r.w->comms[i]);
        umx_comm_destroy(r.w->comms[i]);
        r.w->comms[i] = NULL;
        umx_worker_destroy(r.w->workers[i]);
        r.w->workers[i] = NULL;
    }
    assert_non_null(umx_region_pointer(r.regions[0], 0));
    give_back(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_every_rank_knows_memory_and_record_of_each),
        WORLD_TEST(test_every_rank_reaches_the_memory_of_each),
        WORLD_TEST(test_memory_is_mapped_over_shared_memory_only),
        WORLD_TEST(test_a_rank_without_memory_reaches_the_others),
        WORLD_TEST(test_a_region_of_one_rank_is_made_at_once),
        WORLD_TEST(test_regions_are_made_among_collective_operations),
        WORLD_TEST(test_a_long_record_is_refused),
        WORLD_TEST(test_a_creation_that_is_cancelled_fails_on_every_rank),
        WORLD_TEST(test_a_region_is_given_back_while_it_is_made),
        WORLD_TEST(test_a_rank_that_ends_fails_the_creation),
        WORLD_TEST(test_a_region_outlives_its_worker),
    };

    return UNIT_RUN(tests);
}
