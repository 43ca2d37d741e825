/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* tests: moe/call moe/pack moe/plan moe/wait */
#include <string.h>
#include <umx/moe.h>

#include "world.h"

enum {
    HIDDEN     = 256,
    MAX_TOKENS = 6,
    MAX_TOPK   = 4,
    EXPERTS    = 12
};

typedef struct layer {
    world        *w;
    int           size;
    bool          is_private; /* peers do not map the memories */
    bool          is_unique;
    uint64_t      flags;
    uint64_t      timeout_ns;
    umx_moe_dtype dtype;
    uint64_t      seed;
    umx_memh     *memhs[MAX_RANKS];
    umx_moe      *moes[MAX_RANKS];
    umx_moe_call *calls[MAX_RANKS];
    job           jobs[MAX_RANKS];
    bool          is_out[MAX_RANKS]; /* takes no part any more */
    size_t        num_tokens[MAX_RANKS];
    int64_t       topk[MAX_RANKS][MAX_TOKENS * MAX_TOPK];
    float         x[MAX_RANKS][MAX_TOKENS * HIDDEN];
    float         weights[MAX_RANKS][MAX_TOKENS * MAX_TOPK];
} layer;

static umx_moe_params
params_of(const layer *l)
{
    return (umx_moe_params){
        .field_mask  = UMX_MOE_FIELD_FLAGS | UMX_MOE_FIELD_TIMEOUT,
        .num_experts = EXPERTS,
        .max_tokens  = MAX_TOKENS,
        .max_topk    = MAX_TOPK,
        .hidden      = HIDDEN,
        .dtype       = l->dtype,
        .timeout_ns  = (l->timeout_ns == 0) ? UMX_TIMEOUT_INFINITE :
                                              l->timeout_ns,
        .flags       = l->flags};
}

static void
create(layer *l, int rank, const umx_moe_params *params)
{
    umx_op_params how = job_params(&l->jobs[rank]);
    umx_request  *req = NULL;
    size_t        len = umx_moe_memory_size(params, l->size);

    assert_true(len > 0);
    assert_int_equal(
        l->is_private ?
            umx_memh_alloc_private(l->w->context, len, &l->memhs[rank]) :
            umx_memh_alloc(l->w->context, len, &l->memhs[rank]),
        UMX_OK);
    job_posted(&l->jobs[rank],
               umx_moe_create(l->w->comms[rank], l->memhs[rank], params, &how,
                              &l->moes[rank], &req),
               &req);
}

static void
open_layer(layer *l, world *w, int size)
{
    umx_moe_params params;

    l->w    = w;
    l->size = size;
    params  = params_of(l);
    world_open(w, size);
    for (int i = 0; i < size; i++) {
        create(l, i, &params);
    }
    world_wait(w, l->jobs, size, UMX_OK);
    random_state = 7 + l->seed;
}

static void
close_layer(layer *l)
{
    for (int i = 0; i < l->size; i++) {
        if (l->calls[i] != NULL) {
            umx_moe_call_destroy(l->calls[i]);
        }
        if (l->moes[i] != NULL) {
            umx_moe_destroy(l->moes[i]);
        }
        umx_memh_release(l->memhs[i]);
    }
}

/* ---- what is sent --------------------------------------------------------
 */

static umx_moe_routing
routing_of(const layer *l, int rank)
{
    return (umx_moe_routing){.topk_idx    = l->topk[rank],
                             .num_tokens  = l->num_tokens[rank],
                             .num_topk    = MAX_TOPK,
                             .num_experts = EXPERTS,
                             .num_ranks   = l->size};
}

/* Tokens with small whole numbers, which every dtype has. */
static void
fill(layer *l)
{
    for (int r = 0; r < l->size; r++) {
        l->num_tokens[r] = next_random(MAX_TOKENS + 1);
        for (size_t t = 0; t < l->num_tokens[r]; t++) {
            int64_t *experts = &l->topk[r][t * MAX_TOPK];
            int64_t  first   = (int64_t)next_random(EXPERTS);

            for (int k = 0; k < MAX_TOPK; k++) {
                experts[k] = (next_random(5) == 0) ? -1 :
                                                     (first + k * 5) % EXPERTS;
                l->weights[r][t * MAX_TOPK + (size_t)k] =
                    (float)next_random(8) / 4;
            }
            for (int h = 0; h < HIDDEN; h++) {
                l->x[r][t * HIDDEN + (size_t)h] = (float)next_random(8);
            }
        }
    }
}

