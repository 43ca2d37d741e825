/* SPDX-License-Identifier: BSD-3-Clause */
/* bootstrap.c: how the processes of a group meet.
 *
 *   root                                 each other process
 *   listens                              connects, again until somebody listens
 *                     <---- HELLO ----   rank, size, name, worker address
 *   has it all?       --- PENDING --->   who is missing, for its own error
 *   yes               ---- TABLE ---->   its rank, all addresses: made
 *   no, for a reason  --- REFUSE ---->   the reason: failed
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/socket.h>

#include "comm/communicator.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/hash.h"

#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS UINT64_C(1000000000)

enum {
    RETRY_MIN_MS      = 5,
    RETRY_MAX_MS      = 250,
    MIN_HEARTBEAT_MS  = 10,
    GRACE_MS          = 500, /* the root says more than the others know */
    MAX_PENDING_RANKS = 64,  /* that PENDING names */
    TEXT_MAX          = 160
};

/* A connection on the root. */
typedef struct umi_comm_guest {
    umi_node node; /* bootstrap->guests, in the order of their HELLOs */
    umi_comm_bootstrap *bootstrap;
    umx_ep             *ep;
    int                 rank; /* UMX_RANK_ANY: the root assigns it */
    bool                has_hello;
    void               *address;
    size_t              address_len;
} umi_comm_guest;

struct umi_comm_bootstrap {
    umi_comm_group *group;
    umx_comm       *comm; /* held */
    umx_request    *req;
    uint64_t        timeout_ns;
    uint64_t        deadline_ns;
    umx_timer       timer;
    /* on the root */
    umx_listener *listener; /* NULL: guests use the worker's address */
    umi_list      guests;
    int           num_guests; /* with a HELLO */
    /* elsewhere */
    umx_ep                 *ep; /* to the root */
    umx_timer               retry;
    unsigned                retry_ms;
    struct sockaddr_storage addr;
    size_t                  addr_len;
    void                   *root; /* address; NULL: `addr` */
    size_t                  root_len;
    char                    missing[TEXT_MAX]; /* ranks, as the root says */
    char                    last_error[TEXT_MAX];
};

static bool
is_root(const umi_comm_bootstrap *bootstrap)
{
    return bootstrap->group->rank == 0;
}

/* ---- the end -------------------------------------------------------------
 */

static void
free_guest(umi_comm_guest *guest)
{
    umi_node_remove(&guest->node);
    if (guest->ep != NULL) {
        umx_layer_ep_set_on_state(guest->ep, NULL, NULL);
        umx_ep_destroy(guest->ep);
    }
    free(guest->address);
    free(guest);
}

/* The endpoints that the group has taken over are NULL. */
static void
free_bootstrap(umi_comm_bootstrap *bootstrap)
{
    umx_comm *comm = bootstrap->comm;

    bootstrap->group->bootstrap = NULL;
    umx_timer_stop(&bootstrap->timer);
    umx_timer_stop(&bootstrap->retry);
    if (bootstrap->listener != NULL) {
        umx_listener_destroy(bootstrap->listener);
    }
    while (!umi_list_is_empty(&bootstrap->guests)) {
        free_guest(
            umi_container_of(bootstrap->guests.next, umi_comm_guest, node));
    }
    if (bootstrap->ep != NULL) {
        umx_layer_ep_set_on_state(bootstrap->ep, NULL, NULL);
        umx_ep_destroy(bootstrap->ep);
    }
    free(bootstrap->root);
    free(bootstrap);
    umi_comm_put(comm);
}

static void
end(umi_comm_bootstrap *bootstrap, umx_status status)
{
    umx_request *req = bootstrap->req;

    bootstrap->req = NULL;
    free_bootstrap(bootstrap);
    if (req != NULL) {
        umx_request_complete(req, status);
    }
}

/* The endpoint that the group had taken over; NULL: it has ended. */
static umx_ep *
take_back(umi_comm_member *member)
{
    umx_ep *ep = member->out;

    member->out    = NULL;
    member->mine   = NULL;
    member->theirs = NULL;
    return ep;
}

