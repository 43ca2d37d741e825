/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.c: who waits until commands are over.
 *
 * A quiet has a goal for each ring: a number before which all commands had been
 * written. When a ring has come to the goal it begins no further commands until
 * nothing is under way, so that a quiet ends however much is written after it.
 */
#include "proxy/proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "util/clock.h"

/* ---- in the proxy's thread -----------------------------------------------
 */

void
umi_proxy_free_goals(umi_proxy_task *task)
{
    for (size_t i = 0; i < task->num_goals; i++) {
        umi_proxy_ring_put(task->goals[i].ring);
    }
    free(task->goals);
    task->goals     = NULL;
    task->num_goals = 0;
}

/* Has the ring retired all before `number`? */
static bool
has_come_to(const umx_proxy_ring *ring, umx_ring_u64 number)
{
    return (ring->tail - number) >> 63 == 0;
}

/* UMX_INPROGRESS: it is not over. A goal that has been reached stays so. */
static umx_status
look(umi_proxy_task *task)
{
    umx_status status = UMX_OK;

    for (size_t i = 0; i < task->num_goals; i++) {
        umi_proxy_goal       *goal = &task->goals[i];
        const umx_proxy_ring *ring = goal->ring;

        goal->is_reached |= has_come_to(ring, goal->number) &&
                            !(task->is_quiet &&
                              (ring->in_flight != 0 || ring->is_ended));
        if (!goal->is_reached && ring->is_ended) {
            return ring->error.status;
        }
        if (!goal->is_reached) {
            status = UMX_INPROGRESS;
        }
    }
    return status;
}

/* Hold each ring of a quiet at its nearest goal, and all at their ends. */
static void
hold_rings(umx_proxy *proxy)
{
    for (size_t i = 0; i < proxy->num_rings; i++) {
        umx_proxy_ring *ring = proxy->rings[i];

        ring->has_hold = ring->has_end;
        ring->hold     = ring->end;
    }
    UMI_LIST_FOREACH(node, &proxy->waits) {
        umi_proxy_task *task = umi_container_of(node, umi_proxy_task, node);

        for (size_t i = 0; task->is_quiet && i < task->num_goals; i++) {
            umx_proxy_ring *ring = task->goals[i].ring;
            umx_ring_u64    goal = task->goals[i].number;

            if (task->goals[i].is_reached) {
                continue;
            }
            goal = has_come_to(ring, goal) ? ring->tail : goal;
            if (!ring->has_hold ||
                goal - ring->tail < ring->hold - ring->tail) {
                ring->has_hold = true;
                ring->hold     = goal;
            }
        }
    }
}

void
umi_proxy_look_at_waits(umx_proxy *proxy)
{
    if (umi_list_is_empty(&proxy->waits)) {
        return;
    }
    UMI_LIST_FOREACH_SAFE(node, &proxy->waits) {
        umi_proxy_task *task   = umi_container_of(node, umi_proxy_task, node);
        umx_status      status = look(task);

        if (status != UMX_INPROGRESS) {
            umi_node_remove(&task->node);
            umi_proxy_free_goals(task);
            umi_proxy_end_task(task, status);
        }
    }
    hold_rings(proxy);
}

void
umi_proxy_end_waits(umx_proxy *proxy, umx_status status)
{
    umi_node *node;

    while ((node = umi_list_pop(&proxy->waits)) != NULL) {
        umi_proxy_task *task = umi_container_of(node, umi_proxy_task, node);
        umx_status      own  = look(task);

        umi_proxy_free_goals(task);
        umi_proxy_end_task(task, (own == UMX_INPROGRESS) ? status : own);
    }
}

