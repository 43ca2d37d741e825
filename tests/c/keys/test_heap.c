/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory */
#include <umx/heap.h>

#include "memory.h"

#include <string.h>
#include <sys/wait.h>

#include "keys/memh.h"
#include "keys/key.h"

enum {
    LEN   = 1000,
    LARGE = 100 * 1024 /* bytes; of a segment of its own */
};

static umx_heap *
make_heap(umx_context *context)
{
    umx_heap *heap;

    assert_int_equal(umx_heap_create(context, NULL, &heap), UMX_OK);
    return heap;
}

/* A memory of the server's heap, and its key opened by the client. */
static memory
heap_alloc(pair *p, umx_heap *heap, size_t len)
{
    memory m;

    assert_int_equal(umx_heap_alloc(heap, len, &m.memh), UMX_OK);
    assert_int_equal(memory_open(p->client, m.memh, &m.rkey), UMX_OK);
    m.data = umx_memh_buffer(m.memh)->data;
    assert_int_equal(umx_rkey_length(m.rkey), len);
    assert_int_equal(umx_rkey_pointer(m.rkey) != NULL, p->tls == NULL);
    return m;
}

static umx_heap_info
info_of(umx_heap *heap)
{
    umx_heap_info info;

    umx_heap_query(heap, &info);
    return info;
}

static umi_key
key_of(const umx_memh *memh)
{
    umi_key     key;
    size_t      len;
    const void *data = umx_memh_key(memh, &len);

    assert_true(umi_key_decode(&key, data, len));
    return key;
}

/* ---- memories ------------------------------------------------------------
 */

static void
test_memories_share_a_segment(void **state)
{
    pair     *p = *state;
    umx_heap *heap;
    memory    one, other;
    umi_key   key, next;

    pair_open(p);
    heap = make_heap(p->context);
    assert_int_equal(info_of(heap).num_slabs, 0);
    one   = heap_alloc(p, heap, LEN);
    other = heap_alloc(p, heap, LEN);
    key   = key_of(one.memh);
    next  = key_of(other.memh);
    assert_int_equal(key.flags, UMI_KEY_SEGMENT | UMI_KEY_SLAB);
    assert_int_equal(key.segment, next.segment);
    assert_int_equal(key.length, LEN);
    assert_int_equal(key.rkey_len, 0);
    assert_int_equal(info_of(heap).num_slabs, 1);
    assert_int_equal(info_of(heap).num_memories, 2);
    assert_int_equal(transfer(p, umx_rma_put, one.rkey, item_of(0, "one", 3)),
                     UMX_OK);
    assert_int_equal(
        transfer(p, umx_rma_put, other.rkey, item_of(LEN - 5, "other", 5)),
        UMX_OK);
    assert_memory_equal(one.data, "one", 4);
    assert_memory_equal(other.data + LEN - 5, "other", 5);
    memory_free(&one);
    memory_free(&other);
    assert_int_equal(info_of(heap).num_memories, 0);
    umx_heap_destroy(heap);
}

static void
test_operations_stay_within_their_memory(void **state)
{
    char bytes[LEN + 1] = {0};

    pair     *p = *state;
    umx_heap *heap;
    memory    one, other;

    pair_open(p);
    heap  = make_heap(p->context);
    one   = heap_alloc(p, heap, LEN);
    other = heap_alloc(p, heap, LEN);
    assert_int_equal(
        transfer(p, umx_rma_put, one.rkey, item_of(0, bytes, LEN + 1)),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(transfer(p, umx_rma_get, one.rkey, item_of(LEN, bytes, 1)),
                     UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        transfer(p, umx_rma_get, other.rkey,
                 item_of((uint64_t)(one.data - other.data), bytes, 1)),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        atomic(p, one.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 1024, 1, 0}, NULL),
        UMX_ERR_OUT_OF_RANGE);
    memory_free(&one);
    memory_free(&other);
    umx_heap_destroy(heap);
}

static void
test_a_closed_memory_is_stale_and_others_are_not(void **state)
{
    char bytes[8] = {0};

    pair     *p = *state;
    umx_heap *heap;
    memory    one, other;
    umx_rkey *late;

    pair_open(p);
    heap  = make_heap(p->context);
    one   = heap_alloc(p, heap, LEN);
    other = heap_alloc(p, heap, LEN);
    umx_memh_close(one.memh);
    assert_int_equal(transfer(p, umx_rma_put, one.rkey, item_of(0, bytes, 8)),
                     UMX_ERR_STALE_KEY);
    assert_int_equal(transfer(p, umx_rma_put, other.rkey, item_of(0, bytes, 8)),
                     UMX_OK);
    assert_int_equal(memory_open(p->client, one.memh, &late), UMX_OK);
    assert_null(umx_rkey_pointer(late));
    assert_int_equal(transfer(p, umx_rma_get, late, item_of(0, bytes, 8)),
                     UMX_ERR_STALE_KEY);
    umx_rkey_destroy(late);
    memory_free(&one);
    memory_free(&other);
    umx_heap_destroy(heap);
}

