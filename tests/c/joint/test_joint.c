/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
#include <string.h>
#include <umx/umx.h>

#include "world.h"

/* What a layer makes, of any kind. */
typedef struct layer {
    const char *name;
    umx_status (*create)(world *w, int rank, const umx_op_params *how,
                         void **object_p, umx_request **req_p);
    umx_joint *(*joint)(void *object);
    void (*destroy)(void *object);
    /* Close it without giving it back. */
    umx_status (*close)(void *object, const umx_op_params *how,
                        umx_request **req_p);
} layer;

static umx_status
create_heap(world *w, int rank, const umx_op_params *how, void **object_p,
            umx_request **req_p)
{
    return umx_shmem_create(w->comms[rank], 4096, how, (umx_shmem **)object_p,
                            req_p);
}

static umx_joint *
joint_of_heap(void *object)
{
    return umx_shmem_joint(object);
}

static void
destroy_heap(void *object)
{
    umx_shmem_destroy(object);
}

static umx_status
close_heap(void *object, const umx_op_params *how, umx_request **req_p)
{
    (void)how;
    (void)req_p;
    umx_shmem_close(object);
    return UMX_OK;
}

static umx_status
create_outputs(world *w, int rank, const umx_op_params *how, void **object_p,
               umx_request **req_p)
{
    umx_outputs_params params = {.num_maps = 2, .num_partitions = 2};

    return umx_outputs_create(w->comms[rank], &params, how,
                              (umx_outputs **)object_p, req_p);
}

static umx_joint *
joint_of_outputs(void *object)
{
    return umx_outputs_joint(object);
}

static void
destroy_outputs(void *object)
{
    umx_outputs_destroy(object);
}

static umx_status
close_outputs(void *object, const umx_op_params *how, umx_request **req_p)
{
    return umx_outputs_close(object, SECOND_NS, how, req_p);
}

/* What the buffers of experts are made of, until give_back(). */
static umx_memh *memories[MAX_RANKS];

static umx_status
create_moe(world *w, int rank, const umx_op_params *how, void **object_p,
           umx_request **req_p)
{
    umx_moe_params params = {.num_experts = (uint32_t)w->size,
                             .max_tokens  = 4,
                             .max_topk    = 1,
                             .hidden      = 16,
                             .dtype       = UMX_MOE_F32};
    size_t         len    = umx_moe_memory_size(&params, w->size);
    umx_status     status = umx_memh_alloc(w->context, len, &memories[rank]);

    return (status != UMX_OK) ?
               status :
               umx_moe_create(w->comms[rank], memories[rank], &params, how,
                              (umx_moe **)object_p, req_p);
}

static umx_joint *
joint_of_moe(void *object)
{
    return umx_moe_joint(object);
}

static void
destroy_moe(void *object)
{
    umx_moe_destroy(object);
}

static umx_status
close_moe(void *object, const umx_op_params *how, umx_request **req_p)
{
    (void)how;
    (void)req_p;
    umx_moe_cancel(object);
    return UMX_OK;
}

static umx_status
create_proxy(world *w, int rank, const umx_op_params *how, void **object_p,
             umx_request **req_p)
{
    return umx_proxy_create(w->comms[rank], NULL, how, (umx_proxy **)object_p,
                            req_p);
}

static umx_joint *
joint_of_proxy(void *object)
{
    return umx_proxy_joint(object);
}

static void
destroy_proxy(void *object)
{
    umx_proxy_destroy(object);
}

static umx_status
close_proxy(void *object, const umx_op_params *how, umx_request **req_p)
{
    return umx_proxy_close(object, 20 * SECOND_NS, how, req_p);
}

static const layer layers[] = {
    {"heap", create_heap, joint_of_heap, destroy_heap, close_heap},
    {"outputs", create_outputs, joint_of_outputs, destroy_outputs,
     close_outputs},
    {"proxy", create_proxy, joint_of_proxy, destroy_proxy, close_proxy},
    {"buffer", create_moe, joint_of_moe, destroy_moe, close_moe},
};

#define FOR_LAYERS(it)             \
    for (const layer *it = layers; \
         it < layers + sizeof(layers) / sizeof(layers[0]); it++)

/* ---- objects -------------------------------------------------------------
 */

typedef struct objects {
    world       *w;
    const layer *layer;
    void        *objects[MAX_RANKS];
    job          jobs[MAX_RANKS];
} objects;

static void
create(objects *o, int rank)
{
    umx_op_params how = job_params(&o->jobs[rank]);
    umx_request  *req = NULL;

    o->objects[rank] = NULL;
    job_posted(&o->jobs[rank],
               o->layer->create(o->w, rank, &how, &o->objects[rank], &req),
               &req);
}

