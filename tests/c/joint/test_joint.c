/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port layers */
#include <string.h>
#include <umx/umx.h>

#include "layers.h"

/* ---- the ends ------------------------------------------------------------
 */

static void
test_one_rank_makes_it_alone(void **state)
{
    world_open(*state, 1);
    FOR_LAYERS(kind)
    {
        objects o = {.w = *state, .layer = kind};

        layer_open_all(&o);
        layer_give_back(&o);
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

        layer_create(&o, 1);
        layer_create(&o, 0);
        assert_int_equal(umx_joint_status(layer_joint(&o, 0)), UMX_INPROGRESS);
        assert_int_equal(umx_request_cancel(o.jobs[0].req), UMX_OK);
        assert_int_equal(world_wait_one(o.w, &o.jobs[0]), UMX_ERR_CANCELED);
        assert_int_equal(umx_joint_status(layer_joint(&o, 0)),
                         UMX_ERR_CANCELED);
        layer_expect_failure(&o, 1, 0, kind->name);
        layer_create(&o, 2);
        layer_expect_failure(&o, 2, 0, kind->name);
        layer_give_back(&o);
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

        layer_create(&o, 0);
        assert_int_equal(world_wait_one(o.w, &o.jobs[0]), UMX_ERR_TIMED_OUT);
        assert_non_null(strstr(umx_joint_reason(layer_joint(&o, 0)),
                               "not all ranks have come in time"));
        assert_non_null(
            strstr(umx_joint_reason(layer_joint(&o, 0)), "rank 1 has not"));
        layer_create(&o, 1);
        layer_expect_failure(&o, 1, 0, "not all ranks have come in time");
        layer_give_back(&o);
    }
}

static void
test_who_gives_it_back_while_it_is_made_has_cancelled(void **state)
{
    world_open(*state, 3);
    FOR_LAYERS(kind)
    {
        objects o = {.w = *state, .layer = kind};

        layer_create(&o, 0);
        assert_non_null(o.objects[0]);
        kind->destroy(o.objects[0]);
        o.objects[0] = NULL;
        assert_int_equal(world_wait_one(o.w, &o.jobs[0]), UMX_ERR_CANCELED);
        layer_create(&o, 1);
        layer_expect_failure(&o, 1, 0, kind->name);
        layer_create(&o, 2);
        layer_expect_failure(&o, 2, 0, kind->name);
        layer_give_back(&o);
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
            layer_create(&o, i);
        }
        while (o.jobs[0].req != NULL) {
            step_alone(o.w, 0);
            for (int i = 1; i < SIZE && o.jobs[0].req != NULL; i++) {
                assert_true(umx_worker_drain(o.w->workers[i]) >= 0);
                step_alone(o.w, 0);
            }
        }
        assert_int_equal(o.jobs[0].status, UMX_OK);
        assert_non_null(o.objects[0]);
        kind->destroy(o.objects[0]);
        o.objects[0] = NULL;
        step_alone(o.w, 0);
        for (int i = 1; i < SIZE; i++) {
            assert_int_equal(world_wait_one(o.w, &o.jobs[i]), UMX_OK);
        }
        layer_give_back(&o);
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

        layer_open_all(&o);
        for (int i = 0; i < 2; i++) {
            close_it(&o, i);
            assert_true(umx_joint_status(layer_joint(&o, i)) < 0);
            close_it(&o, i);
        }
        layer_give_back(&o);
    }
}

static void
test_a_rank_that_ends_is_named(void **state)
{
    FOR_LAYERS(kind)
    {
        void   *own = world_open_another(*state, 3);
        objects o   = {.w = own, .layer = kind};

        layer_create(&o, 0);
        umx_comm_abort(o.w->comms[1], "enough");
        layer_expect_failure(&o, 0, 1, "enough");
        layer_create(&o, 2);
        assert_int_equal(world_wait_one(o.w, &o.jobs[2]), UMX_ERR_RANK_FAILED);
        layer_give_back(&o);
        assert_int_equal(world_teardown(&own), 0);
    }
    world_open(*state, 1);
}

static void
test_a_rank_that_has_left_is_named(void **state)
{
    FOR_LAYERS(kind)
    {
        void   *own = world_open_another(*state, 2);
        objects o   = {.w = own, .layer = kind};

        layer_create(&o, 0);
        umx_comm_close(o.w->comms[1]);
        layer_expect_failure(&o, 0, 1, "rank 1 has");
        layer_give_back(&o);
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
        void   *own = world_open_another(*state, 2);
        objects o   = {.w = own, .layer = kind};

        if (is_open) {
            layer_open_all(&o);
        } else {
            layer_create(&o, 0);
        }
        umx_worker_destroy(o.w->workers[0]);
        o.w->workers[0] = NULL;
        if (!is_open) {
            assert_int_equal(o.jobs[0].status, UMX_ERR_CANCELED);
        }
        assert_int_equal(umx_joint_status(layer_joint(&o, 0)), UMX_ERR_CLOSED);
        layer_give_back(&o);
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