/* With space that is used again the peer's old key stays stale, mapped or not,
 * and what is there now is zeros. */
static void
test_an_old_key_does_not_reach_what_came_after(void **state)
{
    char bytes[8] = "old key";

    pair       *p = *state;
    umx_heap   *heap;
    memory      m;
    umx_memh   *next, *first;
    umx_rkey   *late;
    char        key[128];
    size_t      len;
    const void *data;

    pair_open(p);
    heap = make_heap(p->context);
    assert_int_equal(umx_heap_alloc(heap, 8, &first), UMX_OK); /* stays */
    m = heap_alloc(p, heap, 60000);
    memset(m.data, 'x', 60000);
    data = umx_memh_key(m.memh, &len);
    memcpy(key, data, len);
    umx_rkey_destroy(m.rkey);
    umx_memh_release(m.memh);
    /* Until its place and its header are another's. */
    for (int i = 0;; i++) {
        assert_true(i < 100);
        assert_int_equal(umx_heap_alloc(heap, 60000, &next), UMX_OK);
        if (umx_memh_buffer(next)->data == m.data) {
            break;
        }
        umx_memh_release(next);
    }
    assert_int_equal(((char *)umx_memh_buffer(next)->data)[59999], 0);
    assert_int_equal(umx_rkey_open(p->client, key, len, &late), UMX_OK);
    assert_null(umx_rkey_pointer(late));
    assert_int_equal(transfer(p, umx_rma_put, late, item_of(0, bytes, 8)),
                     UMX_ERR_STALE_KEY);
    assert_int_equal(((char *)umx_memh_buffer(next)->data)[0], 0);
    umx_rkey_destroy(late);
    umx_memh_release(next);
    umx_memh_release(first);
    umx_heap_destroy(heap);
}

/* A view outlives memory of a heap, as a view of a separate segment does. */
static void
test_a_peers_view_outlives_memory_and_heap(void **state)
{
    pair     *p = *state;
    umx_heap *heap;
    memory    m;
    umx_memh *next;
    char     *view;

    pair_open(p);
    heap = make_heap(p->context);
    m    = heap_alloc(p, heap, LEN);
    view = umx_rkey_pointer(m.rkey);
    memset(m.data, 'x', LEN);
    umx_memh_release(m.memh);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(umx_heap_alloc(heap, 60000, &next), UMX_OK);
        memset(umx_memh_buffer(next)->data, 'y', 60000);
        umx_memh_release(next);
    }
    umx_heap_destroy(heap);
    assert_int_equal(view[0], 'x');
    assert_int_equal(view[LEN - 1], 'x');
    umx_rkey_destroy(m.rkey);
}

static void
test_memories_outlive_their_heap(void **state)
{
    pair     *p = *state;
    umx_heap *heap;
    memory    m;

    pair_open(p);
    heap = make_heap(p->context);
    m    = heap_alloc(p, heap, LEN);
    umx_heap_destroy(heap);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, "it", 2)),
                     UMX_OK);
    assert_memory_equal(m.data, "it", 2);
    memory_free(&m);
}

/* The owner executes a put while the memory is released. */
static void
test_a_transfer_keeps_its_memory(void **state)
{
    pair     *p = *state;
    umx_heap *heap;
    memory    m;
    umx_memh *held;

    pair_open(p);
    heap = make_heap(p->context);
    m    = heap_alloc(p, heap, LEN);
    held = umi_memh_find(p->context, key_of(m.memh).memory);
    assert_ptr_equal(held, m.memh);
    memory_free(&m);
    assert_int_equal(info_of(heap).num_memories, 1);
    umi_memh_put(held);
    assert_int_equal(info_of(heap).num_memories, 0);
    umx_heap_destroy(heap);
}

static void
test_memory_of_a_heap_may_be_sent(void **state)
{
    pair         *p = *state;
    umx_heap     *heap;
    memory        from, to;
    op            sent, received;
    umx_op_params params = op_params(&sent), recv_params = op_params(&received);
    umx_buffer    out, in;
    umx_match     tag = pair_tag(1), any = pair_any;

    pair_open(p);
    heap = make_heap(p->context);
    from = heap_alloc(p, heap, LEN);
    to   = heap_alloc(p, heap, LEN);
    fill_pattern(from.data, LEN, 3);
    out             = *umx_memh_buffer(from.memh);
    in              = *umx_memh_buffer(to.memh);
    out.memh        = from.memh;
    in.memh         = to.memh;
    sent.status     = umx_channel_send(p->server, 0, &tag, &out, &params,
                                       &sent.req);
    received.status = umx_channel_recv(p->client, 0, &any, &in, &recv_params,
                                       &received.req, &received.info);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    assert_int_equal(op_wait(p, &received), UMX_OK);
    check_pattern(to.data, LEN, 3);
    memory_free(&from);
    memory_free(&to);
    umx_heap_destroy(heap);
}