static umx_joint *
joint_of(const objects *o, int rank)
{
    assert_non_null(o->objects[rank]);
    return o->layer->joint(o->objects[rank]);
}

static void
open_all(objects *o)
{
    for (int i = 0; i < o->w->size; i++) {
        create(o, i);
    }
    world_wait(o->w, o->jobs, o->w->size, UMX_OK);
    for (int i = 0; i < o->w->size; i++) {
        assert_int_equal(umx_joint_status(joint_of(o, i)), UMX_OK);
    }
}

static void
give_back(objects *o)
{
    for (int i = 0; i < o->w->size; i++) {
        if (o->objects[i] != NULL) {
            o->layer->destroy(o->objects[i]);
            o->objects[i] = NULL;
        }
        if (memories[i] != NULL) {
            umx_memh_release(memories[i]);
            memories[i] = NULL;
        }
    }
}

/* It has ended on `rank`, for which `failed` is to blame. */
static void
expect_failure(objects *o, int rank, int failed, const char *text)
{
    umx_comm_failure failure;
    const char      *why;

    assert_int_equal(world_wait_one(o->w, &o->jobs[rank]), UMX_ERR_RANK_FAILED);
    assert_int_equal(umx_joint_status(joint_of(o, rank)), UMX_ERR_RANK_FAILED);
    assert_true(umx_joint_get_failure(joint_of(o, rank), &failure, &why));
    if (failure.rank != failed || strstr(why, text) == NULL) {
        print_message("%s: rank %d: %s\n", o->layer->name, failure.rank, why);
    }
    assert_int_equal(failure.rank, failed);
    assert_non_null(strstr(why, text));
}

/* ---- the ends ------------------------------------------------------------
 */

static void
test_one_rank_makes_it_alone(void **state)
{
    world_open(*state, 1);
    FOR_LAYERS(kind)
    {
        objects o = {.w = *state, .layer = kind};

        open_all(&o);
        give_back(&o);
    }
}

/* Three ranks: one that has all that the others tell before it hears that one
 * has given up makes it, and hears then. */
static void
test_who_cancels_is_named(void **state)
{
    world_open(*state, 3);
    FOR_LAYERS(kind)
    {
        objects o = {.w = *state, .layer = kind};

        create(&o, 1);
        create(&o, 0);
        assert_int_equal(umx_joint_status(joint_of(&o, 0)), UMX_INPROGRESS);
        assert_int_equal(umx_request_cancel(o.jobs[0].req), UMX_OK);
        assert_int_equal(world_wait_one(o.w, &o.jobs[0]), UMX_ERR_CANCELED);
        assert_int_equal(umx_joint_status(joint_of(&o, 0)), UMX_ERR_CANCELED);
        expect_failure(&o, 1, 0, kind->name);
        create(&o, 2);
        expect_failure(&o, 2, 0, kind->name);
        give_back(&o);
    }
}

static void
test_who_is_late_is_named(void **state)
{
    ((world *)*state)->timeout_ns = SECOND_NS;
    world_open(*state, 2);
    FOR_LAYERS(kind)
    {
        objects o = {.w = *state, .layer = kind};

        create(&o, 0);
        assert_int_equal(world_wait_one(o.w, &o.jobs[0]), UMX_ERR_TIMED_OUT);
        assert_non_null(strstr(umx_joint_reason(joint_of(&o, 0)),
                               "not all ranks have come in time"));
        assert_non_null(
            strstr(umx_joint_reason(joint_of(&o, 0)), "rank 1 has not"));
        create(&o, 1);
        expect_failure(&o, 1, 0, "not all ranks have come in time");
        give_back(&o);
    }
}

static void
test_who_gives_it_back_while_it_is_made_has_cancelled(void **state)
{
    world_open(*state, 3);
    FOR_LAYERS(kind)
    {
        objects o = {.w = *state, .layer = kind};

        create(&o, 0);
        kind->destroy(o.objects[0]);
        o.objects[0] = NULL;
        assert_int_equal(world_wait_one(o.w, &o.jobs[0]), UMX_ERR_CANCELED);
        create(&o, 1);
        expect_failure(&o, 1, 0, kind->name);
        create(&o, 2);
        expect_failure(&o, 2, 0, kind->name);
        give_back(&o);
    }
}

/* Let `rank` have the worker of this process to itself for a while. */
static void
step_alone(world *w, int rank)
{
    for (int i = 0; i < 20; i++) {
        assert_true(umx_worker_drain(w->workers[rank]) >= 0);
    }
}

