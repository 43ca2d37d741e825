/* SPDX-License-Identifier: BSD-3-Clause */
/* agree.c: when there is a ring, and between whom. */
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "keys/segment.h"
#include "near/near.h"
#include "util/clock.h"
#include "util/count.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/membarrier.h"

enum {
    MESSAGES = 64, /* within BUSY_NS: then a ring pays */
    SECOND   = 1000000000
};

static const uint64_t busy_ns    = SECOND;
static const uint64_t idle_ns    = SECOND;
static const uint64_t answer_ns  = UINT64_C(2) * SECOND;
static const uint64_t backoff_ns = SECOND; /* behind the first refusal */
static const uint64_t longest_ns = UINT64_C(64) * SECOND;

/* ---- segments ------------------------------------------------------------
 */

/* Ask the system about a segment: one of a ring, which a process of that number
 * and of the worker's user has made? */
static bool
is_made_by(int segment, const umx_worker *worker, uint32_t pid,
           struct shmid_ds *info)
{
    return shmctl(segment, IPC_STAT, info) == 0 &&
           info->shm_perm.uid == worker->user &&
           info->shm_perm.cuid == worker->user &&
           (info->shm_perm.mode & 0777) == 0600 &&
           info->shm_segsz == sizeof(umi_near_ring) &&
           info->shm_cpid == (pid_t)pid;
}

/* The process that has mapped the segment last, and the only one beside this,
 * is that of that number. */
static bool
is_mapped_by(int segment, const umx_worker *worker, uint32_t pid)
{
    struct shmid_ds info;

    return is_made_by(segment, worker, (uint32_t)getpid(), &info) &&
           info.shm_lpid == (pid_t)pid && info.shm_nattch == 2;
}

static void
unmap(umi_near_ring *ring)
{
    (void)shmdt(ring);
}

/* Map a segment that the peer has made for this side. */
static umi_near_ring *
map(const umi_near_link *near, int segment, uint64_t number, uint32_t pid)
{
    const umi_near_introduction *says;
    const umi_link              *link = near->link;
    umi_near_ring               *ring;
    struct shmid_ds              info;

    if (!is_made_by(segment, link->worker, pid, &info)) {
        return NULL;
    }
    ring = shmat(segment, NULL, 0);
    if (ring == (void *)-1) {
        return NULL;
    }
    says = &ring->introduction;
    if (!is_made_by(segment, link->worker, pid, &info) ||
        says->magic != UMI_NEAR_MAGIC || says->ring != number ||
        memcmp(says->writer, link->key, sizeof(says->writer)) != 0 ||
        memcmp(says->reader, link->worker->key, sizeof(says->reader)) != 0) {
        unmap(ring);
        return NULL;
    }
    (void)madvise(ring, sizeof(*ring), MADV_DONTFORK);
    return ring;
}

/* Make a segment for this side to write. */
static umi_near_ring *
make(umi_near_link *near)
{
    const umi_link *link = near->link;
    umi_near_ring  *ring;
    void           *address;

    if (!umi_random_bytes(&near->number, sizeof(near->number)) ||
        near->number == 0 ||
        umi_segment_create_bare(sizeof(*ring), &address, &near->segment) !=
            UMX_OK) {
        return NULL;
    }
    ring = address;
    (void)madvise(ring, sizeof(*ring), MADV_DONTFORK);
    ring->introduction.ring = near->number;
    memcpy(ring->introduction.writer, link->worker->key, UMI_X25519_SIZE);
    memcpy(ring->introduction.reader, link->key, UMI_X25519_SIZE);
    ring->introduction.magic = UMI_NEAR_MAGIC;
    return ring;
}

/* ---- writing -------------------------------------------------------------
 */

static void
count_rings(umx_worker *worker)
{
    worker->has_rings         = worker->near->num_ins != 0;
    worker->stats->near_rings = worker->near->num_ins + worker->near->num_outs;
}

void
umi_near_end_out(umi_near_link *near)
{
    umi_timer_stop(&near->timer);
    umi_timer_stop(&near->wake_timer);
    near->is_open = false;
    near->count   = 0;
    if (near->out != NULL) {
        unmap(near->out->ring);
        free(near->out);
        near->out = NULL;
        UMI_DECREMENT(near->link->worker->near->num_outs);
        count_rings(near->link->worker);
    }
}

/* There is no ring now; ask again, each time later. */
static void
give_up(umi_near_link *near, const char *why)
{
    umi_log(UMI_LOG_DEBUG, "no ring for short messages: %s", why);
    umi_near_end_out(near);
    near->retry_ns   = umi_clock_ns() + near->backoff_ns;
    near->backoff_ns = (near->backoff_ns < longest_ns / 2) ?
                           2 * near->backoff_ns :
                           longest_ns;
}

static void
close_idle(umi_near_link *near)
{
    const umi_ep_base *ep   = umi_near_find_ep(near->link);
    umi_near_note      note = {.kind = UMI_NEAR_CLOSE, .ring = near->number};

    if (ep != NULL && umi_near_tell(ep, note) != UMX_OK) {
        umi_timer_start(near->link->worker, &near->timer, idle_ns);
    } else {
        umi_near_end_out(near);
    }
}

static void
on_timer(umi_timer *timer)
{
    umi_near_link *near = umi_container_of(timer, umi_near_link, timer);

    if (!near->is_open) {
        give_up(near, "the peer does not answer");
    } else if (near->seen_sent != near->out->sent) {
        near->seen_sent = near->out->sent;
        umi_timer_start(near->link->worker, timer, idle_ns);
    } else {
        close_idle(near);
    }
}

void
umi_near_init_out(umi_near_link *near)
{
    near->backoff_ns = backoff_ns;
    umi_timer_init(&near->timer, on_timer);
}

