/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port layers steps */
/* tests: joint/joint region/region */
/* The making of each kind of object, cancelled, failing or delayed at each
 * step. What must hold: all calls end; a rank that fails for another one knows
 * which; and what a delay has hit is made. */
#include <stdio.h>

#include "layers.h"
#include "steps.h"

enum {
    SIZE      = 2,
    MAX_STEPS = 300 /* more than the longest has */
};

enum {
    FAIL,
    DELAY,
    CANCEL
};

/* Until both have ended; the first is cancelled at the step. */
static void
finish(objects *o, int fault)
{
    while (o->jobs[0].req != NULL || o->jobs[1].req != NULL) {
        if (fault == CANCEL && steps_reached() && o->jobs[0].req != NULL) {
            assert_int_equal(umx_request_cancel(o->jobs[0].req), UMX_OK);
        }
        world_step(o->w);
    }
}

static void
check_end(const objects *o, int rank)
{
    umx_comm_failure failure;
    const char      *why;

    if (o->jobs[rank].status == UMX_ERR_RANK_FAILED) {
        assert_true(
            umx_joint_get_failure(layer_joint(o, rank), &failure, &why));
        assert_in_range(failure.rank, 0, SIZE - 1);
        assert_true(why[0] != 0);
    }
}

static bool
has_failed(const world *w)
{
    umx_comm_failure failure;

    return umx_comm_get_failure(w->comms[0], &failure) ||
           umx_comm_get_failure(w->comms[1], &failure);
}

/* True if step k was reached. */
static bool
run(world *w, const layer *kind, int fault, unsigned k)
{
    static const int does[] = {STEPS_FAIL, STEPS_DELAY, STEPS_COUNT};

    objects o = {.w = w, .layer = kind};
    bool    has_reached;

    layer_prepare(&o);
    steps_begin(k, does[fault]);
    for (int i = 0; i < SIZE; i++) {
        layer_create(&o, i);
    }
    finish(&o, fault);
    has_reached = steps_reached();
    steps_end();
    for (int i = 0; i < SIZE; i++) {
        check_end(&o, i);
        if (fault == DELAY || !has_reached ||
            (fault == FAIL && !steps_happened())) {
            assert_int_equal(o.jobs[i].status, UMX_OK);
        }
    }
    layer_give_back(&o);
    return has_reached;
}

static void
run_all(void **state, int fault)
{
    static const char *const faults[] = {"a failure", "a delay", "a cancel"};

    void *own = world_open_another(*state, SIZE);

    FOR_LAYERS(kind)
    {
        unsigned k = 0;

        while (run(own, kind, fault, ++k)) {
            assert_true(k < MAX_STEPS);
            if (has_failed(own)) {
                assert_int_equal(world_teardown(&own), 0);
                own = world_open_another(*state, SIZE);
            }
        }
        print_message("%s: %u steps, %s at each\n", kind->name, k - 1,
                      faults[fault]);
    }
    assert_int_equal(world_teardown(&own), 0);
    world_open(*state, 1);
}

static void
test_each_step_fails(void **state)
{
    run_all(state, FAIL);
}

static void
test_each_step_is_delayed(void **state)
{
    run_all(state, DELAY);
}

static void
test_it_is_cancelled_at_each_step(void **state)
{
    run_all(state, CANCEL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_each_step_fails),
        WORLD_TEST(test_each_step_is_delayed),
        WORLD_TEST(test_it_is_cancelled_at_each_step),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