static void __attribute__((format(printf, 3, 4)))
fail(umi_comm_bootstrap *bootstrap, umx_status status, const char *format, ...)
{
    umi_comm_header header = {.kind = UMI_COMM_REFUSE};
    char            text[UMI_COMM_REASON_MAX];
    va_list         args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    header.number = (uint64_t)(int64_t)status;
    UMI_LIST_FOREACH(node, &bootstrap->guests) {
        umi_comm_guest *guest = umi_container_of(node, umi_comm_guest, node);

        if (guest->ep == NULL) {
            guest->ep = take_back(&bootstrap->group->members[guest->rank]);
        }
        if (guest->has_hello && guest->ep != NULL) {
            (void)umi_comm_send_control(bootstrap->group->dispatch, guest->ep,
                                        &header, text, strlen(text));
        }
    }
    umi_comm_revoke(bootstrap->comm, -1, status, true, "%s", text);
    end(bootstrap, status);
}

void
umi_comm_bootstrap_cancel(umi_comm_group *group, umx_status status)
{
    fail(group->bootstrap, status, "the communicator was given up by rank %d",
         group->rank);
}

/* ---- the root ------------------------------------------------------------
 */

static umi_comm_guest *
guest_with_rank(const umi_comm_bootstrap *bootstrap, int rank)
{
    UMI_LIST_FOREACH(node, &bootstrap->guests) {
        umi_comm_guest *guest = umi_container_of(node, umi_comm_guest, node);

        if (guest->has_hello && guest->rank == rank) {
            return guest;
        }
    }
    return NULL;
}

/* "2, 3, 7" */
static unsigned
write_missing(const umi_comm_bootstrap *bootstrap, uint32_t *ranks,
              unsigned max)
{
    unsigned count = 0;

    for (int rank = 1; rank < bootstrap->group->size && count < max; rank++) {
        if (guest_with_rank(bootstrap, rank) == NULL) {
            ranks[count++] = (uint32_t)rank;
        }
    }
    return count;
}

static void
name_ranks(char *text, size_t size, const uint32_t *ranks, unsigned count,
           unsigned total)
{
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < count && used + 24 < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%u",
                                 (i == 0) ? "" : ", ", ranks[i]);
    }
    if (count < total) {
        (void)snprintf(text + used, size - used, " and others");
    }
}

/* Tell those who have come whom they wait for. */
static void
send_pending(umi_comm_bootstrap *bootstrap)
{
    umi_comm_header header = {.kind = UMI_COMM_PENDING};
    uint32_t        ranks[1 + MAX_PENDING_RANKS];
    unsigned count = write_missing(bootstrap, ranks + 1, MAX_PENDING_RANKS);

    ranks[0] = (uint32_t)(bootstrap->group->size - 1 - bootstrap->num_guests);
    UMI_LIST_FOREACH(node, &bootstrap->guests) {
        umi_comm_guest *guest = umi_container_of(node, umi_comm_guest, node);

        if (guest->has_hello) {
            (void)umi_comm_send_control(bootstrap->group->dispatch, guest->ep,
                                        &header, ranks,
                                        (1 + count) * sizeof(*ranks));
        }
    }
}

/* Ranks for those that have none, in the order in which they came. */
static void
assign_ranks(umi_comm_bootstrap *bootstrap)
{
    int next = 1;

    UMI_LIST_FOREACH(node, &bootstrap->guests) {
        umi_comm_guest *guest = umi_container_of(node, umi_comm_guest, node);

        if (!guest->has_hello || guest->rank != UMX_RANK_ANY) {
            continue;
        }
        while (guest_with_rank(bootstrap, next) != NULL) {
            next++;
        }
        guest->rank = next;
    }
}