/* The number after the last command that has been written. */
static umx_ring_u64
find_end(const umx_proxy_ring *ring)
{
    const umx_ring *view   = &ring->view;
    umx_ring_u64    number = ring->tail;

    if ((view->kind & UMX_RING_SEVERAL) != 0) {
        return umx_ring_load_acquire(&view->words->head);
    }
    while (number - ring->tail <= view->mask &&
           (umx_ring_load_acquire(&view->commands[number & view->mask].w1) &
            1) == umx_ring_phase(view, number)) {
        number++;
    }
    return number;
}

void
umi_proxy_note_ends(umx_proxy *proxy)
{
    for (size_t i = 0; i < proxy->num_rings; i++) {
        proxy->rings[i]->end     = find_end(proxy->rings[i]);
        proxy->rings[i]->has_end = true;
    }
    hold_rings(proxy);
}

/* Begin a quiet, whose goals are the ends that its rings have now, or a wait
 * for a command. If `status` says that the proxy has ended, all waits end, too.
 */
static void
begin_wait(umi_proxy_task *task, umx_status status)
{
    umx_proxy *proxy = task->proxy;

    for (size_t i = 0; i < task->num_goals; i++) {
        if (task->is_quiet) {
            task->goals[i].number = find_end(task->goals[i].ring);
        }
    }
    umi_list_append(&proxy->waits, &task->node);
    if (status != UMX_OK) {
        umi_proxy_end_waits(proxy, status);
    } else {
        hold_rings(proxy);
    }
}

/* ---- at home, or in any thread -------------------------------------------
 */

static void
cancel(umx_request *req)
{
    umi_joint_complete(&UMX_REQUEST_OF(req, umi_proxy_task)->req,
                       UMX_ERR_CANCELED);
}

static const umx_request_class wait_class = {.name = "quiet", .cancel = cancel};

/* The status of a ring that has ended; UMX_OK: none has. */
static umx_status
check_rings(umx_proxy_ring *const *rings, size_t count, bool is_quiet)
{
    umx_proxy_error error;

    for (size_t i = 0; i < count; i++) {
        if (umi_proxy_is_forked(rings[i]->proxy)) {
            return UMX_ERR_FORKED;
        }
        if (rings[i]->proxy != rings[0]->proxy) {
            return UMX_ERR_INVALID_PARAM;
        }
    }
    for (size_t i = 0; is_quiet && i < count; i++) {
        if (umx_proxy_ring_get_error(rings[i], &error)) {
            return error.status;
        }
    }
    return UMX_OK;
}

static umi_proxy_task *
new_wait(umx_proxy_ring *const *rings, size_t count,
         const umx_request_class *cls, const umx_op_params *op)
{
    umi_proxy_goal *goals = calloc(count, sizeof(*goals));
    umi_proxy_task *task  = NULL;

    if (goals != NULL) {
        task = umi_proxy_task_new(rings[0]->proxy, begin_wait, cls, op);
    }
    if (task == NULL) {
        free(goals);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        goals[i].ring = rings[i];
        umi_proxy_ring_hold(rings[i]);
    }
    task->goals     = goals;
    task->num_goals = count;
    return task;
}

/* The proxy has ended: how a wait ends that was not begun. */
static umx_status
refused(umi_proxy_task *task)
{
    umx_status status = look(task);

    umi_proxy_free_goals(task);
    umi_proxy_task_free(task);
    return (status == UMX_INPROGRESS) ? UMX_ERR_CLOSED : status;
}

