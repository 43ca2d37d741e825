/* SPDX-License-Identifier: BSD-3-Clause */
/* proxy.c: the life of a proxy, and its tasks. */
#include "proxy/proxy.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"

umx_status
umi_proxy_check(const umx_proxy *proxy)
{
    if (umi_proxy_is_forked(proxy)) {
        return UMX_ERR_FORKED;
    }
    return proxy->is_closing ? UMX_ERR_CLOSED : umi_joint_check(&proxy->joint);
}

/* ---- tasks ---------------------------------------------------------------
 */

umi_proxy_task *
umi_proxy_task_new(umx_proxy *proxy, void (*run)(umi_proxy_task *, umx_status),
                   const umx_request_class *cls, const umx_op_params *op)
{
    umi_proxy_task *task = calloc(1, sizeof(*task));

    if (task == NULL) {
        return NULL;
    }
    task->proxy = proxy;
    task->run   = run;
    umi_node_init(&task->node);
    umi_node_init(&task->home);
    if (cls != NULL) {
        task->req = umx_request_create(proxy->joint.worker, cls, op);
        if (task->req == NULL) {
            free(task);
            return NULL;
        }
        UMX_REQUEST_OF(task->req, umi_proxy_task) = task;
        task->is_of_home                          = true;
        umi_list_append(&proxy->tasks, &task->home);
    }
    umi_proxy_hold(proxy);
    return task;
}

/* Free a task that has no request any more. */
void
umi_proxy_task_free(umi_proxy_task *task)
{
    umx_proxy *proxy = task->proxy;

    if (task->is_of_home) {
        umi_node_remove(&task->home);
    }
    if (task->req != NULL) {
        umx_request_discard(task->req);
    }
    free(task);
    umi_proxy_put(proxy);
}

umx_status
umi_proxy_post(umi_proxy_task *task)
{
    umx_proxy *proxy = task->proxy;
    umx_status status;

    (void)pthread_mutex_lock(&proxy->lock);
    status = proxy->has_ended ? UMX_ERR_CLOSED : UMX_OK;
    if (status == UMX_OK) {
        task->next        = NULL;
        *proxy->calls_end = task;
        proxy->calls_end  = &task->next;
        atomic_store(&proxy->has_calls, true);
        umi_proxy_kick(proxy);
    }
    (void)pthread_mutex_unlock(&proxy->lock);
    return status;
}

void
umi_proxy_end_task(umi_proxy_task *task, umx_status status)
{
    umx_proxy *proxy = task->proxy;
    bool       is_posted;

    (void)pthread_mutex_lock(&proxy->lock);
    task->status = status;
    if (task->sleeper != NULL) {
        task->sleeper->is_over = true;
        task->sleeper->status  = status;
        (void)pthread_cond_signal(&task->sleeper->cond);
    }
    is_posted = task->is_of_home;
    if (is_posted) {
        task->next       = NULL;
        *proxy->done_end = task;
        proxy->done_end  = &task->next;
        if (!proxy->is_errand_posted && !proxy->is_home_closed) {
            proxy->is_errand_posted = true;
            umi_proxy_hold(proxy);
            umx_worker_post(proxy->joint.worker, &proxy->errand);
        }
    }
    (void)pthread_mutex_unlock(&proxy->lock);
    if (!is_posted) {
        umi_proxy_task_free(task);
    }
}

static void begin_close(umi_proxy_task *task, umx_status status);

/* Complete the requests of tasks that have ended. */
static void
end_done(umx_proxy *proxy)
{
    umi_proxy_task *task;

    (void)pthread_mutex_lock(&proxy->lock);
    task            = proxy->done;
    proxy->done     = NULL;
    proxy->done_end = &proxy->done;
    if (proxy->has_failure) {
        umi_joint_keep(&proxy->joint, &proxy->failure, proxy->why);
    }
    (void)pthread_mutex_unlock(&proxy->lock);
    while (task != NULL) {
        umi_proxy_task *next = task->next;

        if (task == proxy->creation) {
            umi_proxy_created(proxy, task->status);
        } else if (task->run == begin_close) {
            umi_joint_end(&proxy->joint, UMX_ERR_CLOSED);
        }
        umi_joint_complete(&task->req, task->status);
        umi_proxy_task_free(task);
        task = next;
    }
}

void
umi_proxy_run_errand(umx_errand *errand)
{
    umx_proxy *proxy = umi_container_of(errand, umx_proxy, errand);

    (void)pthread_mutex_lock(&proxy->lock);
    proxy->is_errand_posted = false;
    (void)pthread_mutex_unlock(&proxy->lock);
    end_done(proxy);
    umi_proxy_put(proxy); /* the errand's */
}

