/* SPDX-License-Identifier: BSD-3-Clause */
/* window.c: parts of this rank's files that ranks of other hosts read.
 *
 * A rank cannot have the owner of a file map it by a one-sided operation, so it
 * asks by a message. What is mapped for it is lent, until it says that it has
 * read it, or the lease is over. A window that nobody has stays mapped until
 * there is no room for another; who asks while there is no room waits. */
#include "outputs/window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outputs/post.h"
#include "util/clock.h"
#include "util/count.h"
#include "util/hash.h"
#include "util/refcnt.h"
#include "util/slots.h"

enum {
    WINDOW   = 256 << 20,
    RETRY_NS = 2000000 /* while somebody waits for room */
};

#define LEASE_NS UINT64_C(60000000000)

/* Bytes that are mapped; they go when the last transfer has ended, in any
 * thread. */
typedef struct umi_outputs_mapped {
    atomic_size_t   bytes;
    umi_shared_refs refs;
} umi_outputs_mapped;

typedef struct umi_outputs_window {
    umi_node  node; /* windows->all, the one that was used longest ago first */
    uint64_t  id;
    uint32_t  map;
    uint64_t  epoch;
    uint64_t  offset; /* in the file */
    uint64_t  len;
    umx_memh *memh;
    unsigned  num_leases;
    uint64_t  end_ns; /* of the leases */
} umi_outputs_window;

/* Who waits for room. */
typedef struct umi_outputs_waiting {
    umi_node            node; /* windows->waiting */
    umi_outputs_message ask;
} umi_outputs_waiting;

struct umi_outputs_windows {
    umx_outputs        *outputs;
    uint64_t            size;
    uint64_t            max_mapped;
    uint64_t            lease_ns;
    umi_list            all;
    umi_slots           ids;
    umi_list            waiting;
    umx_timer           timer;
    bool                is_over;
    umi_outputs_mapped *mapped;
    size_t              most;
};

/* ---- memory --------------------------------------------------------------
 */

static void
mapped_put(umi_outputs_mapped *mapped)
{
    if (umi_shared_refs_put(&mapped->refs)) {
        free(mapped);
    }
}

/* An extent that was lent to a registered memory, and whose bytes are counted.
 */
typedef struct umi_outputs_lent {
    umi_outputs_extent *extent;
    umi_outputs_mapped *mapped;
    size_t              len;
} umi_outputs_lent;

static void
on_free(void *arg)
{
    umi_outputs_lent *lent = arg;

    umi_outputs_extent_put(lent->extent);
    atomic_fetch_sub_explicit(&lent->mapped->bytes, lent->len,
                              memory_order_relaxed);
    mapped_put(lent->mapped);
    free(lent);
}

/* Register a part of a file that is mapped, which is taken over. */
static umx_status
register_part(umi_outputs_windows *windows, umi_outputs_extent *extent,
              umi_outputs_window *window)
{
    umx_context *context = umx_worker_get_context(
        windows->outputs->joint.worker);
    umi_outputs_lent *lent   = malloc(sizeof(*lent));
    umx_memh_params   params = {.field_mask = UMX_MEMH_FIELD_FLAGS |
                                              UMX_MEMH_FIELD_ON_FREE,
                                .flags   = UMX_MEMH_FLAG_READONLY,
                                .on_free = on_free,
                                .arg     = lent};
    umx_buffer        buf;
    umx_status        status = UMX_ERR_NO_MEMORY;
    size_t            mapped;

    buf = umx_host_buffer(extent->data + (window->offset - extent->offset),
                          (size_t)window->len);
    if (lent != NULL) {
        *lent  = (umi_outputs_lent){.extent = extent,
                                    .mapped = windows->mapped,
                                    .len    = (size_t)window->len};
        status = umx_memh_register(context, &buf, &params, &window->memh);
    }
    if (status != UMX_OK) {
        umi_outputs_extent_put(extent);
        free(lent);
        return status;
    }
    umi_shared_refs_get(&windows->mapped->refs);
    mapped = atomic_fetch_add_explicit(&windows->mapped->bytes, lent->len,
                                       memory_order_relaxed) +
             lent->len;
    if (mapped > windows->most) {
        windows->most = mapped;
    }
    return UMX_OK;
}