static uint16_t
to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, 4);
    return (uint16_t)(bits >> 16);
}

static float
of_bf16(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float    number;

    memcpy(&number, &bits, 4);
    return number;
}

static void
begin(layer *l, int rank)
{
    umx_moe_routing routing = routing_of(l, rank);

    assert_int_equal(umx_moe_begin(l->moes[rank], &routing,
                                   l->is_unique ? UMX_MOE_UNIQUE : 0,
                                   &l->calls[rank]),
                     UMX_OK);
}

static void
pack(layer *l, int rank)
{
    static uint16_t halves[MAX_TOKENS * HIDDEN];
    umx_moe_rows    rows = {.data = l->x[rank], .weights = l->weights[rank]};

    if (l->dtype == UMX_MOE_BF16) {
        for (size_t i = 0; i < l->num_tokens[rank] * HIDDEN; i++) {
            halves[i] = to_bf16(l->x[rank][i]);
        }
        rows.data = halves;
    }
    assert_int_equal(umx_moe_pack(l->calls[rank], &rows), UMX_OK);
}

typedef umx_status step_fn(umx_moe_call *call, const umx_op_params *op,
                           umx_request **req_p);

static void
post(layer *l, int rank, step_fn *step)
{
    umx_op_params how = job_params(&l->jobs[rank]);
    umx_request  *req = NULL;

    job_posted(&l->jobs[rank], step(l->calls[rank], &how, &req), &req);
}

static void
do_step(layer *l, step_fn *step)
{
    for (int i = 0; i < l->size; i++) {
        l->jobs[i] = (job){.status = UMX_OK, .calls = 1};
        if (!l->is_out[i]) {
            post(l, i, step);
        }
    }
    world_wait(l->w, l->jobs, l->size, UMX_OK);
}

static void
dispatch(layer *l)
{
    for (int i = 0; i < l->size; i++) {
        if (!l->is_out[i]) {
            begin(l, i);
        }
    }
    if (l->is_unique) {
        do_step(l, umx_moe_count);
    }
    for (int i = 0; i < l->size; i++) {
        if (!l->is_out[i]) {
            pack(l, i);
        }
    }
    do_step(l, umx_moe_dispatch);
}

/* ---- experts: number e multiplies by e + 1 -------------------------------
 */

static float
load(const layer *l, const void *rows, size_t i)
{
    return (l->dtype == UMX_MOE_BF16) ? of_bf16(((const uint16_t *)rows)[i]) :
                                        ((const float *)rows)[i];
}

static void
store(const layer *l, void *rows, size_t i, float value)
{
    if (l->dtype == UMX_MOE_BF16) {
        ((uint16_t *)rows)[i] = to_bf16(value);
    } else {
        ((float *)rows)[i] = value;
    }
}

static void
multiply(const layer *l, int rank, size_t row, float factor)
{
    umx_moe_info info;
    char        *memory = umx_memh_buffer(l->memhs[rank])->data;

    umx_moe_call_info(l->calls[rank], &info);
    for (size_t i = row * HIDDEN; i < (row + 1) * HIDDEN; i++) {
        store(l, memory + info.outputs, i,
              load(l, memory + info.rows, i) * factor);
    }
}