/* Ask the peer to read a ring of ours. */
static void
ask(umi_near_link *near, const umi_ep_base *ep)
{
    umx_worker   *worker = ep->worker;
    umi_near_note note   = {.kind = UMI_NEAR_OPEN, .max = (uint32_t)near->max};

    near->out = calloc(1, sizeof(*near->out));
    if (near->out == NULL) {
        give_up(near, "out of memory");
        return;
    }
    near->out->ring = make(near);
    if (near->out->ring == NULL) {
        free(near->out);
        near->out = NULL;
        give_up(near, "there is no segment");
        return;
    }
    worker->near->num_outs++;
    count_rings(worker);
    note.ring    = near->number;
    note.segment = near->segment;
    if (umi_near_tell(ep, note) == UMX_OK) {
        umi_timer_start(worker, &near->timer, answer_ns);
    } else {
        give_up(near, "the peer cannot be asked");
    }
}

void
umi_near_count(umi_near_link *near, umi_ep_base *ep)
{
    uint64_t now;

    if (near->out != NULL || ++near->count < MESSAGES) {
        return;
    }
    near->count = 0;
    now         = umi_clock_ns();
    if (now - near->since_ns > busy_ns) {
        near->since_ns = now;
        return;
    }
    if (ep->near_pid != 0 && ep->is_bound && near->link->is_proven &&
        !near->link->is_failed && now >= near->retry_ns &&
        ep->worker->near->num_outs < UMI_NEAR_RINGS) {
        ask(near, ep);
    }
}

static void
on_accept(umi_near_link *near, umi_ep_base *ep, const umi_near_note *note)
{
    umi_near_note close = {.kind = UMI_NEAR_CLOSE, .ring = note->ring};

    if (near->out == NULL || near->is_open || note->ring != near->number) {
        /* The answer comes too late: no messages go through that ring. */
        if (near->out == NULL || note->ring != near->number) {
            (void)umi_near_tell(ep, close);
        }
        return;
    }
    if (!is_mapped_by(near->segment, ep->worker, ep->near_pid)) {
        (void)umi_near_tell(ep, close);
        give_up(near, "another process has mapped the segment");
        return;
    }
    near->out->is_ordered = (note->flags & UMI_NEAR_IS_ORDERED) != 0 &&
                            umi_membarrier_register();
    near->is_open    = true;
    near->skip       = 0;
    near->seen_sent  = 0;
    near->backoff_ns = backoff_ns;
    umi_timer_start(ep->worker, &near->timer, idle_ns);
}

static void
on_refuse(umi_near_link *near, const umi_near_note *note)
{
    if (near->out != NULL && !near->is_open && note->ring == near->number) {
        give_up(near, "the peer refuses");
    }
}

/* ---- reading -------------------------------------------------------------
 */

void
umi_near_end_in(umi_near_link *near)
{
    umx_worker *worker = near->link->worker;

    if (near->in == NULL) {
        return;
    }
    unmap(near->in->ring);
    free(near->in);
    near->in = NULL;
    umi_node_remove(&near->node);
    UMI_DECREMENT(worker->near->num_ins);
    count_rings(worker);
}

/* Begin to read the ring that OPEN names. False: it is refused. */
static bool
begin_in(umi_near_link *near, const umi_ep_base *ep, const umi_near_note *note)
{
    umx_worker    *worker = ep->worker;
    umi_near_in   *in;
    umi_near_ring *ring;

    if (ep->near_pid == 0 || !ep->is_bound || !near->link->is_proven ||
        near->link->is_failed || worker->near->num_ins >= UMI_NEAR_RINGS) {
        return false;
    }
    in = calloc(1, sizeof(*in));
    if (in == NULL) {
        return false;
    }
    ring = map(near, note->segment, note->ring, ep->near_pid);
    if (ring == NULL) {
        free(in);
        return false;
    }
    in->ring        = ring;
    in->max         = note->max;
    near->in        = in;
    near->in_number = note->ring;
    umi_list_append(&worker->near->ins, &near->node);
    worker->near->num_ins++;
    count_rings(worker);
    return true;
}

static void
on_open(umi_near_link *near, umi_ep_base *ep, const umi_near_note *note)
{
    umi_near_note answer = {.kind = UMI_NEAR_REFUSE, .ring = note->ring};

    if (near->in != NULL) { /* the peer has given that one up */
        umi_near_take_all(near);
        umi_near_end_in(near);
    }
    if (begin_in(near, ep, note)) {
        answer.kind  = UMI_NEAR_ACCEPT;
        answer.flags = ep->worker->near->is_ordered ? UMI_NEAR_IS_ORDERED : 0;
    }
    /* A peer that does not hear it gives up, and asks again. */
    if (umi_near_tell(ep, answer) != UMX_OK) {
        umi_near_end_in(near);
    }
}

static void
on_close(umi_near_link *near, const umi_near_note *note)
{
    if (near->in != NULL && note->ring == near->in_number) {
        umi_near_take_all(near);
        umi_near_end_in(near);
    }
}

void
umi_near_on_note(umi_ep_base *ep, const umi_near_note *note)
{
    umi_near_link *near = ep->link->near;

    switch ((umi_near_kind)note->kind) {
    case UMI_NEAR_OPEN:
        on_open(near, ep, note);
        break;
    case UMI_NEAR_ACCEPT:
        on_accept(near, ep, note);
        break;
    case UMI_NEAR_REFUSE:
        on_refuse(near, note);
        break;
    case UMI_NEAR_CLOSE:
        on_close(near, note);
        break;
    case UMI_NEAR_WAKE: /* it has woken the worker, which looks */
        break;
    }
}
