/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* Faults of the library's own, each of which an assertion stops. */
#include "pair.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "mem/gather.h"
#include "mem/memtype.h"
#include "util/count.h"
#include "util/map.h"
#include "util/mpsc.h"
#include "util/pool.h"
#include "util/refcnt.h"
#include "util/slots.h"
#include "util/table.h"
#include "worker/guard.h"
#include "worker/request.h"

static umi_list list;

/* ---- lists and tables ----------------------------------------------------
 */

static void
append_what_a_stray_store_has_cut(pair *p)
{
    umi_node a, b;

    (void)p;
    umi_list_init(&list);
    umi_list_append(&list, &a);
    a.prev = &b;
    b.next = &b;
    umi_list_prepend(&list, &b);
}

static void
remove_a_node_that_was_copied(pair *p)
{
    umi_node a, copy;

    (void)p;
    umi_list_init(&list);
    umi_list_append(&list, &a);
    copy = a;
    umi_node_remove(&copy);
}

static void
remove_a_node_whose_list_was_set_up_again(pair *p)
{
    umi_node a;

    (void)p;
    umi_list_init(&list);
    umi_list_append(&list, &a);
    umi_list_init(&list);
    umi_node_remove(&a);
}

static void
splice_a_list_with_itself(pair *p)
{
    (void)p;
    umi_list_init(&list);
    umi_list_splice(&list, &list);
}

static void
put_an_object_back_twice(pair *p)
{
    umi_pool pool;
    void    *object;

    (void)p;
    umi_pool_init(&pool, 64);
    object = umi_pool_get(&pool);
    umi_pool_put(&pool, object);
    umi_pool_put(&pool, object);
}

static void
push_a_node_twice(pair *p)
{
    umi_mpsc      queue;
    umi_mpsc_node node;

    (void)p;
    umi_mpsc_init(&queue);
    umi_mpsc_push(&queue, &node);
    umi_mpsc_push(&queue, &node);
}

static void
remove_from_a_map_what_is_not_in_it(pair *p)
{
    umi_map      map;
    umi_map_node a, b = {.key = 1};

    (void)p;
    umi_map_init(&map);
    umi_map_add(&map, &a, 1);
    umi_map_remove(&map, &b);
}

static void
add_a_number_twice(pair *p)
{
    umi_table table;

    umi_table_init(&table);
    (void)umi_table_add(&table, 1, p);
    (void)umi_table_add(&table, 1, p);
}

static void
give_nothing_a_number(pair *p)
{
    umi_slots slots;

    (void)p;
    umi_slots_init(&slots);
    (void)umi_slots_add(&slots, NULL, 1);
}

/* ---- counts --------------------------------------------------------------
 */

static void
count_below_zero(pair *p)
{
    UMI_DECREMENT(p->client->num_landing);
}

static void
hold_what_is_gone(pair *p)
{
    umi_refs refs = {0};

    (void)p;
    umi_refs_get(&refs);
}

static void
release_what_is_gone(pair *p)
{
    umi_refs refs;

    (void)p;
    umi_refs_init(&refs);
    (void)umi_refs_put(&refs);
    (void)umi_refs_put(&refs);
}

static void
release_what_threads_share_and_is_gone(pair *p)
{
    umi_shared_refs refs;

    (void)p;
    umi_shared_refs_init(&refs);
    (void)umi_shared_refs_put(&refs);
    (void)umi_shared_refs_put(&refs);
}

static void
give_credit_back_twice(pair *p)
{
    umi_credit_unkeep(&umi_channels_of(p->server)->channel0,
                      umi_charge_eager(1, 0));
}

/* ---- states --------------------------------------------------------------
 */

static umx_request *
receive(pair *p)
{
    static char byte;

    op *o = calloc(1, sizeof(*o));

    op_recv(o, p->server, 0, pair_any, &byte, 1);
    return o->req;
}

static void
complete_a_request_twice(pair *p)
{
    umx_request *req = receive(p);

    umi_request_complete(req, UMX_OK);
    umi_request_complete(req, UMX_ERR_CANCELED);
}

static void
complete_a_request_as_pending(pair *p)
{
    umi_request_complete(receive(p), UMX_INPROGRESS);
}

static void
post_a_request_that_is_complete(pair *p)
{
    umx_request *req = receive(p);

    umi_request_complete(req, UMX_OK);
    umi_request_posted(req);
}