static void
run_experts(layer *l, int rank)
{
    umx_moe_info info;
    size_t       n = (size_t)l->size, local = EXPERTS / n, row = 0;
    const char  *memory = umx_memh_buffer(l->memhs[rank])->data;

    umx_moe_call_info(l->calls[rank], &info);
    for (size_t i = 0; i < (l->is_unique ? n : local * n); i++) {
        for (size_t k = 0; k < info.counts[i]; k++) {
            float factor = (float)((size_t)rank * local + i / n + 1);

            if (l->is_unique) { /* its experts and weights come with it */
                const int32_t *idx     = (const void *)(memory + info.topk_idx +
                                                    row * MAX_TOPK * 8);
                const float   *weights = (const void *)(memory +
                                                      info.topk_weights +
                                                      row * MAX_TOPK * 8);

                factor = 0;
                for (int j = 0; j < MAX_TOPK; j++) {
                    factor += (idx[j] < 0) ?
                                  0 :
                                  weights[j] * (float)((size_t)rank * local +
                                                       (size_t)idx[j] + 1);
                }
                multiply(l, rank, row++, factor);
            } else {
                multiply(l, rank, i * MAX_TOKENS + k, factor);
            }
        }
    }
}

static void
combine(layer *l)
{
    for (int i = 0; i < l->size; i++) {
        if (!l->is_out[i]) {
            run_experts(l, i);
        }
    }
    do_step(l, umx_moe_combine);
}

/* What a token has to become, if experts of `without` are left out. */
static float
expected(const layer *l, int rank, size_t token, size_t h, int without)
{
    float sum = 0;

    for (size_t k = 0; k < MAX_TOPK; k++) {
        int64_t expert = l->topk[rank][token * MAX_TOPK + k];

        if (expert >= 0 && expert / (EXPERTS / l->size) != without) {
            sum += l->weights[rank][token * MAX_TOPK + k] *
                   (float)(expert + 1) * l->x[rank][token * HIDDEN + h];
        }
    }
    return sum;
}

static void
check_sums(layer *l, int without)
{
    static float out[MAX_TOKENS * HIDDEN];

    for (int r = 0; r < l->size; r++) {
        if (l->is_out[r]) {
            continue;
        }
        assert_int_equal(umx_moe_sum(l->calls[r],
                                     l->is_unique ? NULL : l->weights[r],
                                     UMX_MOE_F32, out),
                         UMX_OK);
        for (size_t i = 0; i < l->num_tokens[r] * HIDDEN; i++) {
            float want = expected(l, r, i / HIDDEN, i % HIDDEN, without);

            if (out[i] != want) {
                fail_msg("rank %d number %zu: %f, not %f", r, i, (double)out[i],
                         (double)want);
            }
        }
        umx_moe_call_destroy(l->calls[r]);
        l->calls[r] = NULL;
    }
}

/* ---- tests ---------------------------------------------------------------
 */

static void
leave_all(layer *l)
{
    for (int i = 0; i < l->size; i++) {
        umx_op_params how = job_params(&l->jobs[i]);
        umx_request  *req = NULL;

        job_posted(&l->jobs[i], umx_moe_leave(l->moes[i], &how, &req), &req);
    }
    world_wait(l->w, l->jobs, l->size, UMX_OK);
    for (int i = 0; i < l->size; i++) {
        assert_int_equal(umx_moe_state(l->moes[i]), UMX_ERR_CLOSED);
    }
}

static void
run_calls(world *w, layer l, int size, int num_calls)
{
    open_layer(&l, w, size);
    for (int i = 0; i < num_calls; i++) {
        fill(&l);
        dispatch(&l);
        combine(&l);
        check_sums(&l, -1);
    }
    leave_all(&l);
    close_layer(&l);
}

static void
test_sums_are_those_of_one_process(void **state)
{
    run_calls(*state, (layer){.dtype = UMX_MOE_F32}, 3, 5);
}

static void
test_one_rank_has_all_experts(void **state)
{
    run_calls(*state, (layer){.dtype = UMX_MOE_F32}, 1, 3);
}

static void
test_memory_that_is_not_mapped(void **state)
{
    run_calls(*state, (layer){.dtype = UMX_MOE_F32, .is_private = true}, 4, 5);
}

static void
test_a_token_goes_once_to_a_rank(void **state)
{
    run_calls(*state, (layer){.dtype = UMX_MOE_F32, .is_unique = true}, 3, 5);
}

static void
test_a_token_goes_once_to_memory_that_is_not_mapped(void **state)
{
    run_calls(
        *state,
        (layer){.dtype = UMX_MOE_F32, .is_unique = true, .is_private = true}, 2,
        5);
}

