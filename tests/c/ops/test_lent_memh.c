/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory fake_ucp wrap=malloc wrap=calloc wrap=strndup */
/* Operations on registered memory: UCX is given the registration, which lives
 * until they are done. The sockets of the handshake are real, UCX is not. */
#include "keys/memh.h"
#include "fake_ucp.h"
#include "memory.h"

#include <string.h>

#include "worker/link.h"
#include <umx/buffer.h>
#include <umx/stream.h>

enum {
    SIZE   = 4000,
    LONGER = UMI_INJECT_MAX + 1 /* than what is sent without a registration */
};

typedef struct lent {
    char      *data;
    umx_memh  *memh;
    ucp_mem_h  ucp;
    umx_buffer buf; /* all of it */
} lent;

static char arrays[2][SIZE];

static lent
lend(umx_context *context, int i)
{
    lent       l   = {.data = arrays[i]};
    umx_buffer buf = umx_host_buffer(l.data, SIZE);

    assert_int_equal(umx_memh_register(context, &buf, NULL, &l.memh), UMX_OK);
    l.ucp      = l.memh->ucp;
    l.buf      = buf;
    l.buf.memh = l.memh;
    return l;
}

/* Registrations are for hardware, which reads the memory itself. */
static void
open_pair(pair *p)
{
    fake_reset();
    p->config.rma_ucx = UMX_RMA_UCX_ALWAYS;
    pair_open(p);
    p->client->base.link->has_hardware = true;
    p->client_worker->has_hardware     = true;
    fake.is_pending                    = true;
}

static umx_status
channel_send(pair *p, const umx_buffer *buf, op *o)
{
    umx_op_params params = op_params(o);

    fake.memh = NULL;
    o->status = umx_channel_send(p->client, 0, &pair_untagged, buf, &params,
                                 &o->req);
    return o->status;
}

static umx_status
tag_send(pair *p, const umx_buffer *buf, op *o)
{
    umx_op_params params = op_params(o);

    fake.memh = NULL;
    o->status = umx_tag_send(p->client, 1, buf, &params, &o->req);
    return o->status;
}

static umx_status
tag_send_sync(pair *p, const umx_buffer *buf, op *o)
{
    umx_op_params params = op_params(o);

    fake.memh = NULL;
    o->status = umx_tag_send_sync(p->client, 1, buf, &params, &o->req);
    return o->status;
}

static umx_status
am_send(pair *p, const umx_buffer *buf, op *o)
{
    umx_op_params params = op_params(o);

    fake.memh = NULL;
    o->status = umx_am_send(p->client, 20, "x", 1, buf, &params, &o->req);
    return o->status;
}

static umx_status
stream_send(pair *p, const umx_buffer *buf, op *o)
{
    umx_op_params params = op_params(o);

    fake.memh = NULL;
    o->status = umx_stream_send(p->client, buf, &params, &o->req);
    return o->status;
}

typedef umx_status (*send_fn)(pair *, const umx_buffer *, op *);
static const send_fn sends[] = {channel_send, tag_send, tag_send_sync, am_send,
                                stream_send};
enum {
    NUM_SENDS = sizeof(sends) / sizeof(*sends)
};

