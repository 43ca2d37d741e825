/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: channel/message_api */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "channel/message.h"

static umx_message *
copied(pair *p, const void *bytes, size_t len)
{
    umx_buffer   buf = umx_host_buffer(bytes, len);
    umx_message *message;

    assert_int_equal(
        umi_message_rebuild(p->client, NULL, 0, &buf, len, &message), UMX_OK);
    return message;
}

static void
test_short_messages_live_in_the_object(void **state)
{
    pair        *p = *state;
    umx_message *message;
    char         bytes[UMI_MESSAGE_INLINE + 1] = "short";

    pair_open(p);
    message = copied(p, bytes, UMI_MESSAGE_INLINE);
    assert_int_equal(message->storage, UMI_STORAGE_INLINE);
    assert_ptr_equal(message->data, message->bytes);
    assert_int_equal(message->info.length, UMI_MESSAGE_INLINE);
    assert_memory_equal(message->data, bytes, UMI_MESSAGE_INLINE);
    umi_message_free(message);
    message = copied(p, bytes, UMI_MESSAGE_INLINE + 1);
    assert_int_equal(message->storage, UMI_STORAGE_BLOCK);
    assert_memory_equal(message->data, bytes, UMI_MESSAGE_INLINE + 1);
    umi_message_free(message);
    message = umi_message_empty(p->client);
    assert_non_null(message);
    assert_int_equal(message->info.length, 0);
    umi_message_free(message);
}

/* Blocks stay the worker's for good, so their number is limited. */
static void
test_blocks_are_few(void **state)
{
    enum {
        COUNT = 100
    };
    pair        *p = *state;
    umx_message *messages[COUNT];
    unsigned     blocks = 0;

    pair_open(p);
    for (unsigned i = 0; i < COUNT; i++) {
        messages[i] = umi_message_empty(p->client);
        assert_non_null(messages[i]);
        assert_true(umi_message_make_room(messages[i], UMI_BLOCK_SIZE));
        blocks += messages[i]->storage == UMI_STORAGE_BLOCK;
    }
    assert_in_range(blocks, 1, COUNT - 1);
    assert_int_equal(messages[COUNT - 1]->storage, UMI_STORAGE_HEAP);
    for (unsigned i = 0; i < COUNT; i++) {
        umi_message_free(messages[i]);
    }
    messages[0] = umi_message_empty(p->client);
    assert_non_null(messages[0]);
    assert_true(umi_message_make_room(messages[0], UMI_BLOCK_SIZE + 1));
    assert_int_equal(messages[0]->storage, UMI_STORAGE_HEAP);
    umi_message_free(messages[0]);
}

static const umx_message *
newest(const umx_ep *ep)
{
    return umi_container_of(umi_channels_of(ep)->channel0.unexpected.prev,
                            umx_message, node);
}

/* UCX's descriptors are kept where that saves a copy, and not without end. */
static void
test_what_is_kept_of_ucx(void **state)
{
    enum {
        LEN = 1000,
        BIG = 40 * 1024
    };
    pair *p    = *state;
    char *data = calloc(1, BIG);

    assert_non_null(data);
    pair_open(p);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), data, LEN),
                         UMX_OK);
    }
    pair_settle(p);
    assert_true(umi_channels_of(p->server)->num_descs <= 32);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, data, LEN),
                         UMX_OK);
    }
    assert_int_equal(umi_channels_of(p->server)->num_descs, 0);

    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), data, 10), UMX_OK);
    pair_settle(p);
    assert_int_equal(newest(p->server)->storage, UMI_STORAGE_INLINE);
    {
        op o;

        op_send(&o, p->client, 0, pair_tag(1), data, BIG);
        pair_settle(p);
        assert_true(newest(p->server)->storage == UMI_STORAGE_EAGER ||
                    newest(p->server)->storage == UMI_STORAGE_HEAP);
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, data, 10),
                         UMX_OK);
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, data, BIG),
                         UMX_OK);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    free(data);
}

/* Unread messages of each kind are given back with their endpoint. */
static void
test_unread_messages_go_with_their_endpoint(void **state)
{
    static const size_t sizes[] = {1, 500, 40 * 1024, 1024 * 1024};
    pair               *p       = *state;
    char               *data    = calloc(1, 1024 * 1024);
    op                  ops[4];

    assert_non_null(data);
    pair_open(p);
    for (int i = 0; i < 4; i++) {
        op_send(&ops[i], p->client, 0, pair_tag(1), data, sizes[i]);
    }
    pair_settle(p);
    umx_ep_destroy(p->server);
    p->server = NULL;
    for (int i = 0; i < 4; i++) {
        (void)op_wait(p, &ops[i]);
    }
    PAIR_UNTIL(p, umx_worker_num_closing(p->server_worker) == 0);
    free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_short_messages_live_in_the_object),
        PAIR_TEST_ONCE(test_blocks_are_few),
        PAIR_TEST(test_what_is_kept_of_ucx),
        PAIR_TEST(test_unread_messages_go_with_their_endpoint),
    };

    return UNIT_RUN(tests);
}