static void
test_two_calls_are_live(void **state)
{
    layer           l = {.dtype = UMX_MOE_F32};
    umx_moe_call   *first[2], *call;
    umx_moe_routing routing;

    open_layer(&l, *state, 2);
    fill(&l);
    dispatch(&l);
    memcpy(first, l.calls, sizeof(first));
    dispatch(&l);
    routing = routing_of(&l, 0);
    assert_int_equal(umx_moe_begin(l.moes[0], &routing, 0, &call),
                     UMX_ERR_BUSY);
    for (int i = 0; i < 2; i++) {
        umx_moe_call *second = l.calls[i];

        post(&l, i, umx_moe_combine); /* the older one comes first */
        assert_int_equal(l.jobs[i].status, UMX_ERR_INVALID_PARAM);
        l.calls[i] = first[i];
        first[i]   = second;
    }
    combine(&l);
    check_sums(&l, -1);
    memcpy(l.calls, first, sizeof(first));
    combine(&l);
    check_sums(&l, -1);
    fill(&l);
    dispatch(&l);
    combine(&l);
    check_sums(&l, -1);
    close_layer(&l);
}

static void
test_a_layout_is_used_again(void **state)
{
    layer         l = {.dtype = UMX_MOE_F32, .is_unique = true};
    umx_moe_call *like[3];

    open_layer(&l, *state, 3);
    fill(&l);
    dispatch(&l);
    combine(&l);
    memcpy(like, l.calls, sizeof(like));
    for (int i = 0; i < 3; i++) {
        static float out[MAX_TOKENS * HIDDEN];

        assert_int_equal(umx_moe_sum(like[i], NULL, UMX_MOE_F32, out), UMX_OK);
        assert_int_equal(umx_moe_begin_like(like[i], 0, &l.calls[i]), UMX_OK);
        umx_moe_call_destroy(like[i]);
        pack(&l, i);
    }
    do_step(&l, umx_moe_dispatch);
    for (int i = 0; i < 3; i++) {
        umx_moe_info info;

        umx_moe_call_info(l.calls[i], &info);
        assert_false(info.has_topk);
    }
    do_step(&l, umx_moe_combine);
    close_layer(&l);
}

static void
test_a_call_that_was_not_sent_is_taken_back(void **state)
{
    layer l = {.dtype = UMX_MOE_F32};

    open_layer(&l, *state, 2);
    fill(&l);
    for (int i = 0; i < 5; i++) {
        begin(&l, 0);
        umx_moe_call_destroy(l.calls[0]);
    }
    dispatch(&l);
    combine(&l);
    check_sums(&l, -1);
    close_layer(&l);
}

static void
test_a_cancelled_dispatch_ends_all(void **state)
{
    layer            l = {.dtype = UMX_MOE_F32};
    umx_comm_failure failure;
    const char      *why;

    open_layer(&l, *state, 2);
    fill(&l);
    begin(&l, 0);
    pack(&l, 0);
    post(&l, 0, umx_moe_dispatch);
    assert_int_equal(l.jobs[0].status, UMX_INPROGRESS);
    umx_request_cancel(l.jobs[0].req);
    assert_int_equal(world_wait_one(l.w, &l.jobs[0]), UMX_ERR_CANCELED);
    assert_int_equal(umx_moe_state(l.moes[0]), UMX_ERR_CANCELED);
    while (umx_moe_state(l.moes[1]) == UMX_OK) {
        world_step(l.w);
    }
    assert_int_equal(umx_moe_state(l.moes[1]), UMX_ERR_RANK_FAILED);
    assert_true(
        umx_joint_get_failure(umx_moe_joint(l.moes[1]), &failure, &why));
    assert_int_equal(failure.rank, 0);
    assert_false(umx_comm_get_failure(l.w->comms[1], &failure));
    close_layer(&l);
}

static void
test_a_rank_that_leaves_fails_who_waits_for_it(void **state)
{
    layer l = {.dtype = UMX_MOE_F32};

    open_layer(&l, *state, 3);
    fill(&l);
    dispatch(&l);
    for (int i = 0; i < 2; i++) {
        post(&l, i, umx_moe_combine);
        assert_int_equal(l.jobs[i].status, UMX_INPROGRESS);
    }
    umx_moe_destroy(l.moes[2]);
    l.moes[2] = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world_wait_one(l.w, &l.jobs[i]), UMX_ERR_RANK_FAILED);
    }
    close_layer(&l);
}

