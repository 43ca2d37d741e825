/* SPDX-License-Identifier: BSD-3-Clause */
/* bootstrap_root.c: rank 0, to which the other processes come. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "comm/dispatch.h"
#include "comm/member.h"
#include "util/bytes.h"
#include "util/count.h"
#include "util/hash.h"

/* A connection of another process to the root. */
typedef struct umi_comm_guest {
    umi_node node; /* bootstrap->guests, in the order of their HELLOs */
    umi_comm_bootstrap *bootstrap;
    umx_ep             *ep;
    int                 rank; /* UMX_RANK_ANY: the root assigns it */
    bool                has_hello;
    void               *address;
    size_t              address_len;
} umi_comm_guest;

/* ---- guests --------------------------------------------------------------
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

static void
refuse(umi_comm_dispatch *dispatch, umx_ep *ep, umx_status status,
       const char *text)
{
    umi_comm_header header = {.kind   = UMI_COMM_REFUSE,
                              .number = (uint64_t)(int64_t)status};

    (void)umi_comm_send_control(dispatch, ep, &header, text, strlen(text));
}

void
umi_comm_bootstrap_free_guests(umi_comm_bootstrap *bootstrap)
{
    while (!umi_list_is_empty(&bootstrap->guests)) {
        free_guest(
            umi_container_of(bootstrap->guests.next, umi_comm_guest, node));
    }
}

void
umi_comm_bootstrap_refuse_guests(umi_comm_bootstrap *bootstrap,
                                 umx_status status, const char *text)
{
    size_t    left = umi_list_count(&bootstrap->guests);
    umi_node *node;

    while ((node = umi_list_turn(&bootstrap->guests, &left)) != NULL) {
        umi_comm_guest *guest = umi_container_of(node, umi_comm_guest, node);

        if (guest->ep == NULL) {
            guest->ep = umi_comm_bootstrap_take_back(
                &bootstrap->group->members[guest->rank]);
        }
        if (guest->has_hello && guest->ep != NULL) {
            refuse(bootstrap->group->dispatch, guest->ep, status, text);
        }
    }
}

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

unsigned
umi_comm_bootstrap_find_missing(const umi_comm_bootstrap *bootstrap,
                                uint32_t *ranks, unsigned max)
{
    unsigned count = 0;

    for (int rank = 1; rank < bootstrap->group->size && count < max; rank++) {
        if (guest_with_rank(bootstrap, rank) == NULL) {
            ranks[count++] = (uint32_t)rank;
        }
    }
    return count;
}

/* Tell the processes that have come which ranks are still missing. */
static void
send_pending(umi_comm_bootstrap *bootstrap)
{
    umi_comm_header header = {.kind = UMI_COMM_PENDING};
    uint32_t        ranks[1 + UMI_COMM_PENDING_MAX];
    unsigned  count = umi_comm_bootstrap_find_missing(bootstrap, ranks + 1,
                                                      UMI_COMM_PENDING_MAX);
    size_t    left  = umi_list_count(&bootstrap->guests);
    umi_node *node;

    ranks[0] = (uint32_t)(bootstrap->group->size - 1 - bootstrap->num_guests);
    while ((node = umi_list_turn(&bootstrap->guests, &left)) != NULL) {
        umi_comm_guest *guest = umi_container_of(node, umi_comm_guest, node);

        if (guest->has_hello) {
            (void)umi_comm_send_control(bootstrap->group->dispatch, guest->ep,
                                        &header, ranks,
                                        (1 + count) * sizeof(*ranks));
        }
    }
}

/* ---- all have come -------------------------------------------------------
 */

/* Give ranks to the processes that asked for any, in the order in which they
 * came. */
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

/* Let the group take the endpoints over. */
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
                                      &header, table, size) == UMX_OK;
    }
    free(table);
    return is_ok;
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

/* The last process has come: make the communicator, and tell all. */
static void
finish_root(umi_comm_bootstrap *bootstrap)
{
    umi_comm_group *group = bootstrap->group;
    umx_status      status;

    assign_ranks(bootstrap);
    do {
        if (!umi_random_bytes(&group->id, sizeof(group->id))) {
            umi_comm_bootstrap_fail(bootstrap, UMX_ERR_IO_ERROR,
                                    "the system gives no random numbers");
            return;
        }
    } while (group->id == 0);
    status = set_own_address(bootstrap);
    if (status == UMX_OK) {
        status = (take_guests(bootstrap) && send_table(bootstrap)) ?
                     umi_comm_bootstrap_make_world(bootstrap) :
                     UMX_ERR_NO_MEMORY;
    }
    if (status != UMX_OK) {
        umi_comm_bootstrap_fail(bootstrap, status, "the root: %s",
                                umx_status_string(status));
        return;
    }
    umi_comm_bootstrap_end(bootstrap, UMX_OK);
}

/* ---- a connection --------------------------------------------------------
 */

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
        UMI_DECREMENT(bootstrap->num_guests); /* its place is free again */
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
move_guest(umi_comm_guest *guest, umi_comm_bootstrap *bootstrap)
{
    umi_node_remove(&guest->node);
    umi_list_append(&bootstrap->guests, &guest->node);
    guest->bootstrap = bootstrap;
}

