/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/latency.h"

#include <pthread.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/histogram.h"
#include "util/list.h"
#include "util/trace.h"

enum {
    MAX_NAMES = 64 /* a power of two; more are not counted */
};

typedef struct named {
    const char    *name; /* NULL: free */
    umx_histogram *histogram;
} named;

struct umi_latency {
    umi_node node; /* self.all */
    uint64_t worker;
    uint64_t ns_per_tick; /* times 2^32 */
    named    entries[MAX_NAMES];
};

static struct {
    pthread_mutex_t lock;
    umi_list        all;
} self = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .all  = {&self.all, &self.all},
};

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

/* What the parent has measured is its own, and leaked like its workers. */
static void
after_fork_in_child(void)
{
    umi_list_init(&self.all);
    pthread_mutex_unlock(&self.lock);
}

static void
init_once(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent,
                         after_fork_in_child);
}

umi_latency *
umi_latency_new(uint64_t worker)
{
    static pthread_once_t once    = PTHREAD_ONCE_INIT;
    umi_latency          *latency = calloc(1, sizeof(*latency));

    (void)pthread_once(&once, init_once);
    if (latency == NULL) {
        return NULL;
    }
    latency->worker      = worker;
    latency->ns_per_tick = (uint64_t)(1e9 * 4294967296.0 /
                                      (double)umi_ticks_from_ns(1000000000));
    pthread_mutex_lock(&self.lock);
    umi_list_append(&self.all, &latency->node);
    pthread_mutex_unlock(&self.lock);
    return latency;
}

void
umi_latency_free(umi_latency *latency)
{
    if (latency == NULL) {
        return;
    }
    pthread_mutex_lock(&self.lock);
    umi_node_remove(&latency->node);
    pthread_mutex_unlock(&self.lock);
    for (int i = 0; i < MAX_NAMES; i++) {
        free(latency->entries[i].histogram);
    }
    free(latency);
}

static umx_histogram *
new_histogram(named *entry, const char *name)
{
    umx_histogram *histogram = malloc(sizeof(*histogram));

    if (histogram == NULL) {
        return NULL;
    }
    umx_histogram_init(histogram);
    entry->histogram = histogram;
    __atomic_store_n(&entry->name, name, __ATOMIC_RELEASE);
    return histogram;
}

/* Find the histogram of a name, by its address: names are static. */
static inline umx_histogram *
find(umi_latency *latency, const char *name)
{
    unsigned hash = (unsigned)((uintptr_t)name * 0x9e3779b1u >> 16);

    for (unsigned i = 0; i < MAX_NAMES; i++) {
        named *entry = &latency->entries[(hash + i) % MAX_NAMES];

        if (entry->name == name) {
            return entry->histogram;
        }
        if (entry->name == NULL) {
            return new_histogram(entry, name);
        }
    }
    return NULL;
}

void
umi_latency_record(umi_latency *latency, const char *name, uint64_t ticks)
{
    umx_histogram *histogram = find(latency, name);

    if (histogram != NULL) {
        umi_histogram_add(
            histogram,
            (uint64_t)((unsigned __int128)ticks * latency->ns_per_tick >> 32));
    }
}

void
umx_latency_enable(bool is_on)
{
    umi_observed_set(UMI_OBSERVED_LATENCY, is_on);
}

bool
umx_latency_is_enabled(void)
{
    return (umi_observed & UMI_OBSERVED_LATENCY) != 0;
}

void
umx_latency_each(umx_latency_fn fn, void *arg)
{
    pthread_mutex_lock(&self.lock);
    UMI_LIST_FOREACH(node, &self.all) {
        umi_latency *latency = umi_container_of(node, umi_latency, node);

        for (int i = 0; i < MAX_NAMES; i++) {
            const named *entry = &latency->entries[i];
            const char  *name = __atomic_load_n(&entry->name, __ATOMIC_ACQUIRE);

            if (name != NULL) {
                fn(latency->worker, name, entry->histogram, arg);
            }
        }
    }
    pthread_mutex_unlock(&self.lock);
}
