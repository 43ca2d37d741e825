/* SPDX-License-Identifier: BSD-3-Clause */
/* bootstrap_join.c: the other ranks, which connect to rank 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "comm/dispatch.h"
#include "comm/member.h"
#include "util/bytes.h"

#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS UINT64_C(1000000000)

enum {
    RETRY_MAX_MS = 250
};

/* ---- connecting ----------------------------------------------------------
 */

static void
say_hello(umi_comm_bootstrap *bootstrap)
{
    umi_comm_header header = {.kind = UMI_COMM_HELLO};
    umi_comm_hello  hello  = {.rank = bootstrap->group->rank,
                              .size = (uint32_t)bootstrap->group->size};
    uint8_t         data[64 + UMX_COMM_NAME_MAX + 1024];
    const void     *address;
    size_t          len;
    umx_status      status = umx_worker_get_address(
             bootstrap->group->dispatch->worker, &address, &len);

    if (status != UMX_OK) {
        umi_comm_bootstrap_fail(bootstrap, status,
                                "the worker has no address: %s",
                                umx_status_string(status));
        return;
    }
    hello.name.data    = (const uint8_t *)bootstrap->comm->name;
    hello.name.len     = strlen(bootstrap->comm->name);
    hello.address.data = address;
    hello.address.len  = len;
    len                = umi_comm_hello_encode(&hello, data, sizeof(data));
    if (umi_comm_send_control(bootstrap->group->dispatch, bootstrap->ep,
                              &header, data, len) != UMX_OK) {
        umi_comm_bootstrap_fail(bootstrap, UMX_ERR_NO_MEMORY, "out of memory");
    }
}

/* True if no transport leads to the root, which has answered: that does not
 * change by itself. Where nobody has answered, the system's error says why. */
static bool
has_no_transport(const umx_ep *ep, umx_status status)
{
    return status == UMX_ERR_UNREACHABLE && umx_ep_errno(ep) == 0;
}

/* Does it help to connect again after `status`? */
static bool
may_retry(const umx_ep *ep, umx_status status)
{
    return (status == UMX_ERR_UNREACHABLE && !has_no_transport(ep, status)) ||
           status == UMX_ERR_NOT_CONNECTED || status == UMX_ERR_WORKER_GONE ||
           status == UMX_ERR_TIMED_OUT;
}

static void
on_root_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    umi_comm_bootstrap *bootstrap = arg;

    if (state == UMX_EP_OPEN && !umx_ep_is_peer_closed(ep)) {
        say_hello(bootstrap);
        return;
    }
    if (state != UMX_EP_OPEN && may_retry(ep, status)) {
        (void)snprintf(bootstrap->last_error, sizeof(bootstrap->last_error),
                       "%.*s", UMI_COMM_RANKS_TEXT_MAX - 1, umx_ep_reason(ep));
        umx_layer_ep_set_on_state(ep, NULL, NULL);
        umx_ep_destroy(ep);
        bootstrap->ep = NULL;
        umx_timer_start(bootstrap->group->dispatch->worker, &bootstrap->retry,
                        bootstrap->retry_ms * MILLISECOND_NS);
        bootstrap->retry_ms = (bootstrap->retry_ms < RETRY_MAX_MS / 2) ?
                                  bootstrap->retry_ms * 2 :
                                  RETRY_MAX_MS;
        return;
    }
    if (state == UMX_EP_OPEN || status == UMX_OK) {
        status = UMX_ERR_PEER_CLOSED;
    }
    umi_comm_bootstrap_fail(
        bootstrap, status, "the root, rank 0, %s: %s",
        has_no_transport(ep, status) ? "cannot be reached" : "has ended",
        (umx_ep_reason(ep)[0] != '\0') ? umx_ep_reason(ep) :
                                         umx_status_string(status));
}

umx_status
umi_comm_bootstrap_connect(umi_comm_bootstrap *bootstrap)
{
    umx_connect_params params = {
        .field_mask = UMX_CONNECT_FIELD_TIMEOUT,
        .addr       = (const struct sockaddr *)&bootstrap->addr,
        .addr_len   = bootstrap->addr_len,
        .timeout_ns = SECOND_NS * 5,
    };
    umx_worker *worker = bootstrap->group->dispatch->worker;
    umx_status  status = (bootstrap->root != NULL) ?
                             umx_ep_connect_address(worker, bootstrap->root,
                                                    bootstrap->root_len, &params,
                                                    &bootstrap->ep) :
                             umx_ep_connect(worker, &params, &bootstrap->ep);

    if (status == UMX_OK) {
        umx_layer_ep_set_on_state(bootstrap->ep, on_root_state, bootstrap);
    }
    return status;
}

