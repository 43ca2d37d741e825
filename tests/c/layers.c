/* SPDX-License-Identifier: BSD-3-Clause */
#include "layers.h"

#include <string.h>

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

/* What the buffers of experts are made of, until layer_give_back(). */
static umx_memh *memories[MAX_RANKS];

static umx_moe_params
moe_params(const world *w)
{
    return (umx_moe_params){.num_experts = (uint32_t)w->size,
                            .max_tokens  = 4,
                            .max_topk    = 1,
                            .hidden      = 16,
                            .dtype       = UMX_MOE_F32};
}

static void
prepare_moe(world *w, int rank)
{
    umx_moe_params params = moe_params(w);

    assert_int_equal(umx_memh_alloc(w->context,
                                    umx_moe_memory_size(&params, w->size),
                                    &memories[rank]),
                     UMX_OK);
}

static umx_status
create_moe(world *w, int rank, const umx_op_params *how, void **object_p,
           umx_request **req_p)
{
    umx_moe_params params = moe_params(w);

    return umx_moe_create(w->comms[rank], memories[rank], &params, how,
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

const layer layers[] = {
    {"heap", NULL, create_heap, joint_of_heap, destroy_heap, close_heap},
    {"outputs", NULL, create_outputs, joint_of_outputs, destroy_outputs,
     close_outputs},
    {"proxy", NULL, create_proxy, joint_of_proxy, destroy_proxy, close_proxy},
    {"buffer", prepare_moe, create_moe, joint_of_moe, destroy_moe, close_moe},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

/* ---- objects -------------------------------------------------------------
 */

static void
prepare(objects *o, int rank)
{
    if (o->layer->prepare != NULL && memories[rank] == NULL) {
        o->layer->prepare(o->w, rank);
    }
}

void
layer_prepare(objects *o)
{
    for (int i = 0; i < o->w->size; i++) {
        prepare(o, i);
    }
}

void
layer_create(objects *o, int rank)
{
    umx_op_params how = job_params(&o->jobs[rank]);
    umx_request  *req = NULL;

    o->objects[rank] = NULL;
    prepare(o, rank);
    job_posted(&o->jobs[rank],
               o->layer->create(o->w, rank, &how, &o->objects[rank], &req),
               &req);
}

umx_joint *
layer_joint(const objects *o, int rank)
{
    assert_non_null(o->objects[rank]);
    return o->layer->joint(o->objects[rank]);
}

void
layer_open_all(objects *o)
{
    for (int i = 0; i < o->w->size; i++) {
        layer_create(o, i);
    }
    world_wait(o->w, o->jobs, o->w->size, UMX_OK);
    for (int i = 0; i < o->w->size; i++) {
        assert_int_equal(umx_joint_status(layer_joint(o, i)), UMX_OK);
    }
}

void
layer_give_back(objects *o)
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

void
layer_expect_failure(objects *o, int rank, int failed, const char *text)
{
    umx_comm_failure failure;
    const char      *why;

    assert_int_equal(world_wait_one(o->w, &o->jobs[rank]), UMX_ERR_RANK_FAILED);
    assert_int_equal(umx_joint_status(layer_joint(o, rank)),
                     UMX_ERR_RANK_FAILED);
    assert_true(umx_joint_get_failure(layer_joint(o, rank), &failure, &why));
    if (failure.rank != failed || strstr(why, text) == NULL) {
        print_message("%s: rank %d: %s\n", o->layer->name, failure.rank, why);
    }
    assert_int_equal(failure.rank, failed);
    assert_non_null(strstr(why, text));
}