static void
go_on_without_rank_2(layer *l)
{
    dispatch(l);
    assert_true(umx_moe_is_masked(l->moes[0], 2));
    assert_true(umx_moe_is_masked(l->moes[1], 2));
    combine(l);
    check_sums(l, 2);
    fill(l);
    dispatch(l);
    combine(l);
    check_sums(l, 2);
}

static void
test_a_rank_that_leaves_is_masked(void **state)
{
    layer           l = {.dtype = UMX_MOE_F32, .flags = UMX_MOE_FLAG_MASK};
    umx_moe_call   *call;
    umx_moe_routing routing;

    open_layer(&l, *state, 3);
    fill(&l);
    dispatch(&l);
    combine(&l);
    check_sums(&l, -1);
    umx_moe_destroy(l.moes[2]);
    l.moes[2]   = NULL;
    l.is_out[2] = true;
    go_on_without_rank_2(&l);
    routing = routing_of(&l, 0);
    assert_int_equal(umx_moe_begin(l.moes[0], &routing, UMX_MOE_UNIQUE, &call),
                     UMX_ERR_UNSUPPORTED);
    close_layer(&l);
}

static void
test_a_call_to_all_ranks_is_not_combined_with_a_mask(void **state)
{
    layer l = {
        .dtype = UMX_MOE_F32, .flags = UMX_MOE_FLAG_MASK, .is_unique = true};

    open_layer(&l, *state, 3);
    fill(&l);
    dispatch(&l);
    assert_int_equal(umx_moe_set_mask(l.moes[0], 2, true), UMX_OK);
    post(&l, 0, umx_moe_combine);
    assert_int_equal(l.jobs[0].status, UMX_ERR_UNSUPPORTED);
    assert_int_equal(umx_moe_set_mask(l.moes[0], 2, false), UMX_OK);
    post(&l, 0, umx_moe_combine);
    umx_moe_destroy(l.moes[2]);
    l.moes[2] = NULL;
    assert_int_equal(world_wait_one(l.w, &l.jobs[0]), UMX_ERR_RANK_FAILED);
    assert_int_equal(umx_moe_failed_rank(l.moes[0]), 2);
    close_layer(&l);
}

static void
test_a_rank_that_is_late_is_masked(void **state)
{
    layer l = {.dtype      = UMX_MOE_F32,
               .flags      = UMX_MOE_FLAG_MASK,
               .timeout_ns = 1000000000};

    open_layer(&l, *state, 3);
    fill(&l);
    l.is_out[2] = true;
    go_on_without_rank_2(&l);
    assert_int_equal(umx_moe_set_mask(l.moes[0], 2, false), UMX_OK);
    assert_false(umx_moe_is_masked(l.moes[0], 2));
    assert_int_equal(umx_moe_set_mask(l.moes[0], 0, true),
                     UMX_ERR_OUT_OF_RANGE);
    close_layer(&l);
}

static void
test_a_rank_that_is_late_is_an_error(void **state)
{
    layer l = {.dtype = UMX_MOE_F32, .timeout_ns = 1000000000};

    open_layer(&l, *state, 2);
    fill(&l);
    begin(&l, 0);
    pack(&l, 0);
    post(&l, 0, umx_moe_dispatch);
    assert_int_equal(world_wait_one(l.w, &l.jobs[0]), UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_moe_failed_rank(l.moes[0]), 1);
    close_layer(&l);
}

