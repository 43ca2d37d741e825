/* SPDX-License-Identifier: BSD-3-Clause */
#include "rings.h"

#include <string.h>

static void
create_proxies(rings *r)
{
    job jobs[MAX_RANKS];

    for (int i = 0; i < r->w->size; i++) {
        umx_op_params how = job_params(&jobs[i]);
        umx_request  *req = NULL;

        job_posted(&jobs[i],
                   umx_proxy_create(r->w->comms[i], &r->params, &how,
                                    &r->proxies[i], &req),
                   &req);
    }
    world_wait(r->w, jobs, r->w->size, UMX_OK);
}

void
add_region(rings *r, umx_memh *const *memhs, umx_memh *const *sources,
           unsigned number)
{
    job jobs[MAX_RANKS];

    for (int i = 0; i < r->w->size; i++) {
        umx_op_params how   = job_params(&jobs[i]);
        umx_request  *req   = NULL;
        unsigned      given = 1000;

        job_posted(&jobs[i],
                   umx_proxy_add_region(r->proxies[i], memhs[i],
                                        (sources == NULL) ? NULL : sources[i],
                                        &how, &given, &req),
                   &req);
        assert_int_equal(given, number);
    }
    world_wait(r->w, jobs, r->w->size, UMX_OK);
}

void
open_rings_with(rings *r, world *w, int size, bool is_mapped)
{
    umx_proxy_params params = r->params;

    *r = (rings){.w = w, .params = params};
    world_open(w, size);
    create_proxies(r);
    for (int i = 0; i < size; i++) {
        umx_proxy_ring_params ring = {.capacity = RING_CAPACITY};

        assert_int_equal(
            is_mapped ?
                umx_memh_alloc(w->context, REGION_BYTES, &r->memhs[i]) :
                umx_memh_alloc_private(w->context, REGION_BYTES, &r->memhs[i]),
            UMX_OK);
        r->data[i] = umx_memh_buffer(r->memhs[i])->data;
        memset(r->data[i], i + 1, 65536);
        assert_int_equal(
            umx_proxy_ring_create(r->proxies[i], &ring, &r->rings[i]), UMX_OK);
        umx_ring_producer_init(&r->producers[i],
                               umx_proxy_ring_get(r->rings[i]));
    }
    add_region(r, r->memhs, NULL, 0);
}

void
open_rings(rings *r, world *w, int size)
{
    r->params.field_mask = 0;
    open_rings_with(r, w, size, true);
}

void
close_rings(rings *r)
{
    for (int i = 0; i < r->w->size; i++) {
        umx_proxy_ring_destroy(r->rings[i]);
        if (r->proxies[i] != NULL) {
            umx_proxy_destroy(r->proxies[i]);
        }
        if (r->memhs[i] != NULL) {
            umx_memh_release(r->memhs[i]);
        }
    }
}

umx_ring_u64
push(rings *r, int rank, umx_ring_command command)
{
    assert_int_equal(umx_ring_push(&r->producers[rank], &command, 1), 0);
    return r->producers[rank].head - 1;
}

void
post_quiet(rings *r, int rank, job *j, umx_request **req_p)
{
    umx_op_params how = job_params(j);
    umx_request  *req = NULL;

    job_posted(j, umx_proxy_quiet(&r->rings[rank], 1, &how, &req), &req);
    if (req_p != NULL) {
        *req_p = req;
    }
}

void
expect_quiet(rings *r, int rank, umx_status status)
{
    job j;

    post_quiet(r, rank, &j, NULL);
    assert_int_equal(world_wait_one(r->w, &j), status);
}

void
expect_close(rings *r, int rank, uint64_t timeout_ns, umx_status status)
{
    job           j;
    umx_op_params how = job_params(&j);
    umx_request  *req = NULL;

    job_posted(&j, umx_proxy_close(r->proxies[rank], timeout_ns, &how, &req),
               &req);
    assert_int_equal(world_wait_one(r->w, &j), status);
}

void
wait_for_error(rings *r, int rank)
{
    umx_proxy_error error;

    for (int i = 0;
         i < 20000 && !umx_proxy_ring_get_error(r->rings[rank], &error); i++) {
        usleep(1000);
    }
}

void
expect_error(rings *r, int rank, umx_status status, int failed,
             const char *text)
{
    umx_proxy_error error;

    wait_for_error(r, rank);
    assert_true(umx_proxy_ring_get_error(r->rings[rank], &error));
    if (strstr(error.reason, text) == NULL) {
        print_message("%s\n", error.reason);
    }
    assert_int_equal(error.status, status);
    assert_int_equal(error.rank, failed);
    assert_non_null(strstr(error.reason, text));
}