static void
detach_a_request_twice(pair *p)
{
    umx_request *req = receive(p);

    umi_request_detach(req);
    umi_request_detach(req);
}

static void
free_a_request_that_waits_on_a_list(pair *p)
{
    umi_request_free(receive(p));
}

static void
open_an_endpoint_again(pair *p)
{
    umi_endpoint_set_state(p->client, UMX_EP_CLOSED);
    umi_endpoint_set_state(p->client, UMX_EP_OPEN);
}

static void
close_an_endpoint_that_is_not_open(pair *p)
{
    p->client->state = UMX_EP_CONNECTING;
    umi_endpoint_set_state(p->client, UMX_EP_DRAINING);
}

/* ---- locks, walks, memory ------------------------------------------------
 */

static void
complete_a_request_without_the_lock(pair *p)
{
    umx_request *req = receive(p);

    assert_int_equal(umx_progress_start(p->server_worker), UMX_OK);
    umi_request_complete(req, UMX_OK);
}

static void
progress_within_a_walk(pair *p)
{
    umi_node node;

    umi_list_init(&list);
    umi_list_append(&list, &node);
    UMI_LIST_FOREACH(each, &list) {
        (void)umi_worker_progress(p->client_worker);
    }
}

/* As a callback of UCX's does. */
static void
run_events_inside_ucx(pair *p)
{
    p->client_worker->is_in_ucx = true;
    umi_worker_run_events(p->client_worker);
}

static void
copy_more_than_a_buffer_holds(pair *p)
{
    char       to[2], from[4] = "abc";
    umx_buffer buf = umx_host_buffer(to, 2);

    (void)p;
    (void)!umi_copy_in(&buf, from, 4);
}

static void
free_a_message_of_the_queue(pair *p)
{
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    PAIR_UNTIL(p, !umi_list_is_empty(
                      &umi_channels_of(p->server)->channel0.unexpected));
    umi_message_free(
        umi_message_at(umi_channels_of(p->server)->channel0.unexpected.next));
}

static void
queue_a_message_twice(pair *p)
{
    umi_channel *channel = &umi_channels_of(p->server)->channel0;

    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    PAIR_UNTIL(p, !umi_list_is_empty(&channel->unexpected));
    umi_channel_queue(channel, umi_message_at(channel->unexpected.next));
}

/* ---- all -----------------------------------------------------------------
 */

/* The process ends by abort(), without a core. It has no shared memory that
 * would be left. */
static void
check(pair *p, const char *name, void (*fault)(pair *p))
{
    int   status = 0;
    pid_t pid    = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_DUMPABLE, 0);
        (void)signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        pair_open(p);
        fault(p);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) {
        fail_msg("%s: status %#x", name, (unsigned)status);
    }
}

#define CHECK(fault) check(p, #fault, fault)

static void
test_each_fault_is_stopped(void **state)
{
    pair *p = *state;

    CHECK(append_what_a_stray_store_has_cut);
    CHECK(remove_a_node_that_was_copied);
    CHECK(remove_a_node_whose_list_was_set_up_again);
    CHECK(splice_a_list_with_itself);
    CHECK(put_an_object_back_twice);
    CHECK(push_a_node_twice);
    CHECK(remove_from_a_map_what_is_not_in_it);
    CHECK(add_a_number_twice);
    CHECK(give_nothing_a_number);
    CHECK(count_below_zero);
    CHECK(hold_what_is_gone);
    CHECK(release_what_is_gone);
    CHECK(release_what_threads_share_and_is_gone);
    CHECK(give_credit_back_twice);
    CHECK(complete_a_request_twice);
    CHECK(complete_a_request_as_pending);
    CHECK(post_a_request_that_is_complete);
    CHECK(detach_a_request_twice);
    CHECK(free_a_request_that_waits_on_a_list);
    CHECK(open_an_endpoint_again);
    CHECK(close_an_endpoint_that_is_not_open);
    CHECK(complete_a_request_without_the_lock);
    CHECK(progress_within_a_walk);
    CHECK(run_events_inside_ucx);
    CHECK(copy_more_than_a_buffer_holds);
    CHECK(free_a_message_of_the_queue);
    CHECK(queue_a_message_twice);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        {"test_each_fault_is_stopped", test_each_fault_is_stopped, pair_setup,
         pair_teardown, (void *)"tcp"},
    };

    return UNIT_RUN(tests);
}