/* The endpoints become the group's. */
static bool
take_guests(umi_comm_bootstrap *bootstrap)
{
    umi_comm_group *group = bootstrap->group;

    UMI_LIST_FOREACH(node, &bootstrap->guests) {
        umi_comm_guest *guest = umi_container_of(node, umi_comm_guest, node);

        if (!guest->has_hello) {
            continue;
        }
        if (!umi_comm_member_set_address(&group->members[guest->rank],
                                         guest->address, guest->address_len)) {
            return false;
        }
        umi_comm_member_add_ep(&group->members[guest->rank], guest->ep, false);
        guest->ep = NULL;
    }
    return true;
}

static bool
send_table(umi_comm_bootstrap *bootstrap)
{
    umi_comm_group *group  = bootstrap->group;
    umi_comm_header header = {.kind = UMI_COMM_TABLE, .comm = group->id};
    size_t          size   = 8;
    uint8_t        *table;
    umi_writer      w;
    bool            is_ok = true;

    for (int i = 0; i < group->size; i++) {
        size += 2 + group->members[i].address_len;
    }
    table = malloc(size);
    if (table == NULL) {
        return false;
    }
    umi_writer_init(&w, table + 4, size - 4);
    umi_write_u32(&w, (uint32_t)group->size);
    for (int i = 0; i < group->size; i++) {
        umi_write_u16(&w, (uint16_t)group->members[i].address_len);
        umi_write_bytes(&w, group->members[i].address,
                        group->members[i].address_len);
    }
    for (int i = 1; i < group->size; i++) {
        uint32_t rank = (uint32_t)i;

        memcpy(table, &rank, sizeof(rank));
        is_ok = is_ok &&
                umi_comm_send_control(group->dispatch, group->members[i].out,
                                      &header, table, size);
    }
    free(table);
    return is_ok;
}

/* The world's ranks are the group's. */
static umx_status
make_world(umi_comm_bootstrap *bootstrap)
{
    umi_comm_group   *group = bootstrap->group;
    umi_comm_member **all   = malloc((size_t)group->size * sizeof(*all));

    if (all == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (int i = 0; i < group->size; i++) {
        all[i] = &group->members[i];
    }
    umi_comm_set_ranks(bootstrap->comm, group->id, group->rank, group->size,
                       all);
    free(all);
    umi_comm_group_start(group);
    umi_comm_register(bootstrap->comm);
    return UMX_OK;
}

static umx_status
set_own_address(umi_comm_bootstrap *bootstrap)
{
    umi_comm_group *group = bootstrap->group;
    const void     *address;
    size_t          len;
    umx_status      status = umx_worker_get_address(group->dispatch->worker,
                                                    &address, &len);

    if (status != UMX_OK) {
        return status;
    }
    return umi_comm_member_set_address(&group->members[group->rank], address,
                                       len) ?
               UMX_OK :
               UMX_ERR_NO_MEMORY;
}

/* All have come. */
static void
finish_root(umi_comm_bootstrap *bootstrap)
{
    umi_comm_group *group = bootstrap->group;
    umx_status      status;

    assign_ranks(bootstrap);
    do {
        if (!umi_random_bytes(&group->id, sizeof(group->id))) {
            fail(bootstrap, UMX_ERR_IO_ERROR,
                 "the system gives no random numbers");
            return;
        }
    } while (group->id == 0);
    status = set_own_address(bootstrap);
    if (status == UMX_OK) {
        status = (take_guests(bootstrap) && send_table(bootstrap)) ?
                     make_world(bootstrap) :
                     UMX_ERR_NO_MEMORY;
    }
    if (status != UMX_OK) {
        fail(bootstrap, status, "the root: %s", umx_status_string(status));
        return;
    }
    end(bootstrap, UMX_OK);
}

static void
on_guest_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    umi_comm_guest     *guest     = arg;
    umi_comm_bootstrap *bootstrap = guest->bootstrap;

    (void)ep;
    (void)status;
    if (state == UMX_EP_OPEN && !umx_ep_is_peer_closed(ep)) {
        return;
    }
    if (guest->has_hello) {
        bootstrap->num_guests--; /* its place is free again */
    }
    free_guest(guest);
}