static umx_status
map_part(umi_outputs_windows *windows, const umi_outputs_output *output,
         umi_outputs_window *window)
{
    umi_outputs_file_id id = {.device   = output->device,
                              .inode    = output->inode,
                              .mtime_ns = output->mtime_ns,
                              .len      = output->len};
    umi_outputs_extent *extent;
    int                 error;
    int fd = umi_outputs_file_open(output->path, strlen(output->path), &id,
                                   &error);

    if (fd < 0) {
        return (error == ESTALE) ? UMX_ERR_IO_ERROR : UMX_ERR_NO_ELEM;
    }
    extent = umi_outputs_extent_map(fd, window->offset, (size_t)window->len,
                                    &error);
    (void)close(fd);
    return (extent == NULL) ? UMX_ERR_NO_MEMORY :
                              register_part(windows, extent, window);
}

/* ---- windows -------------------------------------------------------------
 */

static void
close_window(umi_outputs_windows *windows, umi_outputs_window *window)
{
    umi_slots_remove(&windows->ids, window->id);
    umi_node_remove(&window->node);
    umx_memh_release(window->memh);
    free(window);
}

static umi_outputs_window *
find_window(umi_outputs_windows *windows, const umi_outputs_message *ask)
{
    UMI_LIST_FOREACH(node, &windows->all) {
        umi_outputs_window *window = umi_container_of(node, umi_outputs_window,
                                                      node);

        if (window->map == ask->map && window->epoch == ask->epoch &&
            ask->offset >= window->offset &&
            ask->offset - window->offset < window->len) {
            return window;
        }
    }
    return NULL;
}

/* Unmap windows that nobody has until there is room. False: there is not yet.
 */
static bool
make_room(umi_outputs_windows *windows, uint64_t len)
{
    UMI_LIST_FOREACH_SAFE(node, &windows->all) {
        umi_outputs_window *window = umi_container_of(node, umi_outputs_window,
                                                      node);

        if (atomic_load_explicit(&windows->mapped->bytes,
                                 memory_order_relaxed) +
                len <=
            windows->max_mapped) {
            break;
        }
        if (window->num_leases == 0) {
            close_window(windows, window);
        }
    }
    return atomic_load_explicit(&windows->mapped->bytes, memory_order_relaxed) +
               len <=
           windows->max_mapped;
}

/* Map the window with the byte that is asked for. UMX_INPROGRESS: there is no
 * room. */
static umx_status
open_window(umi_outputs_windows *windows, const umi_outputs_output *output,
            uint64_t offset, umi_outputs_window **window_p)
{
    uint64_t            start = offset - offset % windows->size;
    uint64_t            len   = output->len - start;
    umi_outputs_window *window;
    umx_status          status;
    uint32_t            nonce;

    len = (len < windows->size) ? len : windows->size;
    if (!make_room(windows, len)) {
        return UMX_INPROGRESS;
    }
    window = calloc(1, sizeof(*window));
    if (window == NULL || !umi_random_bytes(&nonce, sizeof(nonce))) {
        free(window);
        return UMX_ERR_NO_MEMORY;
    }
    window->map    = output->map;
    window->epoch  = output->epoch;
    window->offset = start;
    window->len    = len;
    status         = map_part(windows, output, window);
    if (status != UMX_OK) {
        free(window);
        return status;
    }
    umi_list_append(&windows->all, &window->node);
    window->id = umi_slots_add(&windows->ids, window, nonce);
    if (window->id == 0) {
        close_window(windows, window);
        return UMX_ERR_NO_MEMORY;
    }
    *window_p = window;
    return UMX_OK;
}