/* Find a root that waits at that door, or at the worker's address if `door` is
 * NULL; for ranks of a communicator of that name, if one is given. */
static umi_comm_bootstrap *
find_bootstrap(umi_comm_dispatch *dispatch, const umi_comm_door *door,
               const umi_comm_text *name)
{
    UMI_LIST_FOREACH(node, &dispatch->groups) {
        umi_comm_bootstrap *bootstrap =
            umi_container_of(node, umi_comm_group, node)->bootstrap;

        if (bootstrap != NULL && umi_comm_bootstrap_is_root(bootstrap) &&
            bootstrap->door == door &&
            (name == NULL || umi_comm_bootstrap_has_name(bootstrap, name))) {
            return bootstrap;
        }
    }
    return NULL;
}

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    umi_comm_door      *door      = arg;
    umi_comm_bootstrap *bootstrap = find_bootstrap(door->dispatch, door, NULL);

    (void)listener;
    if (bootstrap == NULL || add_guest(bootstrap, ep) == NULL) {
        umx_ep_destroy(ep);
    } else {
        /* A progress thread may have received the guest's first messages. */
        umi_comm_dispatch_adopt(door->dispatch);
    }
}

/* ---- the door ------------------------------------------------------------
 */

static umi_comm_door *
find_door(umi_comm_dispatch *dispatch, const umx_comm_params *params)
{
    UMI_LIST_FOREACH(node, &dispatch->doors) {
        umi_comm_door *door = umi_container_of(node, umi_comm_door, node);

        if (door->addr_len == params->addr_len &&
            memcmp(&door->addr, params->addr, params->addr_len) == 0) {
            return door;
        }
    }
    return NULL;
}

static umx_status
make_door(umi_comm_dispatch *dispatch, const umx_comm_params *params,
          umi_comm_door **door_p)
{
    umi_comm_door      *door   = calloc(1, sizeof(*door));
    umx_listener_params listen = {.addr      = params->addr,
                                  .addr_len  = params->addr_len,
                                  .on_accept = on_accept,
                                  .arg       = door};
    umx_status          status;

    if (door == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_refs_init(&door->refs);
    door->dispatch = dispatch;
    status = umx_listener_create(dispatch->worker, &listen, &door->listener);
    if (status != UMX_OK) {
        free(door);
        return status;
    }
    memcpy(&door->addr, params->addr, params->addr_len);
    door->addr_len = params->addr_len;
    umi_list_append(&dispatch->doors, &door->node);
    *door_p = door;
    return UMX_OK;
}

umx_status
umi_comm_bootstrap_listen(umi_comm_bootstrap    *bootstrap,
                          const umx_comm_params *params)
{
    umi_comm_dispatch *dispatch = bootstrap->group->dispatch;
    umi_comm_text      name     = {(const uint8_t *)bootstrap->comm->name,
                                   strlen(bootstrap->comm->name)};
    umi_comm_door     *door;

    if (params->addr == NULL) {
        return UMX_OK;
    }
    door = find_door(dispatch, params);
    if (door != NULL && find_bootstrap(dispatch, door, &name) != NULL) {
        return UMX_ERR_BUSY;
    }
    if (door == NULL) {
        return make_door(dispatch, params, &bootstrap->door);
    }
    umi_refs_get(&door->refs);
    bootstrap->door = door;
    return UMX_OK;
}

void
umi_comm_bootstrap_leave_door(umi_comm_bootstrap *bootstrap)
{
    umi_comm_door      *door = bootstrap->door;
    umi_comm_bootstrap *heir;

    if (door == NULL) {
        return;
    }
    bootstrap->door = NULL;
    heir            = find_bootstrap(door->dispatch, door, NULL);
    UMI_LIST_FOREACH_SAFE(node, &bootstrap->guests) {
        umi_comm_guest *guest = umi_container_of(node, umi_comm_guest, node);

        if (heir != NULL && !guest->has_hello) {
            move_guest(guest, heir);
        }
    }
    if (umi_refs_put(&door->refs)) {
        umi_node_remove(&door->node);
        umx_listener_destroy(door->listener);
        free(door);
    }
}

/* ---- a HELLO -------------------------------------------------------------
 */

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

/* Check a HELLO. True: `text` says what is wrong with it. */
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
        umi_comm_bootstrap_fail(bootstrap, UMX_ERR_REJECTED, "%s", text);
        return;
    }
    guest->address = malloc(hello->address.len);
    if (guest->address == NULL) {
        umi_comm_bootstrap_fail(bootstrap, UMX_ERR_NO_MEMORY,
                                "the root: out of memory");
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

/* Find the guest that has this endpoint. */
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
        bootstrap = find_bootstrap(dispatch, NULL, &hello.name);
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
    bootstrap = find_bootstrap(dispatch, guest->bootstrap->door, &hello.name);
    if (bootstrap != NULL && !guest->has_hello) {
        move_guest(guest, bootstrap);
    }
    if (!umi_comm_bootstrap_has_name(guest->bootstrap, &hello.name)) {
        refuse(dispatch, ep, UMX_ERR_REJECTED,
               "another communicator is being made here");
    } else if (!guest->has_hello) {
        take_hello(guest, &hello);
    }
    umx_message_drop(message);
    return true;
}