/* `number_p` is NULL for a quiet. */
static umx_status
post_wait(umx_proxy_ring *const *rings, size_t count,
          const umx_ring_u64 *number_p, const umx_op_params *op,
          umx_request **req_p)
{
    umx_proxy *proxy  = rings[0]->proxy;
    umx_status status = check_rings(rings, count, number_p == NULL);
    UMX_LAYER_LOCK((status == UMX_ERR_FORKED) ? NULL : proxy->joint.worker);
    umi_proxy_task *task;
    umx_request    *req;

    if (status != UMX_OK) {
        return status;
    }
    if (proxy->joint.worker == NULL) {
        return UMX_ERR_CLOSED;
    }
    task = new_wait(rings, count, &wait_class, op);
    if (task == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    task->is_quiet = number_p == NULL;
    if (number_p != NULL) {
        task->goals[0].number = *number_p + 1;
    }
    req = task->req;
    if (umi_proxy_post(task) != UMX_OK) {
        return refused(task);
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

umx_status
umx_proxy_quiet(umx_proxy_ring *const *rings, size_t count,
                const umx_op_params *op, umx_request **req_p)
{
    return (count == 0) ? UMX_OK : post_wait(rings, count, NULL, op, req_p);
}

umx_status
umx_proxy_ring_retire(umx_proxy_ring *ring, umx_ring_u64 number,
                      const umx_op_params *op, umx_request **req_p)
{
    return post_wait(&ring, 1, &number, op, req_p);
}

/* ---- blocking ------------------------------------------------------------
 */

static struct timespec
deadline_of(uint64_t timeout_ns)
{
    uint64_t now = umi_clock_ns();
    uint64_t end = (timeout_ns > INT64_MAX - now) ? INT64_MAX :
                                                    now + timeout_ns;

    return (struct timespec){.tv_sec  = (time_t)(end / 1000000000),
                             .tv_nsec = (long)(end % 1000000000)};
}

static void
init_sleeper(umi_proxy_sleeper *sleeper)
{
    pthread_condattr_t attr;

    *sleeper = (umi_proxy_sleeper){.status = UMX_INPROGRESS};
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&sleeper->cond, &attr);
    (void)pthread_condattr_destroy(&attr);
}

/* Wait for a task that has been posted, and that goes on after a timeout. */
static umx_status
sleep_for(umx_proxy *proxy, umi_proxy_task *task, umi_proxy_sleeper *sleeper,
          uint64_t timeout_ns)
{
    struct timespec end   = deadline_of(timeout_ns);
    int             error = 0;

    (void)pthread_mutex_lock(&proxy->lock);
    while (!sleeper->is_over && error != ETIMEDOUT) {
        error = pthread_cond_timedwait(&sleeper->cond, &proxy->lock, &end);
    }
    if (!sleeper->is_over) {
        task->sleeper   = NULL;
        sleeper->status = UMX_ERR_TIMED_OUT;
    }
    (void)pthread_mutex_unlock(&proxy->lock);
    return sleeper->status;
}

static umx_status
block(umx_proxy_ring *const *rings, size_t count, const umx_ring_u64 *number_p,
      uint64_t timeout_ns)
{
    umx_proxy        *proxy  = rings[0]->proxy;
    umx_status        status = check_rings(rings, count, number_p == NULL);
    umi_proxy_task   *task;
    umi_proxy_sleeper sleeper;

    if (status != UMX_OK) {
        return status;
    }
    task = new_wait(rings, count, NULL, NULL);
    if (task == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    task->is_quiet = number_p == NULL;
    if (number_p != NULL) {
        task->goals[0].number = *number_p + 1;
    }
    init_sleeper(&sleeper);
    task->sleeper = &sleeper;
    if (umi_proxy_post(task) == UMX_OK) {
        status = sleep_for(proxy, task, &sleeper, timeout_ns);
    } else {
        status = refused(task);
    }
    (void)pthread_cond_destroy(&sleeper.cond);
    return status;
}

umx_status
umx_proxy_quiet_wait(umx_proxy_ring *const *rings, size_t count,
                     uint64_t timeout_ns)
{
    return (count == 0) ? UMX_OK : block(rings, count, NULL, timeout_ns);
}

umx_status
umx_proxy_ring_wait(umx_proxy_ring *ring, umx_ring_u64 number,
                    uint64_t timeout_ns)
{
    if (umx_ring_is_retired(&ring->view, number)) {
        return UMX_OK;
    }
    return block(&ring, 1, &number, timeout_ns);
}
