/* SPDX-License-Identifier: BSD-3-Clause */
/* process.c: what becomes of proxies at fork() and exit().
 *
 * UCX is not to be in use while the process forks, as a child would find its
 * locks taken, nor once it ends with the process. So a thread gives its mutex
 * `busy` up when it sleeps, and when a fork is due; fork() takes those of all.
 * In the child there is no thread: its proxies are of the parent, and producers
 * that look at `umi_proxy_forks` learn that. */
#include <pthread.h>
#include <stdlib.h>

#include "proxy/proxy.h"

uint32_t    umi_proxy_forks;
atomic_bool umi_proxy_is_forking;

static pthread_mutex_t lock    = PTHREAD_MUTEX_INITIALIZER;
static umi_list        proxies = {&proxies, &proxies};

static umx_proxy *
proxy_of(umi_node *node)
{
    return umi_container_of(node, umx_proxy, process_node);
}

static void
before_fork(void)
{
    (void)pthread_mutex_lock(&lock);
    atomic_store(&umi_proxy_is_forking, true);
    UMI_LIST_FOREACH(node, &proxies) {
        (void)pthread_mutex_lock(&proxy_of(node)->busy);
        (void)pthread_mutex_lock(&proxy_of(node)->lock);
    }
}

static void
give_back(void)
{
    atomic_store(&umi_proxy_is_forking, false);
    UMI_LIST_FOREACH(node, &proxies) {
        (void)pthread_mutex_unlock(&proxy_of(node)->lock);
        (void)pthread_mutex_unlock(&proxy_of(node)->busy);
    }
}

static void
in_parent(void)
{
    give_back();
    (void)pthread_mutex_unlock(&lock);
}

static void
in_child(void)
{
    give_back();
    umi_list_init(&proxies);
    umi_proxy_forks++;
    (void)pthread_mutex_unlock(&lock);
}

/* Stop the threads: UCX ends next. */
static void
at_exit(void)
{
    for (;;) {
        umx_proxy *proxy = NULL;

        (void)pthread_mutex_lock(&lock);
        if (!umi_list_is_empty(&proxies)) {
            proxy = proxy_of(proxies.next);
            umi_node_remove(&proxy->process_node);
            umi_proxy_hold(proxy);
        }
        (void)pthread_mutex_unlock(&lock);
        if (proxy == NULL) {
            return;
        }
        umi_proxy_stop(proxy);
        umi_proxy_put(proxy);
    }
}

static void
watch(void)
{
    (void)pthread_atfork(before_fork, in_parent, in_child);
    (void)atexit(at_exit);
}

void
umi_proxy_process_add(umx_proxy *proxy)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch);
    (void)pthread_mutex_lock(&lock);
    umi_list_append(&proxies, &proxy->process_node);
    (void)pthread_mutex_unlock(&lock);
}

void
umi_proxy_process_remove(umx_proxy *proxy)
{
    (void)pthread_mutex_lock(&lock);
    umi_node_remove(&proxy->process_node);
    (void)pthread_mutex_unlock(&lock);
}

void
umi_proxy_let_fork(umx_proxy *proxy)
{
    (void)pthread_mutex_unlock(&proxy->busy);
    (void)pthread_mutex_lock(&lock); /* until fork() has returned */
    (void)pthread_mutex_unlock(&lock);
    (void)pthread_mutex_lock(&proxy->busy);
}
