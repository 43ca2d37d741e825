/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/dma.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/watch.h"
#include "mem/cuda_kernel.h"
#include "util/count.h"
#include "util/refcnt.h"
#include "worker/request.h"

enum {
    /* The longest sleep while a copy is under way: nobody is told of those that
     * a device has failed at. */
    SLEEP_MAX_NS = 10 * 1000 * 1000
};

/* What the driver's thread rings, at times after the worker is gone. */
typedef struct umi_bell {
    umi_shared_refs refs;
    int             fd;
} umi_bell;

/* ---- the bell ------------------------------------------------------------
 */

static void
put_bell(umi_bell *bell)
{
    if (umi_shared_refs_put(&bell->refs)) {
        (void)close(bell->fd);
        free(bell);
    }
}

/* The driver calls this in a thread of its own. */
static void
ring(void *arg)
{
    umi_bell *bell = arg;
    uint64_t  one  = 1;

    (void)!write(bell->fd, &one, sizeof(one));
    put_bell(bell);
}

static void
on_ring(umi_watch *watch, uint32_t events)
{
    uint64_t count;

    (void)events;
    (void)!read(watch->fd, &count, sizeof(count));
}

static umi_bell *
new_bell(void)
{
    umi_bell *bell = malloc(sizeof(*bell));

    if (bell == NULL) {
        return NULL;
    }
    bell->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell->fd < 0) {
        free(bell);
        return NULL;
    }
    umi_shared_refs_init(&bell->refs);
    return bell;
}

/* Give the bell of a worker, which has none before it sleeps beside a copy.
 * NULL: it has none, and sleeps by the clock. */
static umi_bell *
bell_of(umx_worker *worker)
{
    umi_bell *bell = worker->bell;

    if (bell != NULL) {
        return bell;
    }
    bell = new_bell();
    if (bell != NULL && umi_watch_start(&worker->watches, &worker->bell_watch,
                                        bell->fd, EPOLLIN, on_ring) != UMX_OK) {
        put_bell(bell);
        bell = NULL;
    }
    worker->bell = bell;
    return bell;
}

static void
end_sleep(umi_timer *timer)
{
    umi_container_of(timer, umx_worker, dma_timer)->is_armed = false;
}

/* ---- copies --------------------------------------------------------------
 */

static umi_dma *
copy_at(umi_node *node)
{
    return umi_container_of(node, umi_dma, node);
}

void
umi_dma_init(umx_worker *worker)
{
    umi_list_init(&worker->dmas);
    umi_timer_init(&worker->dma_timer, end_sleep);
    worker->bell          = NULL;
    worker->bell_watch.fd = -1;
}

void
umi_dma_begin(umi_dma *copy, umx_request *req, int device,
              umi_cuda_direction direction, const umi_cuda_move *moves,
              size_t count, umi_dma_fn done)
{
    umx_status status;

    if (direction == UMI_CUDA_ACROSS && umi_cuda_kernel_is_for(count)) {
        umi_loader_use(&req->worker->loader, device);
    }
    status = umi_cuda_copy_begin(device, direction, moves, count, &copy->cuda);

    umi_dma_end(copy, req->worker, (status == UMX_OK) ? UMX_INPROGRESS : status,
                done);
    if (status == UMX_OK) {
        copy->req = req;
        req->num_dmas++;
    }
}

void
umi_dma_end(umi_dma *copy, umx_worker *worker, umx_status status,
            umi_dma_fn done)
{
    copy->req          = NULL;
    copy->done         = done;
    copy->status       = status;
    copy->is_announced = false;
    umi_node_init(&copy->node);
    umi_list_append(&worker->dmas, &copy->node);
    worker->is_armed = false;
}

/* The request has its memory back. */
static void
let_go(umi_dma *copy)
{
    if (copy->req != NULL) {
        UMI_DECREMENT(copy->req->num_dmas);
        copy->req = NULL;
    }
}

/* The driver is done with the memory of the request. */
static void
end_copy(umi_dma *copy, umx_status status)
{
    copy->status = status;
    let_go(copy);
}

/* ---- work of programs ----------------------------------------------------
 */

/* What a request waits for. */
typedef struct work {
    umi_dma      copy;
    umx_request *req; /* NULL: it has ended */
    uintptr_t    stream;
} work;

static void
on_work(umi_dma *copy, umx_status status)
{
    work        *w   = umi_container_of(copy, work, copy);
    umx_request *req = w->req;

    free(w);
    if (req != NULL) {
        req->ops->ready(req, status);
    }
}

static bool
is_work(const umi_dma *copy)
{
    return copy->done == on_work;
}

/* Forget work whose request has ended. */
static void
forget_work(umi_dma *copy)
{
    umi_container_of(copy, work, copy)->req = NULL;
    let_go(copy);
}

/* Free work that the worker does not outlive. */
static void
end_work(umi_dma *copy)
{
    let_go(copy);
    if (copy->status == UMX_INPROGRESS) {
        umi_cuda_after_drop(&copy->cuda);
    }
    free(umi_container_of(copy, work, copy));
}