static void
test_a_masked_rank_is_told(void **state)
{
    layer l = {.dtype = UMX_MOE_F32, .flags = UMX_MOE_FLAG_MASK};

    open_layer(&l, *state, 3);
    fill(&l);
    dispatch(&l);
    combine(&l);
    assert_int_equal(umx_moe_set_mask(l.moes[0], 2, true), UMX_OK);
    while (umx_moe_masked_by(l.moes[2]) != 0) {
        world_step(l.w);
    }
    assert_int_equal(umx_moe_masked_by(l.moes[1]), -1);
    assert_int_equal(umx_moe_sum(l.calls[2], l.weights[2], UMX_MOE_F32, l.x[2]),
                     UMX_ERR_RANK_FAILED);
    begin(&l, 2);
    pack(&l, 2);
    post(&l, 2, umx_moe_dispatch);
    assert_int_equal(world_wait_one(l.w, &l.jobs[2]), UMX_ERR_RANK_FAILED);
    close_layer(&l);
}

static void
test_a_mask_that_is_taken_away_is_forgotten(void **state)
{
    layer l = {.dtype = UMX_MOE_F32, .flags = UMX_MOE_FLAG_MASK};

    open_layer(&l, *state, 2);
    fill(&l);
    assert_int_equal(umx_moe_set_mask(l.moes[0], 1, true), UMX_OK);
    assert_int_equal(umx_moe_set_mask(l.moes[0], 1, false), UMX_OK);
    while (umx_moe_masked_by(l.moes[1]) != -1) {
        world_step(l.w);
    }
    dispatch(&l);
    combine(&l);
    check_sums(&l, -1);
    close_layer(&l);
}

static void
test_a_rank_that_leaves_while_others_dispatch(void **state)
{
    layer         l = {.dtype = UMX_MOE_F32};
    umx_op_params how;
    umx_request  *req = NULL;

    open_layer(&l, *state, 2);
    fill(&l);
    begin(&l, 0);
    pack(&l, 0);
    post(&l, 0, umx_moe_dispatch);
    how = job_params(&l.jobs[1]);
    job_posted(&l.jobs[1], umx_moe_leave(l.moes[1], &how, &req), &req);
    assert_int_equal(world_wait_one(l.w, &l.jobs[0]), UMX_ERR_RANK_FAILED);
    assert_int_equal(umx_moe_failed_rank(l.moes[0]), 1);
    (void)world_wait_one(l.w, &l.jobs[1]);
    close_layer(&l);
}

static void
test_a_second_rank_that_leaves_is_masked_too(void **state)
{
    layer l = {.dtype = UMX_MOE_F32, .flags = UMX_MOE_FLAG_MASK};

    open_layer(&l, *state, 3);
    fill(&l);
    for (int i = 2; i > 0; i--) { /* both give up a call, one after the other */
        begin(&l, 0);
        pack(&l, 0);
        post(&l, 0, umx_moe_dispatch);
        umx_moe_cancel(l.moes[i]);
        l.is_out[i] = true;
        if (i == 2) {
            begin(&l, 1);
            pack(&l, 1);
            post(&l, 1, umx_moe_dispatch);
            assert_int_equal(world_wait_one(l.w, &l.jobs[1]), UMX_OK);
        }
        assert_int_equal(world_wait_one(l.w, &l.jobs[0]), UMX_OK);
        assert_true(umx_moe_is_masked(l.moes[0], i));
        if (i == 2) {
            combine(&l);
            check_sums(&l, 2);
        }
    }
    close_layer(&l);
}

static void
test_outputs_that_do_not_come_are_late(void **state)
{
    layer l = {
        .dtype = UMX_MOE_F32, .is_private = true, .timeout_ns = 1000000000};

    open_layer(&l, *state, 2);
    fill(&l);
    l.num_tokens[0] = 1;
    for (int k = 0; k < MAX_TOPK; k++) {
        l.topk[0][k] = EXPERTS / 2 + k; /* all of rank 1 */
    }
    dispatch(&l);
    post(&l, 1, umx_moe_combine);
    l.w->is_stopped[1] = true;
    post(&l, 0, umx_moe_combine);
    assert_int_equal(world_wait_one(l.w, &l.jobs[0]), UMX_ERR_TIMED_OUT);
    assert_int_equal(umx_moe_failed_rank(l.moes[0]), 1);
    l.w->is_stopped[1] = false;
    (void)world_wait_one(l.w, &l.jobs[1]);
    close_layer(&l);
}