static void
test_sends_pass_the_registration(void **state)
{
    pair *p = *state;
    lent  l;

    open_pair(p);
    l = lend(p->client_context, 0);
    for (int i = 0; i < NUM_SENDS; i++) {
        umx_buffer part = l.buf;
        op         o;

        assert_int_equal(sends[i](p, &part, &o), UMX_INPROGRESS);
        assert_ptr_equal(fake.memh, l.ucp);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        part.data = l.data + SIZE - LONGER;
        part.len  = LONGER;
        assert_int_equal(sends[i](p, &part, &o), UMX_INPROGRESS);
        assert_ptr_equal(fake.memh, l.ucp);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        part.memh = NULL;
        assert_int_equal(sends[i](p, &part, &o), UMX_INPROGRESS);
        assert_null(fake.memh);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    fake.is_pending = false;
    umx_memh_release(l.memh);
}

/* UCX would take it for one of its own. */
static void
test_the_registration_of_another_context_of_ucx_is_not_passed(void **state)
{
    pair          *p = *state;
    const umi_ucx *old;
    lent           l;

    open_pair(p);
    old = p->client->base.engine->ucx;
    l   = lend(p->client_context, 0);
    assert_int_equal(umi_context_renew(p->client_context, old), UMX_ERR_BUSY);
    umx_memh_release(l.memh);
    assert_int_equal(umi_context_renew(p->client_context, old), UMX_OK);
    assert_false(umi_context_is_newest(p->client_context, old));
    l = lend(p->client_context, 0);
    for (int i = 0; i < NUM_SENDS; i++) {
        op o;

        assert_int_equal(sends[i](p, &l.buf, &o), UMX_INPROGRESS);
        assert_null(fake.memh);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    fake.is_pending = false;
    umx_memh_release(l.memh);
}

static umx_buffer
outside(const lent *l, ptrdiff_t at, size_t len)
{
    umx_buffer buf = l->buf;

    buf.data = l->data + at;
    buf.len  = len;
    return buf;
}

static void
check_refused(pair *p, const umx_buffer *buf, umx_rkey *rkey)
{
    umx_rma_item    item = {.buf = *buf};
    umx_request    *req;
    umx_recv_info   info;
    const umx_match any = {.flags = UMX_MATCH_ANY};
    op              o;

    for (int i = 0; i < NUM_SENDS; i++) {
        assert_int_equal(sends[i](p, buf, &o), UMX_ERR_INVALID_PARAM);
    }
    assert_int_equal(
        umx_channel_recv(p->client, 0, &any, buf, NULL, &req, &info),
        UMX_ERR_INVALID_PARAM);
    assert_int_equal(
        umx_tag_recv(p->client_worker, NULL, 1, 1, buf, NULL, &req, &info),
        UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_stream_recv(p->client, buf, 0, NULL, &req, &info),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_rma_put(rkey, &item, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_rma_get(rkey, &item, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    assert_null(fake.memh);
}

static void
test_what_is_not_inside_is_refused(void **state)
{
    pair      *p = *state;
    umx_buffer buf;
    memory     m;
    lent       l;

    open_pair(p);
    m   = memory_register(p, arrays[1], SIZE, 0);
    l   = lend(p->client_context, 0);
    buf = outside(&l, -1, 2);
    check_refused(p, &buf, m.rkey);
    buf = outside(&l, SIZE - 1, 2);
    check_refused(p, &buf, m.rkey);
    buf = outside(&l, SIZE + 1, 1);
    check_refused(p, &buf, m.rkey);
    umx_memh_release(l.memh);
    fake.is_pending = false;
    memory_free(&m);
}

static void
test_another_context_s_is_not_used(void **state)
{
    pair        *p = *state;
    umx_context *stranger;
    lent         l;
    op           o;

    open_pair(p);
    assert_int_equal(umx_context_create(NULL, &stranger, NULL), UMX_OK);
    l = lend(stranger, 0);
    for (int i = 0; i < NUM_SENDS; i++) {
        assert_int_equal(sends[i](p, &l.buf, &o), UMX_INPROGRESS);
        assert_null(fake.memh);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    fake.is_pending = false;
    umx_memh_release(l.memh);
    umx_context_release(stranger);
}

static void
test_nothing_is_registered_for_no_bytes(void **state)
{
    pair      *p = *state;
    umx_buffer none;
    umx_memh  *memh;
    op         o;

    open_pair(p);
    assert_int_equal(umx_memh_alloc(p->client_context, 0, &memh), UMX_OK);
    none      = umx_host_buffer(NULL, 0);
    none.memh = memh;
    for (int i = 0; i < NUM_SENDS; i++) {
        assert_true(sends[i](p, &none, &o) >= 0);
        assert_null(fake.memh);
        assert_int_equal(op_wait(p, &o), UMX_OK);
    }
    fake.is_pending = false;
    umx_memh_release(memh);
}

static void
test_a_layout_goes_without(void **state)
{
    const umx_dim dims[] = {{SIZE / 4, 4}};

    pair      *p = *state;
    umx_layout layout;
    size_t     len;
    lent       l;
    op         o;

    open_pair(p);
    l = lend(p->client_context, 0);
    assert_int_equal(umx_layout_init(&layout, 2, 1, dims, &len), UMX_OK);
    l.buf.len    = len;
    l.buf.layout = &layout;
    assert_int_equal(channel_send(p, &l.buf, &o), UMX_INPROGRESS);
    assert_null(fake.memh);
    umx_memh_release(l.memh);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    fake.is_pending = false;
}

/* An announced message meets the receive; the bytes land there. */
static void
announce(umx_ep *ep, uint32_t seq)
{
    static const char bytes[SIZE];

    umi_header header = {.kind     = UMI_KIND_MESSAGE,
                         .flags    = UMI_FLAG_UNTAGGED,
                         .seq      = seq,
                         .endpoint = ep->base.wire_id};

    fake_arrive(umx_ep_handle(ep), UMI_AM_DATA, &header, UMI_HEADER_MIN, bytes,
                sizeof(bytes), true);
}

static void
start_recv(pair *p, const umx_buffer *buf, op *o)
{
    umx_op_params params = op_params(o);

    fake.memh = NULL;
    o->status = umx_channel_recv(p->client, 0, &pair_untagged, buf, &params,
                                 &o->req, &o->info);
    assert_int_equal(o->status, UMX_INPROGRESS);
}

static void
test_receives_pass_the_registration(void **state)
{
    pair *p = *state;
    lent  l;
    op    o;

    open_pair(p);
    l = lend(p->client_context, 0);
    start_recv(p, &l.buf, &o);
    announce(p->client, 0);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_ptr_equal(fake.memh, l.ucp);
    fake.is_pending = false;
    umx_memh_release(l.memh);
}

static void
test_tagged_receives_pass_it_too(void **state)
{
    pair         *p = *state;
    op            o;
    umx_op_params params = op_params(&o);
    lent          l;

    open_pair(p);
    l        = lend(p->client_context, 0);
    o.status = umx_tag_recv(p->client_worker, NULL, 1, UINT64_MAX, &l.buf,
                            &params, &o.req, &o.info);
    assert_int_equal(o.status, UMX_INPROGRESS);
    assert_ptr_equal(fake.memh, l.ucp);
    umx_memh_release(l.memh);
    assert_true(l.ucp == l.memh->ucp); /* alive */
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    fake.is_pending = false;
}

/* ---- lifetimes -----------------------------------------------------------
 */

typedef struct owner {
    int       frees;
    umx_memh *memh;
} owner;

static umx_buffer
own(pair *p, owner *w)
{
    umx_buffer      buf    = umx_host_buffer(arrays[0], SIZE);
    umx_memh_params params = {.field_mask = UMX_MEMH_FIELD_ON_FREE,
                              .on_free    = count_call,
                              .arg        = &w->frees};

    w->frees = 0;
    assert_int_equal(
        umx_memh_register(p->client_context, &buf, &params, &w->memh), UMX_OK);
    buf.memh = w->memh;
    return buf;
}

static void
test_a_send_keeps_the_registration(void **state)
{
    pair *p = *state;
    owner w;
    op    o;

    open_pair(p);
    for (int i = 0; i < NUM_SENDS; i++) {
        umx_buffer buf = own(p, &w);

        assert_int_equal(sends[i](p, &buf, &o), UMX_INPROGRESS);
        umx_memh_release(w.memh);
        assert_int_equal(w.frees, 0);
        op_cancel(o.req); /* UCX has it */
        assert_int_equal(w.frees, 0);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(w.frees, 1);
    }
    fake.is_pending = false;
}

static void
test_a_receive_that_waits_keeps_it(void **state)
{
    pair      *p = *state;
    umx_buffer buf;
    owner      w;
    op         o;

    open_pair(p);
    buf = own(p, &w);
    start_recv(p, &buf, &o);
    umx_memh_release(w.memh);
    assert_int_equal(w.frees, 0);
    op_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    assert_int_equal(w.frees, 1);
    fake.is_pending = false;
}

/* Cancelled while UCX writes: until the last byte is there. */
static void
test_a_cancelled_landing_keeps_it(void **state)
{
    pair      *p = *state;
    umx_buffer buf;
    owner      w;
    op         o;

    open_pair(p);
    buf = own(p, &w);
    start_recv(p, &buf, &o);
    announce(p->client, 0);
    fake.is_wedged = true;
    (void)umx_worker_poll(p->client_worker);
    assert_ptr_equal(fake.memh, w.memh->ucp);
    op_cancel(o.req);
    umx_memh_release(w.memh);
    (void)umx_worker_poll(p->client_worker);
    assert_int_equal(w.frees, 0);
    fake.is_wedged = false;
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    assert_int_equal(w.frees, 1);
    fake.is_pending = false;
}

static void
test_a_stream_receive_passes_and_keeps_it(void **state)
{
    pair         *p = *state;
    op            o;
    umx_op_params params = op_params(&o);
    umx_buffer    buf;
    umi_header header = {.kind = UMI_KIND_STREAM, .flags = UMI_FLAG_UNTAGGED};
    owner      w;

    open_pair(p);
    buf       = own(p, &w);
    fake.memh = NULL;
    o.status  = umx_stream_recv(p->client, &buf, UMX_STREAM_WAITALL, &params,
                                &o.req, &o.info);
    assert_int_equal(o.status, UMX_INPROGRESS);
    umx_memh_release(w.memh);
    header.endpoint = p->client->base.wire_id;
    fake_arrive(umx_ep_handle(p->client), UMI_AM_DATA, &header, UMI_HEADER_MIN,
                arrays[1], SIZE, true);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_non_null(fake.memh);
    assert_int_equal(w.frees, 1);
    fake.is_pending = false;
}

/* ---- put and get ---------------------------------------------------------
 */

static void
test_put_and_get_pass_and_keep_it(void **state)
{
    static const transfer_fn fns[] = {umx_rma_put, umx_rma_get};

    pair  *p = *state;
    memory m;

    open_pair(p);
    m = memory_register(p, arrays[1], SIZE, 0);
    for (int i = 0; i < 2; i++) {
        owner        w;
        umx_rma_item item = {.buf = own(p, &w)};
        op           o;

        fake.memh = NULL;
        start(&o, fns[i], m.rkey, item);
        assert_ptr_equal(fake.memh, w.memh->ucp);
        umx_memh_release(w.memh);
        assert_int_equal(w.frees, 0);
        assert_int_equal(op_wait(p, &o), UMX_OK);
        assert_int_equal(w.frees, 1);
    }
    fake.is_pending = false;
    memory_free(&m);
}

/* A request holds one registration: of the others nothing is passed. */
static void
test_many_pass_the_first_one(void **state)
{
    pair         *p = *state;
    op            o;
    umx_op_params params = op_params(&o);
    owner         w[2];
    umx_rma_item  items[3];
    memory        m;

    open_pair(p);
    m = memory_register(p, arrays[1], SIZE, 0);
    for (int i = 0; i < 3; i++) {
        items[i] = (umx_rma_item){.offset = 20 * (unsigned)i};
    }
    items[0].buf     = own(p, &w[0]);
    items[1].buf     = own(p, &w[1]);
    items[0].buf.len = items[1].buf.len = 10;
    items[2].buf                        = umx_host_buffer(arrays[0] + 99, 10);
    fake.memh                           = NULL;
    o.status = umx_rma_put_many(m.rkey, items, 1, &params, &o.req);
    assert_ptr_equal(fake.memh, w[0].memh->ucp);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    params   = op_params(&o);
    o.status = umx_rma_put_many(m.rkey, items, 3, &params, &o.req);
    assert_null(fake.memh);
    umx_memh_release(w[0].memh);
    umx_memh_release(w[1].memh);
    assert_int_equal(w[0].frees, 0);
    assert_int_equal(w[1].frees, 1);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(w[0].frees, 1);
    fake.is_pending = false;
    memory_free(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_FAKE(test_sends_pass_the_registration),
        PAIR_TEST_FAKE(
            test_the_registration_of_another_context_of_ucx_is_not_passed),
        PAIR_TEST_FAKE(test_what_is_not_inside_is_refused),
        PAIR_TEST_FAKE(test_another_context_s_is_not_used),
        PAIR_TEST_FAKE(test_nothing_is_registered_for_no_bytes),
        PAIR_TEST_FAKE(test_a_layout_goes_without),
        PAIR_TEST_FAKE(test_receives_pass_the_registration),
        PAIR_TEST_FAKE(test_tagged_receives_pass_it_too),
        PAIR_TEST_FAKE(test_a_send_keeps_the_registration),
        PAIR_TEST_FAKE(test_a_receive_that_waits_keeps_it),
        PAIR_TEST_FAKE(test_a_cancelled_landing_keeps_it),
        PAIR_TEST_FAKE(test_a_stream_receive_passes_and_keeps_it),
        PAIR_TEST_FAKE(test_put_and_get_pass_and_keep_it),
        PAIR_TEST_FAKE(test_many_pass_the_first_one),
    };

    return UNIT_RUN(tests);
}
