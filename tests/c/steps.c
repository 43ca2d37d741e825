/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "steps.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

enum {
    DELAY_ROUNDS = 20,
    MAX_EPS      = 1024
};

static bool         is_counting;
static unsigned     taken, fault_at;
static int          fault;
static bool         has_happened;
static ucp_worker_h delayed;
static unsigned     rounds_left;

/* The workers of endpoints: the last that were made. */
static struct {
    ucp_ep_h     ep;
    ucp_worker_h worker;
} eps[MAX_EPS];
static unsigned num_eps;

void
steps_begin(unsigned at, int what)
{
    taken        = 0;
    fault_at     = at;
    fault        = what;
    has_happened = false;
    rounds_left  = 0;
    is_counting  = true;
}

unsigned
steps_end(void)
{
    is_counting = false;
    rounds_left = 0;
    return taken;
}

bool
steps_reached(void)
{
    return fault_at != 0 && taken >= fault_at;
}

bool
steps_happened(void)
{
    return has_happened;
}

/* UCX's function: the next one of that name, or that of the library, which a
 * program may have loaded for itself. */
static void *
find(const char *name)
{
    void *address = dlsym(RTLD_NEXT, name);

    if (address == NULL) {
        void *library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);

        address = (library == NULL) ? NULL : dlsym(library, name);
    }
    if (address == NULL) {
        fprintf(stderr, "steps: %s\n", dlerror());
        abort();
    }
    return address;
}

#define REAL(name)                                        \
    static __typeof__(&name) call;                        \
    if (call == NULL) {                                   \
        call = (__typeof__(&name))(uintptr_t)find(#name); \
    }

static ucp_worker_h
worker_of(ucp_ep_h ep)
{
    for (unsigned i = num_eps; i-- > 0 && num_eps - i <= MAX_EPS;) {
        if (eps[i % MAX_EPS].ep == ep) {
            return eps[i % MAX_EPS].worker;
        }
    }
    return NULL;
}

/* Count a step. True if it is to fail. */
static bool
step(ucp_worker_h worker, bool may_fail)
{
    if (!is_counting ||
        __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED) != fault_at) {
        return false;
    }
    if (fault == STEPS_DELAY && worker != NULL) {
        has_happened = true;
        delayed      = worker;
        rounds_left  = DELAY_ROUNDS;
    }
    if (fault == STEPS_FAIL && may_fail) {
        has_happened = true;
        return true;
    }
    return false;
}

/* ---- operations ----------------------------------------------------------
 */

#define POST(name, worker, args, ...)                 \
    ucs_status_ptr_t name args                        \
    {                                                 \
        REAL(name)                                    \
        if (step(worker, true)) {                     \
            return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY); \
        }                                             \
        return call(__VA_ARGS__);                     \
    }

POST(ucp_tag_send_nbx, worker_of(ep),
     (ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
      const ucp_request_param_t *param),
     ep, buffer, count, tag, param)
POST(ucp_tag_send_sync_nbx, worker_of(ep),
     (ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
      const ucp_request_param_t *param),
     ep, buffer, count, tag, param)
POST(ucp_tag_recv_nbx, worker,
     (ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
      ucp_tag_t mask, const ucp_request_param_t *param),
     worker, buffer, count, tag, mask, param)
POST(ucp_tag_msg_recv_nbx, worker,
     (ucp_worker_h worker, void *buffer, size_t count,
      ucp_tag_message_h message, const ucp_request_param_t *param),
     worker, buffer, count, message, param)
POST(ucp_stream_send_nbx, worker_of(ep),
     (ucp_ep_h ep, const void *buffer, size_t count,
      const ucp_request_param_t *param),
     ep, buffer, count, param)
POST(ucp_stream_recv_nbx, worker_of(ep),
     (ucp_ep_h ep, void *buffer, size_t count, size_t *length,
      const ucp_request_param_t *param),
     ep, buffer, count, length, param)
POST(ucp_am_send_nbx, worker_of(ep),
     (ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
      const void *buffer, size_t count, const ucp_request_param_t *param),
     ep, id, header, header_length, buffer, count, param)
POST(ucp_am_recv_data_nbx, worker,
     (ucp_worker_h worker, void *data_desc, void *buffer, size_t count,
      const ucp_request_param_t *param),
     worker, data_desc, buffer, count, param)
POST(ucp_put_nbx, worker_of(ep),
     (ucp_ep_h ep, const void *buffer, size_t count, uint64_t remote_addr,
      ucp_rkey_h rkey, const ucp_request_param_t *param),
     ep, buffer, count, remote_addr, rkey, param)
POST(ucp_get_nbx, worker_of(ep),
     (ucp_ep_h ep, void *buffer, size_t count, uint64_t remote_addr,
      ucp_rkey_h rkey, const ucp_request_param_t *param),
     ep, buffer, count, remote_addr, rkey, param)
POST(ucp_ep_flush_nbx, worker_of(ep),
     (ucp_ep_h ep, const ucp_request_param_t *param), ep, param)

/* ---- objects -------------------------------------------------------------
 */

ucs_status_t
ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params,
              ucp_ep_h *ep_p)
{
    ucs_status_t status;

    REAL(ucp_ep_create)
    if (step(worker, true)) {
        return UCS_ERR_NO_MEMORY;
    }
    status = call(worker, params, ep_p);
    if (status == UCS_OK) {
        eps[num_eps % MAX_EPS].ep       = *ep_p;
        eps[num_eps++ % MAX_EPS].worker = worker;
    }
    return status;
}

ucs_status_t
ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
            ucp_mem_h *memh_p)
{
    REAL(ucp_mem_map)
    return step(NULL, true) ? UCS_ERR_NO_MEMORY : call(context, params, memh_p);
}

ucs_status_t
ucp_ep_rkey_unpack(ucp_ep_h ep, const void *rkey_buffer, ucp_rkey_h *rkey_p)
{
    REAL(ucp_ep_rkey_unpack)
    return step(worker_of(ep), true) ? UCS_ERR_NO_MEMORY :
                                       call(ep, rkey_buffer, rkey_p);
}

/* ---- progress ------------------------------------------------------------
 */

static bool
is_delayed(ucp_worker_h worker)
{
    return rounds_left > 0 && worker == delayed;
}

unsigned
ucp_worker_progress(ucp_worker_h worker)
{
    unsigned count;

    REAL(ucp_worker_progress)
    if (is_delayed(worker)) {
        rounds_left--;
        return 0;
    }
    count = call(worker);
    if (count > 0) {
        (void)step(worker, false);
    }
    return count;
}

ucs_status_t
ucp_worker_arm(ucp_worker_h worker)
{
    REAL(ucp_worker_arm)
    return is_delayed(worker) ? UCS_ERR_BUSY : call(worker);
}
