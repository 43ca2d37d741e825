/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory.h"

umx_rma_item
item_of(uint64_t offset, const void *data, size_t len)
{
    umx_rma_item item = {.offset = offset, .buf = umx_host_buffer(data, len)};

    return item;
}

void
count_call(void *arg)
{
    ++*(int *)arg;
}

umx_status
memory_open(umx_ep *ep, const umx_memh *memh, umx_rkey **rkey_p)
{
    size_t      len;
    const void *key = umx_memh_key(memh, &len);

    return umx_rkey_open(ep, key, len, rkey_p);
}

memory
memory_alloc(pair *p, size_t len)
{
    memory m;

    assert_int_equal(umx_memh_alloc(p->context, len, &m.memh), UMX_OK);
    assert_int_equal(memory_open(p->client, m.memh, &m.rkey), UMX_OK);
    m.data = umx_memh_buffer(m.memh)->data;
    assert_int_equal(umx_rkey_length(m.rkey), len);
    assert_int_equal(umx_rkey_pointer(m.rkey) != NULL, p->tls == NULL);
    return m;
}

memory
memory_register(pair *p, void *data, size_t len, uint64_t flags)
{
    umx_buffer      buf    = umx_host_buffer(data, len);
    umx_memh_params params = {.field_mask = UMX_MEMH_FIELD_FLAGS,
                              .flags      = flags};
    memory          m      = {.data = data};

    assert_int_equal(umx_memh_register(p->context, &buf, &params, &m.memh),
                     UMX_OK);
    assert_int_equal(memory_open(p->client, m.memh, &m.rkey), UMX_OK);
    assert_null(umx_rkey_pointer(m.rkey));
    return m;
}

void
memory_free(memory *m)
{
    umx_rkey_destroy(m->rkey);
    umx_memh_release(m->memh);
}

void
start(op *o, transfer_fn fn, umx_rkey *rkey, umx_rma_item item)
{
    umx_op_params params = op_params(o);

    o->status = fn(rkey, &item, &params, &o->req);
}

umx_status
transfer(pair *p, transfer_fn fn, umx_rkey *rkey, umx_rma_item item)
{
    op o;

    start(&o, fn, rkey, item);
    return op_wait(p, &o);
}

void
start_atomic(op *o, umx_rkey *rkey, umx_atomic which, uint64_t *old)
{
    umx_op_params params = op_params(o);

    o->status = umx_rma_atomic(rkey, &which, old, &params, &o->req);
}

umx_status
atomic(pair *p, umx_rkey *rkey, umx_atomic which, uint64_t *old)
{
    op o;

    start_atomic(&o, rkey, which, old);
    return op_wait(p, &o);
}

void
start_flush(op *o, umx_worker *worker, umx_ep *ep)
{
    umx_op_params params = op_params(o);

    o->status = (ep != NULL) ? umx_ep_flush(ep, &params, &o->req) :
                               umx_worker_flush(worker, &params, &o->req);
}

void
start_signal(op *o, umx_rkey *rkey, umx_rma_item item, umx_atomic signal)
{
    umx_op_params params = op_params(o);

    o->status = umx_rma_put_signal(rkey, &item, &signal, &params, &o->req);
}