static void
test_a_rank_that_does_not_create(void **state)
{
    layer          l = {.dtype = UMX_MOE_F32, .timeout_ns = 50000000};
    umx_moe_params params;

    l.w    = *state;
    l.size = 2;
    world_open(l.w, 2);
    params = params_of(&l);
    create(&l, 0, &params);
    assert_int_equal(world_wait_one(l.w, &l.jobs[0]), UMX_ERR_TIMED_OUT);
    l.size = 1;
    close_layer(&l);
}

static void
test_ranks_give_different_numbers(void **state)
{
    layer          l = {.dtype = UMX_MOE_F32};
    umx_moe_params params;

    l.w    = *state;
    l.size = 2;
    world_open(l.w, 2);
    params = params_of(&l);
    create(&l, 0, &params);
    params.hidden *= 2;
    create(&l, 1, &params);
    world_wait(l.w, l.jobs, 2, UMX_ERR_INVALID_PARAM);
    close_layer(&l);
}

static void
test_wrong_numbers_are_refused(void **state)
{
    layer           l      = {.dtype = UMX_MOE_F32};
    umx_moe_params  params = params_of(&l);
    umx_moe_routing routing;
    umx_moe_call   *call;

    params.num_experts = EXPERTS + 1;
    assert_int_equal(umx_moe_memory_size(&params, 2), 0);
    params        = params_of(&l);
    params.dtype  = UMX_MOE_FP8;
    params.hidden = 100;
    assert_int_equal(umx_moe_memory_size(&params, 2), 0);
    params.dtype      = UMX_MOE_F32;
    params.max_tokens = UINT32_MAX / EXPERTS;
    params.hidden     = UINT32_MAX;
    assert_true(umx_moe_memory_size(&params, 2) == 0 || sizeof(size_t) == 8);
    open_layer(&l, *state, 1);
    l.num_tokens[0] = 1;
    routing         = routing_of(&l, 0);
    for (int i = 0; i < 3; i++) {
        static const int64_t wrong[] = {EXPERTS, -2, 1};

        l.topk[0][0] = 1;
        l.topk[0][1] = wrong[i];
        l.topk[0][2] = l.topk[0][3] = -1;
        assert_int_equal(umx_moe_begin(l.moes[0], &routing, 0, &call),
                         (i == 2) ? UMX_ERR_INVALID_PARAM :
                                    UMX_ERR_OUT_OF_RANGE);
    }
    routing.num_tokens = MAX_TOKENS + 1;
    assert_int_equal(umx_moe_begin(l.moes[0], &routing, 0, &call),
                     UMX_ERR_OUT_OF_RANGE);
    close_layer(&l);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_sums_are_those_of_one_process),
        WORLD_TEST(test_one_rank_has_all_experts),
        WORLD_TEST(test_memory_that_is_not_mapped),
        WORLD_TEST(test_a_token_goes_once_to_a_rank),
        WORLD_TEST(test_a_token_goes_once_to_memory_that_is_not_mapped),
        WORLD_TEST(test_two_calls_are_live),
        WORLD_TEST(test_a_layout_is_used_again),
        WORLD_TEST(test_a_call_that_was_not_sent_is_taken_back),
        WORLD_TEST(test_a_cancelled_dispatch_ends_all),
        WORLD_TEST(test_a_rank_that_leaves_fails_who_waits_for_it),
        WORLD_TEST(test_a_rank_that_leaves_is_masked),
        WORLD_TEST(test_a_call_to_all_ranks_is_not_combined_with_a_mask),
        WORLD_TEST(test_a_rank_that_is_late_is_masked),
        WORLD_TEST(test_a_rank_that_is_late_is_an_error),
        WORLD_TEST(test_a_masked_rank_is_told),
        WORLD_TEST(test_a_mask_that_is_taken_away_is_forgotten),
        WORLD_TEST(test_a_rank_that_leaves_while_others_dispatch),
        WORLD_TEST(test_a_second_rank_that_leaves_is_masked_too),
        WORLD_TEST(test_outputs_that_do_not_come_are_late),
        WORLD_TEST(test_a_rank_that_does_not_create),
        WORLD_TEST(test_ranks_give_different_numbers),
        WORLD_TEST(test_wrong_numbers_are_refused),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
