/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/trace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NS_PER_SECOND 1000000000u

enum {
    MAX_EVENTS = 1 << 26
};

/* One moment, by the clocks that there are. */
typedef struct moment {
    uint64_t ticks;
    uint64_t ns; /* CLOCK_MONOTONIC */
    uint64_t realtime_ns;
} moment;

unsigned        umi_observed;
umi_trace_ring *umi_trace_current;

enum {
    MAX_RINGS = 27 /* one of each power of two up to MAX_EVENTS */
};

static struct {
    pthread_mutex_t lock;
    umi_trace_ring
          *rings[MAX_RINGS]; /* by the binary logarithm of their size */
    bool   is_on;
    bool   has_ended;
    moment begin, end;
    double ns_per_tick;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
umi_observed_set(unsigned what, bool is_on)
{
    if (is_on) {
        __atomic_fetch_or(&umi_observed, what, __ATOMIC_RELEASE);
    } else {
        __atomic_fetch_and(&umi_observed, ~what, __ATOMIC_RELEASE);
    }
}

static moment
now(void)
{
    struct timespec ts;
    moment          it;

    clock_gettime(CLOCK_REALTIME, &ts);
    it.realtime_ns = (uint64_t)ts.tv_sec * NS_PER_SECOND + (uint64_t)ts.tv_nsec;
    it.ns          = umi_clock_ns();
    it.ticks       = umi_ticks();
    return it;
}

/* ---- rings ---------------------------------------------------------------
 */

static size_t
size_of(const umi_trace_ring *ring)
{
    return (ring->mask + 1) * sizeof(*ring->events);
}

/* The addresses stay, and read as zeros: a slow thread may still write there.
 */
static void
give_back(const umi_trace_ring *ring)
{
    (void)madvise(ring->events, size_of(ring), MADV_DONTNEED);
}

/* Have the memory there before the first event. */
static void
fill(umi_trace_ring *ring)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(ring->events, size_of(ring), MADV_POPULATE_WRITE) == 0) {
        return;
    }
#endif
    memset(ring->events, 0, size_of(ring));
}

static umi_trace_ring *
new_ring(size_t size)
{
    umi_trace_ring *ring = calloc(1, sizeof(*ring));
    void           *memory;

    if (ring == NULL) {
        return NULL;
    }
    ring->mask = size - 1;
    memory     = mmap(NULL, size_of(ring), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        free(ring);
        return NULL;
    }
    ring->events = memory;
    return ring;
}

/* Find the ring for so many events: there is one of each size, for good. */
static umi_trace_ring *
get_ring(size_t num_events)
{
    unsigned i = 0;

    while ((size_t)1 << i < num_events) {
        i++;
    }
    if (self.rings[i] == NULL) {
        self.rings[i] = new_ring((size_t)1 << i);
    }
    return self.rings[i];
}

/* ---- fork() --------------------------------------------------------------
 */

static void
before_fork(void)
{
    pthread_mutex_lock(&self.lock);
}

static void
after_fork_in_parent(void)
{
    pthread_mutex_unlock(&self.lock);
}

/* The trace is the parent's. */
static void
after_fork_in_child(void)
{
    umi_observed_set(UMI_OBSERVED_TRACE, false);
    self.is_on     = false;
    self.has_ended = false;
    pthread_mutex_unlock(&self.lock);
}

static void
init_once(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent,
                         after_fork_in_child);
}

/* ---- the calls -----------------------------------------------------------
 */

static umx_status
start(size_t num_events)
{
    const umi_trace_ring *before = umi_trace_current;
    umi_trace_ring       *ring;

    if (self.is_on) {
        return UMX_ERR_BUSY;
    }
    ring = get_ring(num_events);
    if (ring == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (before != NULL) {
        give_back(before);
    }
    fill(ring);
    __atomic_store_n(&ring->head, 0, __ATOMIC_RELAXED);
    (void)umi_ticks_from_ns(1); /* calibrates */
    __atomic_store_n(&umi_trace_current, ring, __ATOMIC_RELEASE);
    self.begin     = now();
    self.is_on     = true;
    self.has_ended = false;
    umi_observed_set(UMI_OBSERVED_TRACE, true);
    return UMX_OK;
}

umx_status
umx_trace_start(size_t num_events)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    umx_status            status;

    if (num_events == 0 || num_events > MAX_EVENTS) {
        return UMX_ERR_INVALID_PARAM;
    }
    (void)pthread_once(&once, init_once);
    pthread_mutex_lock(&self.lock);
    status = start(num_events);
    pthread_mutex_unlock(&self.lock);
    return status;
}

/* Compute the length of a tick: over the whole trace, unless that was short. */
static double
measure_tick(void)
{
    uint64_t ns    = self.end.ns - self.begin.ns;
    uint64_t ticks = self.end.ticks - self.begin.ticks;

    return (ns < NS_PER_SECOND / 10 || ticks == 0) ?
               1e6 / (double)umi_ticks_from_ns(1000000) :
               (double)ns / (double)ticks;
}

void
umx_trace_stop(void)
{
    pthread_mutex_lock(&self.lock);
    if (self.is_on) {
        umi_observed_set(UMI_OBSERVED_TRACE, false);
        self.end         = now();
        self.is_on       = false;
        self.has_ended   = true;
        self.ns_per_tick = measure_tick();
    }
    pthread_mutex_unlock(&self.lock);
}

void
umx_trace_release(void)
{
    pthread_mutex_lock(&self.lock);
    if (self.has_ended) {
        self.has_ended = false;
        give_back(umi_trace_current);
    }
    pthread_mutex_unlock(&self.lock);
}

static void
query(umx_trace_info *info)
{
    uint64_t head, size;

    *info = (umx_trace_info){0};
    if (!self.has_ended) {
        return;
    }
    head = __atomic_load_n(&umi_trace_current->head, __ATOMIC_RELAXED);
    size = umi_trace_current->mask + 1;

    info->num_events  = (head < size) ? head : size;
    info->num_dropped = head - info->num_events;
    info->begin_ns    = self.begin.ns;
    info->end_ns      = self.end.ns;
    info->realtime_ns = self.begin.realtime_ns;
}

void
umx_trace_query(umx_trace_info *info)
{
    pthread_mutex_lock(&self.lock);
    query(info);
    pthread_mutex_unlock(&self.lock);
}

/* Translate ticks; those from before the trace are its begin. */
static uint64_t
ns_of(uint64_t ticks)
{
    int64_t  since = (int64_t)(ticks - self.begin.ticks);
    uint64_t ns;

    if (since <= 0) {
        return self.begin.ns;
    }
    ns = self.begin.ns + (uint64_t)((double)since * self.ns_per_tick);
    return (ns < self.end.ns) ? ns : self.end.ns;
}

static void
read_event(const umx_trace_event *from, umx_trace_event *to)
{
    uint8_t kind = __atomic_load_n(&from->kind, __ATOMIC_ACQUIRE);

    *to          = *from;
    to->kind     = kind;
    to->time_ns  = ns_of(from->time_ns);
    to->begin_ns = ns_of(from->begin_ns);
}

size_t
umx_trace_read(umx_trace_event *events, size_t first, size_t max)
{
    umx_trace_info info;
    size_t         n = 0;

    pthread_mutex_lock(&self.lock);
    query(&info);
    for (; n < max && first + n < info.num_events; n++) {
        uint64_t place = info.num_dropped + first + n;

        read_event(&umi_trace_current->events[place & umi_trace_current->mask],
                   &events[n]);
    }
    pthread_mutex_unlock(&self.lock);
    return n;
}