static umi_comm_guest *
add_guest(umi_comm_bootstrap *bootstrap, umx_ep *ep)
{
    umi_comm_guest *guest = calloc(1, sizeof(*guest));

    if (guest != NULL) {
        guest->bootstrap = bootstrap;
        guest->ep        = ep;
        umi_list_append(&bootstrap->guests, &guest->node);
        umx_layer_ep_set_on_state(ep, on_guest_state, guest);
    }
    return guest;
}

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    umi_comm_bootstrap *bootstrap = arg;

    (void)listener;
    if (add_guest(bootstrap, ep) == NULL) {
        umx_ep_destroy(ep);
    } else {
        umi_comm_dispatch_adopt(
            bootstrap->group->dispatch); /* the progress thread is earlier */
    }
}

static void
refuse(umi_comm_dispatch *dispatch, umx_ep *ep, umx_status status,
       const char *text)
{
    umi_comm_header header = {.kind   = UMI_COMM_REFUSE,
                              .number = (uint64_t)(int64_t)status};

    (void)umi_comm_send_control(dispatch, ep, &header, text, strlen(text));
}

/* Is another rank on the worker `id`? */
static bool
is_rank_on_worker(const umi_comm_bootstrap *bootstrap, const uint8_t *id)
{
    uint8_t     other[UMX_WORKER_ID_SIZE];
    const void *address;
    size_t      len;

    if (umx_worker_get_address(bootstrap->group->dispatch->worker, &address,
                               &len) == UMX_OK &&
        umx_address_worker_id(address, len, other) &&
        memcmp(id, other, sizeof(other)) == 0) {
        return true;
    }
    UMI_LIST_FOREACH(node, &bootstrap->guests) {
        const umi_comm_guest *guest = umi_container_of(node, umi_comm_guest,
                                                       node);

        if (guest->has_hello &&
            umx_address_worker_id(guest->address, guest->address_len, other) &&
            memcmp(id, other, sizeof(other)) == 0) {
            return true;
        }
    }
    return false;
}

/* What is wrong with it; false: nothing is. */
static bool
check_hello(const umi_comm_bootstrap *bootstrap, const umi_comm_hello *hello,
            umx_ep *ep, char *text, size_t size)
{
    int     ranks = bootstrap->group->size;
    uint8_t id[UMX_WORKER_ID_SIZE], proved[UMX_WORKER_ID_SIZE];

    if (hello->size != (uint32_t)ranks) {
        (void)snprintf(text, size,
                       "rank %d says that there are %u ranks, the root %d",
                       hello->rank, hello->size, ranks);
    } else if (hello->rank < UMX_RANK_ANY || hello->rank >= ranks) {
        (void)snprintf(text, size, "rank %d is not one of %d ranks",
                       hello->rank, ranks);
    } else if (hello->rank == 0 ||
               (hello->rank > 0 &&
                guest_with_rank(bootstrap, hello->rank) != NULL)) {
        (void)snprintf(text, size, "two processes say that they are rank %d",
                       hello->rank);
    } else if (!umx_address_worker_id(hello->address.data, hello->address.len,
                                      id) ||
               !umx_ep_peer_worker_id(ep, proved) ||
               memcmp(id, proved, sizeof(id)) != 0) {
        (void)snprintf(text, size,
                       "rank %d sent an address that is not its own",
                       hello->rank);
    } else if (is_rank_on_worker(bootstrap, id)) {
        (void)snprintf(text, size, "two ranks are on one worker");
    } else {
        return false;
    }
    return true;
}