void
umi_comm_bootstrap_on_retry(umx_timer *timer)
{
    umi_comm_bootstrap *bootstrap = umi_container_of(timer, umi_comm_bootstrap,
                                                     retry);
    umx_status          status    = umi_comm_bootstrap_connect(bootstrap);

    if (status != UMX_OK) {
        umi_comm_bootstrap_fail(bootstrap, status, "connecting to the root: %s",
                                umx_status_string(status));
    }
}

/* ---- answers of the root -------------------------------------------------
 */

static bool
read_table(umi_comm_bootstrap *bootstrap, umi_reader *r)
{
    umi_comm_group *group = bootstrap->group;
    uint32_t        rank  = umi_read_u32(r);
    uint32_t        size  = umi_read_u32(r);

    if (r->is_bad || size != (uint32_t)group->size || rank == 0 ||
        rank >= size ||
        (group->rank != UMX_RANK_ANY && (uint32_t)group->rank != rank)) {
        return false;
    }
    for (uint32_t i = 0; i < size; i++) {
        size_t         len     = umi_read_u16(r);
        const uint8_t *address = umi_read_bytes(r, len);

        if (address == NULL ||
            !umi_comm_member_set_address(&group->members[i], address, len)) {
            return false;
        }
    }
    group->rank = (int)rank;
    return r->pos == r->end;
}

static void
on_table(umi_comm_bootstrap *bootstrap, const umi_comm_header *header,
         const void *data, size_t len)
{
    umi_comm_group *group = bootstrap->group;
    umi_reader      r;
    umx_status      status;

    umi_reader_init(&r, data, len);
    if (header->comm == 0 || !read_table(bootstrap, &r)) {
        umi_comm_bootstrap_fail(bootstrap, UMX_ERR_PROTOCOL,
                                "the root's table of ranks is damaged");
        return;
    }
    group->id = header->comm;
    umi_comm_member_add_ep(&group->members[0], bootstrap->ep, true);
    bootstrap->ep = NULL;
    status        = umi_comm_bootstrap_make_world(bootstrap);
    if (status != UMX_OK) {
        bootstrap->ep = umi_comm_bootstrap_take_back(
            &group->members[0]); /* its end tells the root */
        umi_comm_bootstrap_fail(bootstrap, status, "%s",
                                umx_status_string(status));
        return;
    }
    umi_comm_bootstrap_end(bootstrap, UMX_OK);
}

static void
on_pending(umi_comm_bootstrap *bootstrap, const void *data, size_t len)
{
    uint32_t   ranks[UMI_COMM_PENDING_MAX];
    umi_reader r;
    uint32_t   total;
    unsigned   count = 0;

    umi_reader_init(&r, data, len);
    total = umi_read_u32(&r);
    while (count < UMI_COMM_PENDING_MAX && r.pos < r.end) {
        ranks[count++] = umi_read_u32(&r);
    }
    if (!r.is_bad) {
        umi_comm_bootstrap_name_ranks(bootstrap->missing,
                                      sizeof(bootstrap->missing), ranks, count,
                                      total);
    }
}

static umi_comm_bootstrap *
find_by_ep(const umi_comm_dispatch *dispatch, const umx_ep *ep)
{
    UMI_LIST_FOREACH(node, &dispatch->groups) {
        umi_comm_bootstrap *bootstrap =
            umi_container_of(node, umi_comm_group, node)->bootstrap;

        if (bootstrap != NULL && bootstrap->ep == ep) {
            return bootstrap;
        }
    }
    return NULL;
}

bool
umi_comm_bootstrap_on_answer(umi_comm_dispatch *dispatch, umx_ep *ep,
                             const umi_comm_header *header, const void *data,
                             size_t len)
{
    umi_comm_bootstrap *bootstrap = find_by_ep(dispatch, ep);

    if (bootstrap == NULL) {
        return false;
    }
    if (header->kind == UMI_COMM_TABLE) {
        on_table(bootstrap, header, data, len);
    } else if (header->kind == UMI_COMM_PENDING) {
        on_pending(bootstrap, data, len);
    } else {
        umx_status status = (umx_status)(int64_t)header->number;

        umi_comm_bootstrap_fail(
            bootstrap, (status < 0) ? status : UMX_ERR_REJECTED, "%.*s",
            (int)((len < UMI_COMM_REASON_MAX) ? len : UMI_COMM_REASON_MAX - 1),
            (const char *)data);
    }
    return true;
}