/* The others make it, though it has been given back where it was made first. */
static void
test_who_has_made_it_may_leave(void **state)
{
    enum {
        SIZE = 3
    };

    world_open(*state, SIZE);
    FOR_LAYERS(kind)
    {
        objects o = {.w = *state, .layer = kind};

        for (int i = 0; i < SIZE; i++) {
            create(&o, i);
        }
        while (o.jobs[0].req != NULL) {
            step_alone(o.w, 0);
            for (int i = 1; i < SIZE && o.jobs[0].req != NULL; i++) {
                assert_true(umx_worker_drain(o.w->workers[i]) >= 0);
                step_alone(o.w, 0);
            }
        }
        assert_int_equal(o.jobs[0].status, UMX_OK);
        kind->destroy(o.objects[0]);
        o.objects[0] = NULL;
        step_alone(o.w, 0);
        for (int i = 1; i < SIZE; i++) {
            assert_int_equal(world_wait_one(o.w, &o.jobs[i]), UMX_OK);
        }
        give_back(&o);
    }
}

/* Close it, which is over at once or soon. */
static void
close_it(objects *o, int rank)
{
    job           j;
    umx_op_params how = job_params(&j);
    umx_request  *req = NULL;

    job_posted(&j, o->layer->close(o->objects[rank], &how, &req), &req);
    assert_int_equal(world_wait_one(o->w, &j), UMX_OK);
}

static void
test_it_is_closed_twice(void **state)
{
    world_open(*state, 2);
    FOR_LAYERS(kind)
    {
        objects o = {.w = *state, .layer = kind};

        open_all(&o);
        for (int i = 0; i < 2; i++) {
            close_it(&o, i);
            assert_true(umx_joint_status(joint_of(&o, i)) < 0);
            close_it(&o, i);
        }
        give_back(&o);
    }
}

static void
test_a_rank_that_ends_is_named(void **state)
{
    FOR_LAYERS(kind)
    {
        void   *own = *state;
        objects o   = {.layer = kind};

        assert_int_equal(world_setup(&own), 0);
        ((world *)own)->tls = ((world *)*state)->tls;
        o.w                 = own;
        world_open(o.w, 3);
        create(&o, 0);
        umx_comm_abort(o.w->comms[1], "enough");
        expect_failure(&o, 0, 1, "enough");
        create(&o, 2);
        assert_int_equal(world_wait_one(o.w, &o.jobs[2]), UMX_ERR_RANK_FAILED);
        give_back(&o);
        assert_int_equal(world_teardown(&own), 0);
    }
    world_open(*state, 1);
}

static void
test_a_rank_that_has_left_is_named(void **state)
{
    FOR_LAYERS(kind)
    {
        void   *own = *state;
        objects o   = {.layer = kind};

        assert_int_equal(world_setup(&own), 0);
        ((world *)own)->tls = ((world *)*state)->tls;
        o.w                 = own;
        world_open(o.w, 2);
        create(&o, 0);
        umx_comm_close(o.w->comms[1]);
        expect_failure(&o, 0, 1, "rank 1 has");
        give_back(&o);
        assert_int_equal(world_teardown(&own), 0);
    }
    world_open(*state, 1);
}

/* The worker of rank 0 is destroyed while it makes the object, or later. */
static void
destroy_worker(void **state, bool is_open)
{
    FOR_LAYERS(kind)
    {
        void   *own = *state;
        objects o   = {.layer = kind};

        assert_int_equal(world_setup(&own), 0);
        ((world *)own)->tls = ((world *)*state)->tls;
        o.w                 = own;
        world_open(o.w, 2);
        if (is_open) {
            open_all(&o);
        } else {
            create(&o, 0);
        }
        umx_worker_destroy(o.w->workers[0]);
        o.w->workers[0] = NULL;
        if (!is_open) {
            assert_int_equal(o.jobs[0].status, UMX_ERR_CANCELED);
        }
        assert_int_equal(umx_joint_status(joint_of(&o, 0)), UMX_ERR_CLOSED);
        give_back(&o);
        assert_int_equal(world_teardown(&own), 0);
    }
    world_open(*state, 1);
}

static void
test_a_worker_that_is_destroyed_ends_it(void **state)
{
    destroy_worker(state, true);
}

static void
test_a_worker_that_is_destroyed_cancels_it(void **state)
{
    destroy_worker(state, false);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_one_rank_makes_it_alone),
        WORLD_TEST(test_who_cancels_is_named),
        WORLD_TEST(test_who_is_late_is_named),
        WORLD_TEST(test_who_gives_it_back_while_it_is_made_has_cancelled),
        WORLD_TEST(test_who_has_made_it_may_leave),
        WORLD_TEST(test_it_is_closed_twice),
        WORLD_TEST(test_a_rank_that_ends_is_named),
        WORLD_TEST(test_a_rank_that_has_left_is_named),
        WORLD_TEST(test_a_worker_that_is_destroyed_ends_it),
        WORLD_TEST(test_a_worker_that_is_destroyed_cancels_it),
    };

    return UNIT_RUN(tests);
}