umx_status
umi_dma_after(umx_request *req, const umx_op_params *params)
{
    work      *w = malloc(sizeof(*w));
    umx_status status;

    if (w == NULL) {
        return umx_cuda_wait(params->device, params->stream);
    }
    status = umi_cuda_after(params->device, params->stream, &w->copy.cuda);
    if (status != UMX_INPROGRESS) {
        free(w);
        return status;
    }
    umi_dma_end(&w->copy, req->worker, UMX_INPROGRESS, on_work);
    w->req      = req;
    w->stream   = params->stream;
    w->copy.req = req;
    req->num_dmas++;
    return UMX_OK;
}

/* ---- looking -------------------------------------------------------------
 */

/* Streams in which something is under way: what is behind it there is not asked
 * about. */
typedef struct busy {
    uint64_t  own; /* the library's, as bits */
    uintptr_t others[8];
    unsigned  num_others;
} busy;

static uint64_t
stream_bit(const umi_dma *copy)
{
    return UINT64_C(1) << ((unsigned)(copy->cuda.device *
                                          UMI_CUDA_NUM_DIRECTIONS +
                                      (int)copy->cuda.direction) %
                           64);
}

static bool
is_busy(const busy *streams, umi_dma *copy)
{
    if (!is_work(copy)) {
        return (streams->own & stream_bit(copy)) != 0;
    }
    for (unsigned i = 0; i < streams->num_others; i++) {
        if (streams->others[i] == umi_container_of(copy, work, copy)->stream) {
            return true;
        }
    }
    return false;
}

static void
note_busy(busy *streams, umi_dma *copy)
{
    if (!is_work(copy)) {
        streams->own |= stream_bit(copy);
    } else if (streams->num_others !=
               sizeof(streams->others) / sizeof(*streams->others)) {
        streams->others[streams->num_others++] =
            umi_container_of(copy, work, copy)->stream;
    }
}

/* True if nobody waits for it any more. */
static bool
is_forgotten(umi_dma *copy)
{
    return is_work(copy) && umi_container_of(copy, work, copy)->req == NULL;
}

bool
umi_dma_look(umx_worker *worker)
{
    busy waiting = {0};
    bool is_any  = false;

    UMI_LIST_FOREACH_SAFE(node, &worker->dmas) {
        umi_dma   *copy = copy_at(node);
        umx_status status;

        if (is_forgotten(copy)) {
            umi_node_remove(&copy->node);
            end_work(copy);
            continue;
        }
        if (copy->status == UMX_INPROGRESS) {
            if (is_busy(&waiting, copy)) {
                continue;
            }
            status = umi_cuda_copy_test(&copy->cuda);
            if (status == UMX_INPROGRESS) {
                note_busy(&waiting, copy);
                continue;
            }
            end_copy(copy, status);
        }
        umi_node_remove(&copy->node);
        is_any = true;
        copy->done(copy, copy->status);
    }
    if (!umi_dma_exists(worker)) {
        umi_timer_stop(&worker->dma_timer);
    }
    return is_any;
}

/* Have the bell rung once a copy is done, and all that are in front of it in
 * its stream. */
static void
announce(umi_bell *bell, umi_dma *copy)
{
    umi_shared_refs_get(&bell->refs);
    if (umi_cuda_copy_call(&copy->cuda, ring, bell) != UMX_OK) {
        put_bell(bell);
    }
}

bool
umi_dma_announce(umx_worker *worker)
{
    umi_bell *bell;
    uint64_t  asked = 0;

    if (umi_dma_look(worker)) {
        return true;
    }
    bell = bell_of(worker);
    UMI_LIST_FOREACH(node, &worker->dmas) {
        umi_dma *copy = copy_at(node);

        if (bell != NULL && !copy->is_announced &&
            copy->status == UMX_INPROGRESS && (asked & stream_bit(copy)) == 0) {
            announce(bell, copy);
            asked |= is_work(copy) ? 0 : stream_bit(copy);
        }
        copy->is_announced = true;
    }
    umi_timer_start(worker, &worker->dma_timer, SLEEP_MAX_NS);
    return false;
}

/* Wait for the copies of `req`; NULL: for all. */
static void
wait_for(umx_worker *worker, const umx_request *req)
{
    UMI_LIST_FOREACH(node, &worker->dmas) {
        umi_dma *copy = copy_at(node);

        if (copy->status != UMX_INPROGRESS ||
            (req != NULL && copy->req != req)) {
            continue;
        }
        if (!is_work(copy)) {
            end_copy(copy, umi_cuda_copy_wait(&copy->cuda));
        } else if (req != NULL) {
            forget_work(copy);
        }
    }
    worker->is_armed = false; /* what is over is to be looked at */
}

void
umi_dma_settle_some(umx_request *req)
{
    wait_for(req->worker, req);
    assert(req->num_dmas == 0);
}

void
umi_dma_settle_all(umx_worker *worker)
{
    wait_for(worker, NULL);
}

void
umi_dma_fini(umx_worker *worker)
{
    umi_node *node;

    umi_dma_settle_all(worker);
    umi_loader_end(&worker->loader);
    while ((node = umi_list_pop(&worker->dmas)) != NULL) {
        if (is_work(copy_at(node))) {
            end_work(copy_at(node));
        }
    }
    umi_timer_stop(&worker->dma_timer);
    if (worker->bell != NULL) {
        umi_watch_stop(&worker->watches, &worker->bell_watch);
        put_bell(worker->bell);
        worker->bell = NULL;
    }
}