static void
take_hello(umi_comm_guest *guest, const umi_comm_hello *hello)
{
    umi_comm_bootstrap *bootstrap = guest->bootstrap;
    char                text[UMI_COMM_REASON_MAX];

    if (check_hello(bootstrap, hello, guest->ep, text, sizeof(text))) {
        refuse(bootstrap->group->dispatch, guest->ep, UMX_ERR_REJECTED, text);
        fail(bootstrap, UMX_ERR_REJECTED, "%s", text);
        return;
    }
    guest->address = malloc(hello->address.len);
    if (guest->address == NULL) {
        fail(bootstrap, UMX_ERR_NO_MEMORY, "the root: out of memory");
        return;
    }
    memcpy(guest->address, hello->address.data, hello->address.len);
    guest->address_len = hello->address.len;
    guest->rank        = hello->rank;
    guest->has_hello   = true;
    umi_node_remove(&guest->node);
    umi_list_append(&bootstrap->guests, &guest->node);
    if (++bootstrap->num_guests == bootstrap->group->size - 1) {
        finish_root(bootstrap);
    } else {
        send_pending(bootstrap);
    }
}

static bool
has_name(const umi_comm_bootstrap *bootstrap, const umi_comm_text *name)
{
    return strlen(bootstrap->comm->name) == name->len &&
           memcmp(bootstrap->comm->name, name->data, name->len) == 0;
}

/* The guest that has this endpoint. */
static umi_comm_guest *
find_guest(umi_comm_dispatch *dispatch, umx_ep *ep)
{
    UMI_LIST_FOREACH(node, &dispatch->groups) {
        umi_comm_bootstrap *bootstrap =
            umi_container_of(node, umi_comm_group, node)->bootstrap;

        if (bootstrap == NULL) {
            continue;
        }
        UMI_LIST_FOREACH(at, &bootstrap->guests) {
            umi_comm_guest *guest = umi_container_of(at, umi_comm_guest, node);

            if (guest->ep == ep) {
                return guest;
            }
        }
    }
    return NULL;
}

/* A root that waits for ranks of that name at the worker's address. */
static umi_comm_bootstrap *
find_bootstrap(umi_comm_dispatch *dispatch, const umi_comm_text *name)
{
    UMI_LIST_FOREACH(node, &dispatch->groups) {
        umi_comm_bootstrap *bootstrap =
            umi_container_of(node, umi_comm_group, node)->bootstrap;

        if (bootstrap != NULL && is_root(bootstrap) &&
            bootstrap->listener == NULL && has_name(bootstrap, name)) {
            return bootstrap;
        }
    }
    return NULL;
}

bool
umi_comm_bootstrap_on_hello(umi_comm_dispatch *dispatch, umx_ep *ep,
                            umx_message *message)
{
    umi_comm_hello      hello;
    umi_comm_guest     *guest = find_guest(dispatch, ep);
    umi_comm_bootstrap *bootstrap;

    if (!umi_comm_hello_decode(&hello, umx_message_data(message),
                               umx_message_info(message)->length)) {
        umx_message_drop(message);
        return true;
    }
    if (guest == NULL) {
        bootstrap = find_bootstrap(dispatch, &hello.name);
        if (bootstrap == NULL || !umx_ep_claim(ep)) {
            return false;
        }
        guest = add_guest(bootstrap, ep);
        if (guest == NULL) {
            umx_message_drop(message);
            umx_ep_destroy(ep);
            return true;
        }
    }
    if (!has_name(guest->bootstrap, &hello.name)) {
        refuse(dispatch, ep, UMX_ERR_REJECTED,
               "another communicator is being made here");
    } else if (!guest->has_hello) {
        take_hello(guest, &hello);
    }
    umx_message_drop(message);
    return true;
}

/* ---- elsewhere -----------------------------------------------------------
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
        fail(bootstrap, status, "the worker has no address: %s",
             umx_status_string(status));
        return;
    }
    hello.name.data    = (const uint8_t *)bootstrap->comm->name;
    hello.name.len     = strlen(bootstrap->comm->name);
    hello.address.data = address;
    hello.address.len  = len;
    len                = umi_comm_hello_encode(&hello, data, sizeof(data));
    if (!umi_comm_send_control(bootstrap->group->dispatch, bootstrap->ep,
                               &header, data, len)) {
        fail(bootstrap, UMX_ERR_NO_MEMORY, "out of memory");
    }
}

/* Does it help to try again? */
static bool
may_retry(umx_status status)
{
    return status == UMX_ERR_NOT_CONNECTED || status == UMX_ERR_UNREACHABLE ||
           status == UMX_ERR_WORKER_GONE || status == UMX_ERR_TIMED_OUT;
}

