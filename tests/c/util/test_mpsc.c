/* SPDX-License-Identifier: BSD-3-Clause */
/* link: tsan */
#include "util/mpsc.h"

#include "unit.h"

#include <pthread.h>
#include <stdint.h>

enum {
    THREADS  = 4,
    MESSAGES = 20000
};

typedef struct message {
    umi_mpsc_node node;
    unsigned      thread;
    unsigned      number;
} message;

typedef struct sender {
    umi_mpsc *queue;
    message  *messages;
    unsigned  wakes; /* pushes that found the queue empty */
} sender;

static message messages[THREADS][MESSAGES];

static void
test_empty(void **state)
{
    umi_mpsc queue;

    (void)state;
    umi_mpsc_init(&queue);
    assert_true(umi_mpsc_is_empty(&queue));
    assert_null(umi_mpsc_take(&queue));
}

static void
test_taken_in_order(void **state)
{
    umi_mpsc       queue;
    umi_mpsc_node  nodes[3];
    umi_mpsc_node *node;

    (void)state;
    umi_mpsc_init(&queue);
    for (int i = 0; i < 3; i++) {
        (void)umi_mpsc_push(&queue, &nodes[i]);
    }
    assert_false(umi_mpsc_is_empty(&queue));
    node = umi_mpsc_take(&queue);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(node, &nodes[i]);
        node = node->next;
    }
    assert_null(node);
    assert_true(umi_mpsc_is_empty(&queue));
}

static void
test_only_the_first_push_wakes(void **state)
{
    umi_mpsc      queue;
    umi_mpsc_node nodes[3];

    (void)state;
    umi_mpsc_init(&queue);
    assert_true(umi_mpsc_push(&queue, &nodes[0]));
    assert_false(umi_mpsc_push(&queue, &nodes[1]));
    (void)umi_mpsc_take(&queue);
    assert_true(umi_mpsc_push(&queue, &nodes[2]));
}

static void *
push_all(void *arg)
{
    sender *self = arg;

    for (unsigned i = 0; i < MESSAGES; i++) {
        self->messages[i].number = i;
        self->wakes += umi_mpsc_push(self->queue, &self->messages[i].node);
    }
    return NULL;
}

/* Each thread's messages come once and in their order. */
static void
test_many_threads(void **state)
{
    umi_mpsc  queue;
    sender    senders[THREADS] = {0};
    pthread_t threads[THREADS];
    unsigned  next[THREADS] = {0};
    unsigned  left = THREADS * MESSAGES, wakes = 0, takes = 0;

    (void)state;
    umi_mpsc_init(&queue);
    for (unsigned t = 0; t < THREADS; t++) {
        for (unsigned i = 0; i < MESSAGES; i++) {
            messages[t][i].thread = t;
        }
        senders[t].queue    = &queue;
        senders[t].messages = messages[t];
        assert_int_equal(
            pthread_create(&threads[t], NULL, push_all, &senders[t]), 0);
    }
    while (left > 0) {
        umi_mpsc_node *node = umi_mpsc_take(&queue);

        takes += (node != NULL);
        for (; node != NULL; node = node->next, left--) {
            message *m = (message *)(void *)node;

            assert_int_equal(m->number, next[m->thread]);
            next[m->thread]++;
        }
    }
    for (unsigned t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
        wakes += senders[t].wakes;
    }
    assert_int_equal(wakes, takes); /* no batch without its wake-up */
    assert_true(umi_mpsc_is_empty(&queue));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_taken_in_order),
        cmocka_unit_test(test_only_the_first_push_wakes),
        cmocka_unit_test(test_many_threads),
    };

    return UNIT_RUN(tests);
}