/* ---- the end -------------------------------------------------------------
 */

void
umi_proxy_stop(umx_proxy *proxy)
{
    if (!proxy->has_thread || umi_proxy_is_forked(proxy)) {
        return;
    }
    proxy->has_thread = false;
    atomic_store(&proxy->is_abort, true);
    umi_proxy_kick(proxy);
    (void)pthread_join(proxy->thread, NULL);
    umi_proxy_process_remove(proxy);
}

void
umi_proxy_give_up(umx_proxy *proxy)
{
    atomic_store(&proxy->is_abort, true);
    umi_proxy_kick(proxy);
}

/* Nothing is posted at home any more. */
static void
leave_home(umx_proxy *proxy)
{
    umi_proxy_stop(proxy);
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->is_home_closed = true;
    (void)pthread_mutex_unlock(&proxy->lock);
    end_done(proxy);
}

void
umi_proxy_on_home_destroy(umx_joint *joint)
{
    umx_proxy *proxy = umi_container_of(joint, umx_proxy, joint);

    UMI_LIST_FOREACH_SAFE(node, &proxy->tasks) {
        umi_joint_complete(&umi_container_of(node, umi_proxy_task, home)->req,
                           UMX_ERR_CANCELED);
    }
    leave_home(proxy);
}

void
umx_proxy_destroy(umx_proxy *proxy)
{
    UMX_LAYER_LOCK(umi_proxy_is_forked(proxy) ? NULL : proxy->joint.worker);

    if (umi_proxy_is_forked(proxy)) {
        return;
    }
    proxy->is_closing = true;
    umi_joint_end(&proxy->joint, UMX_ERR_CLOSED);
    leave_home(proxy);
    umx_worker_detach(&proxy->joint.dependent); /* any thread may put it last */
    proxy->joint.worker = NULL;
    umi_proxy_put(proxy);
}

static void
begin_close(umi_proxy_task *task, umx_status status)
{
    umx_proxy *proxy = task->proxy;

    if (status != UMX_OK) {
        umi_proxy_end_task(task, UMX_OK); /* it has ended already */
        return;
    }
    proxy->closing = task;
    proxy->state   = UMI_PROXY_DRAINING;
    umi_proxy_note_ends(proxy);
}

static void
cancel_close(umx_request *req)
{
    umi_proxy_task *task = UMX_REQUEST_OF(req, umi_proxy_task);

    umi_proxy_give_up(task->proxy);
    umi_joint_complete(&task->req, UMX_ERR_CANCELED);
}

static const umx_request_class close_class = {.name   = "close",
                                              .cancel = cancel_close};

umx_status
umx_proxy_close(umx_proxy *proxy, uint64_t timeout_ns, const umx_op_params *op,
                umx_request **req_p)
{
    UMX_LAYER_LOCK(umi_proxy_is_forked(proxy) ? NULL : proxy->joint.worker);
    uint64_t        now = umi_clock_ns();
    umi_proxy_task *task;
    umx_request    *req;

    if (umi_proxy_is_forked(proxy)) {
        return UMX_ERR_FORKED;
    }
    if (umi_joint_check(&proxy->joint) != UMX_OK || !proxy->has_thread) {
        return UMX_OK;
    }
    if (proxy->is_closing) {
        return UMX_ERR_BUSY;
    }
    task = umi_proxy_task_new(proxy, begin_close, &close_class, op);
    if (task == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    task->deadline_ns = (timeout_ns > UINT64_MAX - now) ? UINT64_MAX :
                                                          now + timeout_ns;
    req               = task->req;
    if (umi_proxy_post(task) != UMX_OK) {
        umi_proxy_task_free(task);
        return UMX_OK;
    }
    proxy->is_closing = true;
    *req_p            = req;
    return UMX_INPROGRESS;
}

void
umx_proxy_query(const umx_proxy *proxy, umx_proxy_stats *stats)
{
    stats->rings   = __atomic_load_n(&proxy->stats.rings, __ATOMIC_RELAXED);
    stats->regions = __atomic_load_n(&proxy->stats.regions, __ATOMIC_RELAXED);
    stats->sleeps  = __atomic_load_n(&proxy->stats.sleeps, __ATOMIC_RELAXED);
    stats->wakeups = __atomic_load_n(&proxy->stats.wakeups, __ATOMIC_RELAXED);
}

umx_joint *
umx_proxy_joint(umx_proxy *proxy)
{
    return &proxy->joint;
}

const char *
umx_proxy_reason(const umx_proxy *proxy)
{
    return umx_joint_reason(&proxy->joint);
}