static void
on_root_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    umi_comm_bootstrap *bootstrap = arg;

    if (state == UMX_EP_OPEN && !umx_ep_is_peer_closed(ep)) {
        say_hello(bootstrap);
        return;
    }
    if (state != UMX_EP_OPEN && may_retry(status)) {
        (void)snprintf(bootstrap->last_error, sizeof(bootstrap->last_error),
                       "%.*s", TEXT_MAX - 1, umx_ep_reason(ep));
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
    fail(bootstrap, status, "the root, rank 0, has ended: %s",
         (umx_ep_reason(ep)[0] != '\0') ? umx_ep_reason(ep) :
                                          umx_status_string(status));
}

static umx_status
connect_root(umi_comm_bootstrap *bootstrap)
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

static void
on_retry(umx_timer *timer)
{
    umi_comm_bootstrap *bootstrap = umi_container_of(timer, umi_comm_bootstrap,
                                                     retry);
    umx_status          status    = connect_root(bootstrap);

    if (status != UMX_OK) {
        fail(bootstrap, status, "connecting to the root: %s",
             umx_status_string(status));
    }
}

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
        fail(bootstrap, UMX_ERR_PROTOCOL,
             "the root's table of ranks is damaged");
        return;
    }
    group->id = header->comm;
    umi_comm_member_add_ep(&group->members[0], bootstrap->ep, true);
    bootstrap->ep = NULL;
    status        = make_world(bootstrap);
    if (status != UMX_OK) {
        bootstrap->ep = take_back(
            &group->members[0]); /* its end tells the root */
        fail(bootstrap, status, "%s", umx_status_string(status));
        return;
    }
    end(bootstrap, UMX_OK);
}

static void
on_pending(umi_comm_bootstrap *bootstrap, const void *data, size_t len)
{
    uint32_t   ranks[MAX_PENDING_RANKS];
    umi_reader r;
    uint32_t   total;
    unsigned   count = 0;

    umi_reader_init(&r, data, len);
    total = umi_read_u32(&r);
    while (count < MAX_PENDING_RANKS && r.pos < r.end) {
        ranks[count++] = umi_read_u32(&r);
    }
    if (!r.is_bad) {
        name_ranks(bootstrap->missing, sizeof(bootstrap->missing), ranks, count,
                   total);
    }
}

bool
umi_comm_bootstrap_on_answer(umi_comm_dispatch *dispatch, umx_ep *ep,
                             const umi_comm_header *header, const void *data,
                             size_t len)
{
    UMI_LIST_FOREACH(node, &dispatch->groups) {
        umi_comm_bootstrap *bootstrap =
            umi_container_of(node, umi_comm_group, node)->bootstrap;

        if (bootstrap == NULL || bootstrap->ep != ep) {
            continue;
        }
        if (header->kind == UMI_COMM_TABLE) {
            on_table(bootstrap, header, data, len);
        } else if (header->kind == UMI_COMM_PENDING) {
            on_pending(bootstrap, data, len);
        } else {
            umx_status status = (umx_status)(int64_t)header->number;

            fail(bootstrap, (status < 0) ? status : UMX_ERR_REJECTED, "%.*s",
                 (int)((len < UMI_COMM_REASON_MAX) ? len :
                                                     UMI_COMM_REASON_MAX - 1),
                 (const char *)data);
        }
        return true;
    }
    return false;
}

/* ---- the beginning -------------------------------------------------------
 */

