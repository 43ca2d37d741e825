/* SPDX-License-Identifier: BSD-3-Clause */
/* request_wait.c: waiting for a request: poll for a while, then sleep. */
#include <umx/progress.h>
#include <umx/request.h>

#include "util/clock.h"
#include "worker/request.h"
#include "worker/worker.h"

static bool
is_in_callback(const umx_worker *worker)
{
    UMI_GUARD(worker); /* not the thread's call */
    return worker->is_inside;
}

umx_status
umx_request_wait(umx_request *req, uint64_t timeout_ns)
{
    uint64_t   now      = umi_clock_ns();
    uint64_t   deadline = (timeout_ns > UINT64_MAX - now) ? UINT64_MAX :
                                                            now + timeout_ns;
    umx_status status;

    if (req == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (umi_worker_check(req->worker) == UMX_OK &&
        !is_in_callback(req->worker)) {
        (void)umx_worker_spin(req->worker, &req->is_done);
    }
    while (!req->is_done) {
        now    = umi_clock_ns();
        status = umx_worker_wait(req->worker,
                                 deadline > now ? deadline - now : 0);
        if (status != UMX_OK && status != UMX_ERR_TIMED_OUT) {
            return status;
        }
        if (!req->is_done && umi_clock_ns() >= deadline) {
            return UMX_ERR_TIMED_OUT;
        }
    }
    return umx_request_status(req);
}