/* ---- heaps ---------------------------------------------------------------
 */

static void
test_a_large_memory_is_a_segment_of_its_own(void **state)
{
    pair     *p = *state;
    umx_heap *heap;
    memory    m;

    pair_open(p);
    heap = make_heap(p->context);
    m    = heap_alloc(p, heap, LARGE);
    assert_int_equal(key_of(m.memh).flags, UMI_KEY_SEGMENT);
    assert_int_equal(info_of(heap).num_slabs, 0);
    memory_free(&m);
    umx_heap_destroy(heap);
}

static void
test_no_bytes_are_memory_too(void **state)
{
    pair     *p = *state;
    umx_heap *heap;
    memory    m, next;

    pair_open(p);
    heap = make_heap(p->context);
    m    = heap_alloc(p, heap, 0);
    next = heap_alloc(p, heap, 0);
    assert_ptr_not_equal(m.data, next.data);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, "", 0)),
                     UMX_OK);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, "x", 1)),
                     UMX_ERR_OUT_OF_RANGE);
    memory_free(&m);
    memory_free(&next);
    umx_heap_destroy(heap);
}

static void
test_the_size_of_slabs_is_the_users(void **state)
{
    static const size_t wrong[] = {0, (1 << 18) - 1, ((size_t)1 << 30) + 1};

    pair           *p      = *state;
    umx_heap_params params = {.field_mask = UMX_HEAP_FIELD_SLAB_SIZE};
    umx_heap       *heap;
    memory          m;

    pair_open(p);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        params.slab_size = wrong[i];
        assert_int_equal(umx_heap_create(p->context, &params, &heap),
                         UMX_ERR_INVALID_PARAM);
    }
    params.slab_size = 4 << 20;
    assert_int_equal(umx_heap_create(p->context, &params, &heap), UMX_OK);
    m = heap_alloc(p, heap, LARGE);
    assert_int_equal(key_of(m.memh).flags, UMI_KEY_SEGMENT | UMI_KEY_SLAB);
    memory_free(&m);
    umx_heap_destroy(heap);
}

/* Use the heap in a child, which has the parent's memories and changes none. */
static void
use_in_child(umx_heap *heap, const memory *m)
{
    umx_memh *none;

    if (umx_heap_alloc(heap, 8, &none) != UMX_ERR_FORKED || m->data[0] != 'p' ||
        info_of(heap).num_memories != 0) {
        _exit(1);
    }
    umx_memh_release(m->memh);
    umx_heap_destroy(heap);
    _exit(0);
}

static void
test_a_forked_child_leaves_the_heap_alone(void **state)
{
    pair     *p = *state;
    umx_heap *heap;
    memory    m;
    int       status;
    pid_t     pid;

    pair_open(p);
    heap      = make_heap(p->context);
    m         = heap_alloc(p, heap, LEN);
    m.data[0] = 'p';
    pid       = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(10);
        use_in_child(heap, &m);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, "q", 1)),
                     UMX_OK);
    assert_int_equal(m.data[0], 'q');
    memory_free(&m);
    umx_heap_destroy(heap);
}

/* UCX's own put and get are not used in a slab, whose bounds they do not
 * know. */
static void
test_ucx_does_not_reach_a_slab(void **state)
{
    pair     *p = *state;
    umx_heap *heap;
    memory    m;

    p->config.rma_ucx = UMX_RMA_UCX_ALWAYS;
    pair_open(p);
    heap = make_heap(p->context);
    m    = heap_alloc(p, heap, LEN);
    assert_null(m.rkey->ucp);
    assert_int_equal(transfer(p, umx_rma_put, m.rkey, item_of(0, "it", 2)),
                     UMX_OK);
    assert_memory_equal(m.data, "it", 2);
    memory_free(&m);
    umx_heap_destroy(heap);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_memories_share_a_segment),
        PAIR_TEST(test_operations_stay_within_their_memory),
        PAIR_TEST(test_a_closed_memory_is_stale_and_others_are_not),
        PAIR_TEST(test_an_old_key_does_not_reach_what_came_after),
        PAIR_TEST_ONCE(test_a_peers_view_outlives_memory_and_heap),
        PAIR_TEST(test_memories_outlive_their_heap),
        PAIR_TEST_ONCE(test_a_transfer_keeps_its_memory),
        PAIR_TEST(test_memory_of_a_heap_may_be_sent),
        PAIR_TEST(test_a_large_memory_is_a_segment_of_its_own),
        PAIR_TEST(test_no_bytes_are_memory_too),
        PAIR_TEST(test_the_size_of_slabs_is_the_users),
        PAIR_TEST_ONCE(test_a_forked_child_leaves_the_heap_alone),
        PAIR_TEST(test_ucx_does_not_reach_a_slab),
    };

    return UNIT_RUN(tests);
}