static void
on_timeout(umx_timer *timer)
{
    umi_comm_bootstrap *bootstrap = umi_container_of(timer, umi_comm_bootstrap,
                                                     timer);
    double   seconds = (double)bootstrap->timeout_ns / (double)SECOND_NS;
    uint32_t ranks[MAX_PENDING_RANKS];
    unsigned count;

    if (is_root(bootstrap)) {
        count = write_missing(bootstrap, ranks, MAX_PENDING_RANKS);
        name_ranks(bootstrap->missing, sizeof(bootstrap->missing), ranks, count,
                   count);
        fail(bootstrap, UMX_ERR_TIMED_OUT,
             "%d of %d ranks have come within %g s; not: %s",
             bootstrap->num_guests + 1, bootstrap->group->size, seconds,
             bootstrap->missing);
    } else if (bootstrap->missing[0] != '\0') {
        fail(bootstrap, UMX_ERR_TIMED_OUT,
             "not all of %d ranks have come within %g s; not: %s",
             bootstrap->group->size, seconds, bootstrap->missing);
    } else {
        fail(bootstrap, UMX_ERR_TIMED_OUT,
             "the root, rank 0, has not answered within %g s%s%s", seconds,
             (bootstrap->last_error[0] != '\0') ? ": " : "",
             bootstrap->last_error);
    }
}

static void
cancel_create(umx_request *req)
{
    umi_comm_bootstrap *bootstrap = *(umi_comm_bootstrap **)umx_request_state(
        req);

    if (bootstrap != NULL) {
        umi_comm_bootstrap_cancel(bootstrap->group, UMX_ERR_CANCELED);
    }
}

static const umx_request_class create_class = {
    .name   = "comm_create",
    .cancel = cancel_create,
};