/* ---- asks ----------------------------------------------------------------
 */

static void
answer(umi_outputs_windows *windows, const umi_outputs_message *ask,
       umx_status status, umi_outputs_window *window)
{
    umx_outputs        *outputs = windows->outputs;
    umi_outputs_message message = {.kind   = UMI_OUTPUTS_ANSWER,
                                   .to     = ask->from,
                                   .seq    = ask->seq,
                                   .status = status};
    int                 rank    = umi_outputs_rank_of(outputs, ask->from);
    const void         *key     = NULL;
    size_t              len     = 0;

    if (rank < 0) {
        return;
    }
    if (window != NULL) {
        message.window = window->id;
        message.offset = window->offset;
        message.len    = window->len;
        key            = umx_memh_key(window->memh, &len);
        window->num_leases++;
        window->end_ns = umi_clock_ns() + windows->lease_ns;
        umi_node_remove(&window->node);
        umi_list_append(&windows->all, &window->node);
    }
    if (umi_outputs_send(outputs, rank, &message, key, len) != UMX_OK &&
        window != NULL) {
        UMI_DECREMENT(window->num_leases); /* nobody has it */
    }
}

/* Answer somebody who asks. False: there is no room. */
static bool
serve(umi_outputs_windows *windows, const umi_outputs_message *ask)
{
    const umi_outputs_output *output = umi_outputs_find_own(
        windows->outputs, ask->map, ask->epoch);
    umi_outputs_window *window;
    umx_status          status = UMX_OK;

    if (output == NULL || output->path == NULL) {
        answer(windows, ask, UMX_ERR_STALE_KEY, NULL);
        return true;
    }
    if (ask->offset >= output->len) {
        answer(windows, ask, UMX_ERR_OUT_OF_RANGE, NULL);
        return true;
    }
    window = find_window(windows, ask);
    if (window == NULL) {
        status = open_window(windows, output, ask->offset, &window);
        if (status == UMX_INPROGRESS) {
            return false;
        }
    }
    answer(windows, ask, status, window);
    return true;
}

static void
serve_waiting(umi_outputs_windows *windows)
{
    while (!umi_list_is_empty(&windows->waiting)) {
        umi_outputs_waiting *waiting = umi_container_of(
            windows->waiting.next, umi_outputs_waiting, node);

        if (!serve(windows, &waiting->ask)) {
            return;
        }
        umi_node_remove(&waiting->node);
        free(waiting);
    }
}

/* End leases that are over. Returns when the next one is. */
static uint64_t
end_leases(umi_outputs_windows *windows, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    UMI_LIST_FOREACH_SAFE(node, &windows->all) {
        umi_outputs_window *window = umi_container_of(node, umi_outputs_window,
                                                      node);

        if (window->num_leases == 0) {
            continue;
        }
        if (window->end_ns <= now) {
            close_window(windows, window);
        } else if (window->end_ns < next) {
            next = window->end_ns;
        }
    }
    return next;
}

static void
on_timer(umx_timer *timer)
{
    umi_outputs_windows *windows = umi_container_of(timer, umi_outputs_windows,
                                                    timer);
    uint64_t             now     = umi_clock_ns();
    uint64_t             next    = end_leases(windows, now);

    serve_waiting(windows);
    if (!umi_list_is_empty(&windows->waiting)) {
        umx_timer_start(windows->outputs->joint.worker, timer, RETRY_NS);
    } else if (next != UINT64_MAX) {
        umx_timer_start(windows->outputs->joint.worker, timer, next - now);
    }
}