static umx_status
listen_or_connect(umi_comm_bootstrap *bootstrap, const umx_comm_params *params)
{
    umx_listener_params listen = {.addr      = params->addr,
                                  .addr_len  = params->addr_len,
                                  .on_accept = on_accept,
                                  .arg       = bootstrap};

    if (is_root(bootstrap)) {
        return (params->addr == NULL) ?
                   UMX_OK :
                   umx_listener_create(bootstrap->group->dispatch->worker,
                                       &listen, &bootstrap->listener);
    }
    if (params->addr != NULL) {
        memcpy(&bootstrap->addr, params->addr, params->addr_len);
        bootstrap->addr_len = params->addr_len;
    } else {
        bootstrap->root = malloc(params->root_len);
        if (bootstrap->root == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        memcpy(bootstrap->root, params->root, params->root_len);
        bootstrap->root_len = params->root_len;
    }
    return connect_root(bootstrap);
}

static umx_status
begin(umx_comm *comm, const umx_comm_params *params, const umx_op_params *op,
      umx_request **req_p)
{
    umi_comm_group     *group     = comm->group;
    umx_worker         *worker    = group->dispatch->worker;
    umi_comm_bootstrap *bootstrap = calloc(1, sizeof(*bootstrap));
    umx_status          status;

    if (bootstrap == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    bootstrap->group = group;
    bootstrap->comm  = comm;
    umi_comm_hold(comm);
    umi_list_init(&bootstrap->guests);
    umx_timer_init(&bootstrap->timer, on_timeout);
    umx_timer_init(&bootstrap->retry, on_retry);
    bootstrap->retry_ms   = RETRY_MIN_MS;
    bootstrap->timeout_ns = (params->field_mask & UMX_COMM_FIELD_TIMEOUT) ?
                                params->timeout_ns :
                                60 * SECOND_NS;
    group->bootstrap      = bootstrap;
    bootstrap->req        = umx_request_create(worker, &create_class, op);
    status                = (bootstrap->req == NULL) ? UMX_ERR_NO_MEMORY :
                                                       listen_or_connect(bootstrap, params);
    if (status != UMX_OK) {
        if (bootstrap->req != NULL) {
            umx_request_discard(bootstrap->req);
        }
        free_bootstrap(bootstrap);
        return status;
    }
    *(umi_comm_bootstrap **)umx_request_state(bootstrap->req) = bootstrap;
    *req_p                                                    = bootstrap->req;
    if (bootstrap->timeout_ns != UMX_TIMEOUT_INFINITE) {
        umx_timer_start(
            worker, &bootstrap->timer,
            bootstrap->timeout_ns +
                (is_root(bootstrap) ? 0 : GRACE_MS * MILLISECOND_NS));
    }
    umi_comm_dispatch_adopt(group->dispatch); /* HELLOs that came before */
    return UMX_INPROGRESS;
}

static umx_status
check_params(const umx_comm_params *params)
{
    size_t      len;
    const char *why;

    if (params->size < 1 || params->size > UMX_COMM_SIZE_MAX ||
        params->rank < UMX_RANK_ANY || params->rank >= params->size) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if ((params->field_mask & UMX_COMM_FIELD_NAME) &&
        (params->name == NULL || strlen(params->name) > UMX_COMM_NAME_MAX)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (params->size == 1) {
        return UMX_OK;
    }
    if (params->addr != NULL) {
        return (params->addr_len <= sizeof(struct sockaddr_storage)) ?
                   UMX_OK :
                   UMX_ERR_INVALID_PARAM;
    }
    if (params->rank == 0) {
        return UMX_OK;
    }
    return (params->root == NULL) ?
               UMX_ERR_INVALID_PARAM :
               umx_address_check(params->root, params->root_len, &len, &why);
}

static umx_status
begin_alone(umx_comm *comm)
{
    umi_comm_bootstrap bootstrap = {.group = comm->group, .comm = comm};

    comm->group->rank = 0;
    return umi_random_bytes(&comm->group->id, sizeof(comm->group->id)) ?
               make_world(&bootstrap) :
               UMX_ERR_IO_ERROR;
}

umx_status
umx_comm_create(umx_worker *worker, const umx_comm_params *params,
                const umx_op_params *op, umx_comm **comm_p, umx_request **req_p)
{
    __attribute__((cleanup(umi_comm_unlock), unused))
    umx_guard *const   guard  = umx_worker_lock(worker);
    umx_status         status = check_params(params);
    umi_comm_dispatch *dispatch;
    umi_comm_group    *group;
    umx_comm          *comm = NULL;

    if (status != UMX_OK) {
        return status;
    }
    if (!umx_worker_is_owner(worker)) {
        return UMX_ERR_WRONG_THREAD;
    }
    dispatch = umi_comm_dispatch_get(worker);
    if (dispatch == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    group = umi_comm_group_new(dispatch, params->rank, params->size);
    if (group != NULL) {
        group->heartbeat_ns = (params->field_mask & UMX_COMM_FIELD_HEARTBEAT) ?
                                  params->heartbeat_ns :
                                  10 * SECOND_NS;
        if (group->heartbeat_ns != 0 &&
            group->heartbeat_ns < MIN_HEARTBEAT_MS * MILLISECOND_NS) {
            group->heartbeat_ns = MIN_HEARTBEAT_MS * MILLISECOND_NS;
        }
        comm = umi_comm_new(group, (params->field_mask & UMX_COMM_FIELD_NAME) ?
                                       params->name :
                                       "");
        umi_comm_group_put(group);
    }
    umi_comm_dispatch_put(dispatch);
    if (comm == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = (params->size == 1) ? begin_alone(comm) :
                                   begin(comm, params, op, req_p);
    if (status < 0) {
        umi_comm_put(comm);
        return status;
    }
    *comm_p = comm;
    return status;
}

int
umx_comm_num_arrived(const umx_comm *comm)
{
    UMI_COMM_LOCK(comm);
    const umi_comm_bootstrap *bootstrap = comm->group->bootstrap;

    if (comm->ranks != NULL) {
        return comm->size;
    }
    return (bootstrap != NULL && is_root(bootstrap)) ?
               bootstrap->num_guests + 1 :
               1;
}