void
umi_outputs_on_ask(umx_outputs *outputs, const umi_outputs_message *message)
{
    umi_outputs_windows *windows = outputs->windows;
    umi_outputs_waiting *waiting;

    if (windows->is_over) {
        answer(windows, message, UMX_ERR_STALE_KEY, NULL);
        return;
    }
    if (umi_list_is_empty(&windows->waiting) && serve(windows, message)) {
        umx_timer_start(outputs->joint.worker, &windows->timer,
                        windows->lease_ns);
        return;
    }
    waiting = malloc(sizeof(*waiting));
    if (waiting == NULL) {
        answer(windows, message, UMX_ERR_NO_MEMORY, NULL);
        return;
    }
    umi_node_init(&waiting->node);
    waiting->ask = *message;
    umi_list_append(&windows->waiting, &waiting->node);
    umx_timer_start(outputs->joint.worker, &windows->timer, RETRY_NS);
}

void
umi_outputs_on_return(umx_outputs *outputs, const umi_outputs_message *message)
{
    umi_outputs_windows *windows = outputs->windows;
    umi_outputs_window  *window = umi_slots_get(&windows->ids, message->window);

    if (window != NULL && window->num_leases != 0) {
        UMI_DECREMENT(window->num_leases);
        serve_waiting(windows);
    }
}

/* ---- life ----------------------------------------------------------------
 */

umx_status
umi_outputs_windows_new(umx_outputs *outputs, const umx_outputs_params *params,
                        umi_outputs_windows **windows_p)
{
    umi_outputs_windows *windows = calloc(1, sizeof(*windows));
    umi_outputs_mapped  *mapped  = calloc(1, sizeof(*mapped));
    uint64_t             fields  = params->field_mask;

    if (windows == NULL || mapped == NULL) {
        free(windows);
        free(mapped);
        return UMX_ERR_NO_MEMORY;
    }
    umi_shared_refs_init(&mapped->refs);
    windows->mapped     = mapped;
    windows->outputs    = outputs;
    windows->size       = ((fields & UMX_OUTPUTS_FIELD_WINDOW) != 0) ?
                              params->window :
                              WINDOW;
    windows->max_mapped = ((fields & UMX_OUTPUTS_FIELD_MAPPED) != 0) ?
                              params->max_mapped :
                              4 * windows->size;
    windows->lease_ns   = ((fields & UMX_OUTPUTS_FIELD_LEASE) != 0) ?
                              params->lease_ns :
                              LEASE_NS;
    umi_list_init(&windows->all);
    umi_list_init(&windows->waiting);
    umi_slots_init(&windows->ids);
    umx_timer_init(&windows->timer, on_timer);
    *windows_p = windows;
    return (windows->max_mapped < windows->size) ? UMX_ERR_INVALID_PARAM :
                                                   UMX_OK;
}

void
umi_outputs_windows_end(umi_outputs_windows *windows)
{
    umi_node *node;

    if (windows == NULL || windows->is_over) {
        return;
    }
    windows->is_over = true;
    umx_timer_stop(&windows->timer);
    UMI_LIST_FOREACH_SAFE(each, &windows->all) {
        close_window(windows, umi_container_of(each, umi_outputs_window, node));
    }
    while ((node = umi_list_pop(&windows->waiting)) != NULL) {
        umi_outputs_waiting *waiting = umi_container_of(
            node, umi_outputs_waiting, node);

        answer(windows, &waiting->ask, UMX_ERR_STALE_KEY, NULL);
        free(waiting);
    }
}

void
umi_outputs_windows_free(umi_outputs_windows *windows)
{
    if (windows == NULL) {
        return;
    }
    umi_outputs_windows_end(windows);
    umi_slots_fini(&windows->ids);
    mapped_put(windows->mapped);
    free(windows);
}

void
umi_outputs_windows_query(umi_outputs_windows *windows, size_t *now_p,
                          size_t *most_p)
{
    *now_p  = atomic_load_explicit(&windows->mapped->bytes,
                                   memory_order_relaxed);
    *most_p = windows->most;
}

uint64_t
umi_outputs_window_size(const umx_outputs *outputs)
{
    return outputs->windows->size;
}
