/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=umi_process_is_self wrap=process_vm_readv wrap=malloc */
/* tests: lend/note */
#include "pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lend/lend.h"
#include "lend/agree.h"
#include "util/process.h"

enum {
    KIB  = 1024,
    SIZE = 300 * KIB,
    FEW  = sizeof(umi_lend_slot) /* bytes, to check */
};

/* ---- the system ----------------------------------------------------------
 */

static struct {
    bool     is_one_process; /* umi_process_is_self() may be true */
    int      error;          /* of process_vm_readv(), unless 0 */
    unsigned reads;          /* of more than a few bytes */
    bool     has_no_memory;
    void (*before_bytes)(void); /* called between the two readings; or NULL */
} sys;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *
__wrap_malloc(size_t size)
{
    return sys.has_no_memory ? NULL : __real_malloc(size);
}

bool __real_umi_process_is_self(pid_t pid);
bool __wrap_umi_process_is_self(pid_t pid);

bool
__wrap_umi_process_is_self(pid_t pid)
{
    return sys.is_one_process && pid == getpid();
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long       num_local,
                                const struct iovec *remote,
                                unsigned long num_remote, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long       num_local,
                                const struct iovec *remote,
                                unsigned long num_remote, unsigned long flags);

ssize_t
__wrap_process_vm_readv(pid_t pid, const struct iovec *local,
                        unsigned long num_local, const struct iovec *remote,
                        unsigned long num_remote, unsigned long flags)
{
    ssize_t n;

    if (sys.error != 0) {
        errno = sys.error;
        return -1;
    }
    if (remote[0].iov_len > FEW && sys.before_bytes != NULL) {
        sys.before_bytes();
    }
    n = __real_process_vm_readv(pid, local, num_local, remote, num_remote,
                                flags);
    if (n > FEW) {
        sys.reads++;
    }
    return n;
}

/* ---- a pair that lends ---------------------------------------------------
 */

/* Send one message to the server; return the status of its receive. */
static umx_status
pass(pair *p, const void *out, size_t len, void *in, size_t capacity)
{
    op         send_op, recv_op;
    umx_status status;

    op_recv(&recv_op, p->server, 0, pair_any, in, capacity);
    op_send(&send_op, p->client, 0, pair_tag(1), out, len);
    status = op_wait(p, &recv_op);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    return status;
}

/* Handle a header as if UCX had delivered it to `worker`. */
static void
feed(umx_worker *worker, unsigned id, const void *header, size_t len)
{
    umi_am_arrival arrival = {.header = header, .header_len = len};

    assert_int_equal(worker->am_handlers[id].fn(worker, &arrival),
                     UMI_AM_CONSUMED);
}

static void
feed_note(umx_ep *ep, umi_lend_note note)
{
    note.endpoint = ep->base.wire_id;
    feed(ep->base.worker, UMI_AM_NOTE, &note, sizeof(note));
}

/* The next message of channel 0, as a loan of that name. */
static void
feed_lent(umx_ep *ep, umi_lend_loan name)
{
    umi_header header = {.kind     = UMI_KIND_MESSAGE,
                         .flags    = UMI_FLAG_UNTAGGED,
                         .seq      = umi_channels_of(ep)->channel0.rx_seq,
                         .endpoint = ep->base.wire_id};
    char       bytes[sizeof(name) + UMI_HEADER_MIN];

    memcpy(bytes, &name, sizeof(name));
    memcpy(bytes + sizeof(name), &header, UMI_HEADER_MIN);
    feed(ep->base.worker, UMI_AM_LENT, bytes, sizeof(bytes));
}

static char *out, *in;

/* Opened, and come to terms if that is possible. */
static void
open_pair(pair *p)
{
    memset(&sys, 0, sizeof(sys));
    p->config.rndv_thresh_shm = 1;
    p->config.cma_min         = 0;
    p->config.cma_max         = 1024 * KIB;
    pair_open(p);
}

/* Containers may forbid the system call. */
static bool
may_read(void)
{
    struct iovec local = {in, 1}, remote = {out, 1};

    return __real_process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

/* The lender's, and the reader's. */
static umi_lend_agreement *
client_agreement(const pair *p)
{
    return umi_lend_agreement_of(p->client->base.link);
}

static umi_lend_agreement *
server_agreement(const pair *p)
{
    return umi_lend_agreement_of(p->server->base.link);
}

static void
open_lending_pair(pair *p)
{
    if (!may_read()) {
        skip();
    }
    open_pair(p);
    assert_int_equal(pass(p, out, 1, in, 1), UMX_OK);
    PAIR_UNTIL_OPTIONAL(p, client_agreement(p)->may_lend);
    assert_int_equal(sys.reads, 0);
}

/* All of `out`. */
static void
lend(pair *p, op *send_op)
{
    op_send(send_op, p->client, 0, pair_tag(1), out, SIZE);
}

static int
setup(void **state)
{
    out = malloc(SIZE);
    in  = malloc(SIZE);
    if (out == NULL || in == NULL) {
        return -1;
    }
    fill_pattern(out, SIZE, 1);
    memset(in, 0, SIZE);
    memset(&sys, 0, sizeof(sys));
    return pair_setup(state);
}

static int
teardown(void **state)
{
    int failed = pair_teardown(state);

    free(out);
    free(in);
    return failed;
}

/* ---- messages ------------------------------------------------------------
 */

static void
test_the_receiver_reads_what_is_lent(void **state)
{
    pair *p = *state;

    open_lending_pair(p);
    for (size_t len = FEW + 1; len <= SIZE; len = 3 * len + 1) {
        unsigned before = sys.reads;

        memset(in, 0, SIZE);
        assert_int_equal(pass(p, out, len, in, len), UMX_OK);
        check_pattern(in, len, 1);
        assert_int_equal(sys.reads, before + 1);
    }
    assert_int_equal(pass(p, out, SIZE, in, SIZE), UMX_OK);
    check_pattern(in, SIZE, 1);
}

static void
test_both_sides_lend(void **state)
{
    pair *p = *state;
    op    send_op, recv_op;

    open_lending_pair(p);
    for (int i = 0; i < 3; i++) {
        op_send(&send_op, p->server, 0, pair_tag(1), out, SIZE);
        op_recv(&recv_op, p->client, 0, pair_any, in, SIZE);
        assert_int_equal(op_wait(p, &recv_op), UMX_OK);
        assert_int_equal(op_wait(p, &send_op), UMX_OK);
        pair_settle(p);
        check_pattern(in, SIZE, 1);
    }
    assert_true(sys.reads > 0);
}

static void
test_the_loan_lasts_until_the_message_is_read(void **state)
{
    pair *p = *state;
    op    send_op, recv_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    assert_false(op_is_done(&send_op));
    assert_int_equal(p->client->pending_bytes, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 1);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(p->client->pending_bytes, 0);
}

static void
test_a_message_that_is_too_long_is_not_read(void **state)
{
    pair *p = *state;

    op send_op, recv_op;

    open_lending_pair(p);
    op_send(&send_op, p->client, 0, pair_tag(1), out, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE - 1);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(sys.reads, 0);
    assert_false(op_is_done(&send_op));
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    check_pattern(in, SIZE, 1);
}

static void
test_a_message_that_is_dropped_is_not_read(void **state)
{
    pair *p = *state;
    op    send_op, recv_op;

    open_lending_pair(p);
    lend(p, &send_op);
    op_recv_message(&recv_op, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_false(op_is_done(&send_op));
    umx_message_drop(recv_op.message);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(sys.reads, 0);
}

/* The lengths differ, and the receive wants them to be the same. */
static void
check_exact(pair *p, bool is_there_first)
{
    const umx_match exact = {.flags = UMX_MATCH_ANY | UMX_MATCH_EXACT};
    op              send_op, recv_op;

    op_send(&send_op, p->client, 0, pair_tag(1), out, SIZE - 1);
    if (is_there_first) {
        pair_settle(p);
    }
    op_recv(&recv_op, p->server, 0, exact, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_LENGTH_MISMATCH);
    assert_false(op_is_done(&send_op));
    op_recv(&recv_op, p->server, 0, exact, in, SIZE - 1);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    check_pattern(in, SIZE - 1, 1);
}

static void
test_a_length_that_differs_is_told(void **state)
{
    pair *p = *state;

    open_lending_pair(p);
    check_exact(p, false);
    check_exact(p, true);
    assert_int_equal(sys.reads, 2);
}

/* A loan that was read is given back even if memory is short. */
static void
test_it_is_given_back_without_memory(void **state)
{
    pair     *p = *state;
    umi_pool *pool;
    void     *first, *next;
    op        send_op, recv_op;

    open_lending_pair(p);
    pool = &p->server_worker->lend->objects;
    lend(p, &send_op);
    pair_settle(p);
    sys.has_no_memory = true;
    for (first = NULL; (next = umi_pool_get(pool)) != NULL; first = next) {
        *(void **)next = first;
    }
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    sys.has_no_memory = false;
    for (; first != NULL; first = next) {
        next = *(void **)first;
        umi_pool_put(pool, first);
    }
}

static void
test_it_goes_where_memory_has_gaps(void **state)
{
    pair         *p      = *state;
    const umx_dim dims[] = {{100, 2000}, {1000, 1}};
    umx_layout    layout;
    umx_buffer    buf = umx_host_buffer(in, 0);
    op            send_op, recv_op = {.status = UMX_INPROGRESS};
    umx_op_params params = op_params(&recv_op);

    open_lending_pair(p);
    assert_int_equal(umx_layout_init(&layout, 1, 2, dims, &buf.len), UMX_OK);
    buf.layout     = &layout;
    recv_op.status = umx_channel_recv(p->server, 0, &pair_any, &buf, &params,
                                      &recv_op.req, &recv_op.info);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    op_send(&send_op, p->client, 0, pair_tag(1), out, buf.len);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    for (size_t i = 0; i < 100; i++) {
        assert_memory_equal(in + 2000 * i, out + 1000 * i, 1000);
    }
    assert_int_equal(sys.reads, 1);
}

static void
test_a_cancelled_send_is_withdrawn(void **state)
{
    pair         *p   = *state;
    umx_match     any = pair_any;
    umx_recv_info info;
    op            send_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    assert_int_equal(umx_request_cancel(send_op.req), UMX_OK);
    memset(out, 'x', SIZE);
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, umx_channel_probe(p->server, 0, &any, &info) ==
                      UMX_ERR_NO_MESSAGE);
    assert_int_equal(client_agreement(p)->table->num_free, UMI_LEND_SLOTS);
}

static op *cancelled; /* by cancel_it() */

static void
cancel_it(void)
{
    sys.before_bytes = NULL;
    assert_int_equal(umx_request_cancel(cancelled->req), UMX_OK);
    memset(out, 'x', SIZE);
}

/* Cancelled while it is read: the receive waits for the next message. */
static void
test_a_send_that_is_cancelled_while_it_is_read(void **state)
{
    pair *p = *state;
    op    send_op, recv_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    cancelled        = &send_op;
    sys.before_bytes = cancel_it;
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_CANCELED);
    pair_settle(p);
    fill_pattern(out, SIZE, 2);
    lend(p, &send_op);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 2);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
}

/* The endpoint ends instead of a WITHDRAW. */
static void
test_a_receive_of_an_ended_loan_fails_with_its_endpoint(void **state)
{
    pair *p = *state;
    op    send_op, recv_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    cancelled        = &send_op;
    sys.before_bytes = cancel_it;
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    umx_ep_abort(p->server);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_CANCELED);
}

/* ---- the ends of endpoints -----------------------------------------------
 */

static void
test_nothing_is_read_once_the_lender_has_ended(void **state)
{
    pair *p = *state;
    op    send_op, take_op, read_op;

    open_lending_pair(p);
    lend(p, &send_op);
    op_recv_message(&take_op, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &take_op), UMX_OK);
    umx_ep_abort(p->client);
    while (!op_is_done(&send_op)) {
        umx_worker_poll(p->client_worker);
    }
    assert_true(send_op.status < 0);
    memset(out, 'x', SIZE); /* the caller's again */
    op_message_recv(&read_op, take_op.message, in, SIZE);
    assert_int_equal(op_wait(p, &read_op), UMX_ERR_CONNECTION_RESET);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_CONNECTION_RESET);
}

static void
test_a_close_waits_until_the_peer_has_read(void **state)
{
    pair *p = *state;
    op    send_op, close_op, recv_op;

    open_lending_pair(p);
    lend(p, &send_op);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &close_op), UMX_OK); /* nobody has asked */
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    memset(out, 'x', SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 1);
}

/* A loan is read when the program receives it, not when the connection
 * closes. */
static void
test_a_close_ends_when_the_last_loan_is_read(void **state)
{
    pair *p = *state;
    op    send_op, close_op, recv_op;

    p->config.goodbye_bytes = 0;
    open_lending_pair(p);
    lend(p, &send_op);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    PAIR_UNTIL(p, umx_ep_is_peer_closed(p->server));
    assert_false(op_is_done(&close_op));
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 1);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
}

/* Before that is told. */
static void
test_a_send_to_a_peer_that_is_gone_fails(void **state)
{
    pair *p = *state;
    op    send_op;

    open_lending_pair(p);
    umi_link_close(p->client->base.link);
    lend(p, &send_op);
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_CONNECTION_RESET);
}

static void
test_what_the_receiver_closes_on_ends(void **state)
{
    pair *p = *state;
    op    send_op, close_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    op_close(&close_op, p->server, SECOND_NS);
    assert_int_equal(op_wait(p, &send_op), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    assert_int_equal(sys.reads, 0);
}

static void
test_what_the_receiver_has_read_when_it_closes_is_sent(void **state)
{
    pair *p = *state;
    op    send_op, recv_op, close_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    op_close(&close_op, p->server, SECOND_NS);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    check_pattern(in, SIZE, 1);
}

static void
test_a_message_that_fits_no_receive_is_returned(void **state)
{
    pair *p = *state;
    op    send_op, o;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, 1),
                     UMX_ERR_MESSAGE_TRUNCATED);
    op_recv(&o, p->server, 0, pair_any, in, 1);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(sys.reads, 0);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "b", 1), UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(in[0], 'b');
}

static void
test_a_worker_may_end_with_loans(void **state)
{
    pair *p = *state;
    op    send_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    umx_ep_destroy(p->client);
    p->client = NULL;
    umx_worker_destroy(p->client_worker);
    assert_true(op_is_done(&send_op));
    assert_true(send_op.status < 0);
    assert_int_equal(umx_worker_create(p->client_context, &p->client_worker),
                     UMX_OK);
}

/* ---- no terms ------------------------------------------------------------
 */

static void
check_rendezvous(pair *p)
{
    unsigned reads = sys.reads;

    for (int i = 0; i < 3; i++) {
        memset(in, 0, SIZE);
        assert_int_equal(pass(p, out, SIZE, in, SIZE), UMX_OK);
        check_pattern(in, SIZE, 1);
        pair_settle(p);
    }
    assert_int_equal(sys.reads, reads);
}

static void
test_no_process_reads_its_own_memory(void **state)
{
    open_pair(*state);
    sys.is_one_process = true;
    check_rendezvous(*state);
}

static void
test_without_permission_messages_go_by_rendezvous(void **state)
{
    open_pair(*state);
    sys.error = EPERM;
    check_rendezvous(*state);
}

static void
test_memory_out_of_reach_goes_by_rendezvous(void **state)
{
    open_lending_pair(*state);
    sys.error = EFAULT;
    check_rendezvous(*state);
}

static void
test_a_limit_of_0_lends_nothing(void **state)
{
    pair *p = *state;

    p->config.rndv_thresh_shm = 1;
    pair_open(p);
    check_rendezvous(p);
    assert_int_equal(p->client->base.lend->step, UMI_LEND_NOT_ASKED);
}

static void
test_other_lengths_go_by_rendezvous(void **state)
{
    pair *p = *state;

    open_lending_pair(p);
    p->context->config.cma_max = SIZE - 1;
    check_rendezvous(p);
    p->context->config.cma_min = SIZE + 1;
    p->context->config.cma_max = 2 * SIZE;
    check_rendezvous(p);
}

/* Shorter than what goes by rendezvous otherwise. */
static void
test_what_would_be_eager_is_lent(void **state)
{
    pair *p = *state;

    open_lending_pair(p);
    umi_offer_limit(p->client, UMI_OFFER_RNDV,
                    (umi_lengths){.min = SIZE_MAX, .max = SIZE_MAX});
    assert_int_equal(pass(p, out, SIZE, in, SIZE), UMX_OK);
    check_pattern(in, SIZE, 1);
    assert_int_equal(sys.reads, 1);
}

static void
test_over_tcp_nothing_is_lent(void **state)
{
    pair *p = *state;

    p->tls                    = "tcp";
    p->config.rndv_thresh_net = 1;
    p->config.cma_min         = 0;
    p->config.cma_max         = SIZE;
    pair_open(p);
    check_rendezvous(p);
    feed_note(p->server, (umi_lend_note){.kind = UMI_LEND_ASK});
    assert_int_equal(server_agreement(p)->socket.fd, -1);
}

static void
test_a_loan_that_cannot_be_read_fails_the_endpoint(void **state)
{
    pair *p = *state;
    op    send_op, take_op, read_op;

    open_lending_pair(p);
    lend(p, &send_op);
    op_recv_message(&take_op, p->server, 0, pair_any);
    assert_int_equal(op_wait(p, &take_op), UMX_OK);
    sys.error = ESRCH;
    op_message_recv(&read_op, take_op.message, in, SIZE);
    assert_true(op_wait(p, &read_op) < 0);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_true(op_wait(p, &send_op) < 0);
}

/* A receive into `in` that is told that there is no such loan. */
static void
check_refused(pair *p)
{
    op recv_op;

    memset(in, 'i', SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CONNECTION_RESET);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 0);
    }
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_CONNECTION_RESET);
}

/* A receive into `in` that finds its loan ended: it gets nothing, and waits for
 * the lender to say why, or to go. */
static void
check_ended(pair *p)
{
    op recv_op;

    memset(in, 'i', SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 0);
    }
    umx_ep_abort(p->client);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CONNECTION_RESET);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_CONNECTION_RESET);
}

/* ---- loans that are over -------------------------------------------------
 */

/* Return the last loan of the client. */
static umi_lend_loan
last_loan(const pair *p)
{
    const umi_lend_table *table = client_agreement(p)->table;
    umi_lend_loan         name  = {.id = table->last_id, .len = SIZE};

    name.slot = table->free[table->num_free];
    assert_int_equal(table->slots[name.slot].id, name.id);
    return name;
}

static void
feed_return(pair *p)
{
    umi_lend_loan name = last_loan(p);
    umi_lend_note note = {.kind = UMI_LEND_RETURN};

    note.u.loan.id   = name.id;
    note.u.loan.slot = name.slot;
    feed_note(p->client, note);
}

/* A reader that gives a loan back and reads on gets nothing. */
static void
test_what_has_been_returned_is_not_read(void **state)
{
    pair *p = *state;
    op    send_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    feed_return(p);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    memset(out, 'x', SIZE); /* the caller's again */
    check_ended(p);
    assert_int_equal(sys.reads, 0);
}

static pair *reading;

static void
return_it_and_write(void)
{
    sys.before_bytes = NULL;
    feed_return(reading);
    memset(out, 'x', SIZE);
}

static void
test_what_is_returned_while_it_is_read_is_wiped(void **state)
{
    pair *p = reading = *state;
    op    send_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    sys.before_bytes = return_it_and_write;
    check_ended(p);
    assert_int_equal(sys.reads, 1);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
}

static op next_op;

static void
return_it_and_lend_again(void)
{
    umi_lend_loan name = last_loan(reading);

    return_it_and_write();
    lend(reading, &next_op);
    assert_int_equal(last_loan(reading).slot, name.slot);
    assert_int_not_equal(last_loan(reading).id, name.id);
}

static void
test_a_slot_that_is_used_again_is_not_the_loan(void **state)
{
    pair *p = reading = *state;
    op    send_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    sys.before_bytes = return_it_and_lend_again;
    check_ended(p);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_true(op_wait(p, &next_op) < 0);
}

/* A loan for memory with gaps is first written to a block. */
static void
test_memory_with_gaps_gets_nothing_of_a_loan_that_is_over(void **state)
{
    pair         *p = reading = *state;
    const umx_dim dims[]      = {{100, 2000}, {1000, 1}};
    umx_layout    layout;
    umx_buffer    buf = umx_host_buffer(in, 0);
    op            send_op, recv_op = {.status = UMX_INPROGRESS};
    umx_op_params params = op_params(&recv_op);

    open_lending_pair(p);
    assert_int_equal(umx_layout_init(&layout, 1, 2, dims, &buf.len), UMX_OK);
    buf.layout = &layout;
    op_send(&send_op, p->client, 0, pair_tag(1), out, buf.len);
    pair_settle(p);
    memset(in, 'i', SIZE);
    sys.before_bytes = return_it_and_write;
    recv_op.status   = umx_channel_recv(p->server, 0, &pair_any, &buf, &params,
                                        &recv_op.req, &recv_op.info);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    umx_ep_abort(p->client);
    assert_true(op_wait(p, &recv_op) < 0);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 'i');
    }
    (void)op_wait(p, &send_op);
}

/* More at a time than the table has slots, again and again. */
static void
test_what_the_table_has_no_slot_for_goes_by_rendezvous(void **state)
{
    enum {
        COUNT = UMI_LEND_SLOTS + 50,
        LEN   = 1000
    };
    pair    *p = *state;
    op       sends[COUNT], recvs[COUNT];
    uint64_t first;

    open_lending_pair(p);
    first = client_agreement(p)->table->last_id;
    for (unsigned round = 0; round < 5; round++) {
        memset(in, 0, SIZE);
        for (unsigned i = 0; i < COUNT; i++) {
            op_send(&sends[i], p->client, 0, pair_tag(i), out + i, LEN);
        }
        assert_int_equal(client_agreement(p)->table->num_free, 0);
        assert_int_equal(sys.reads, round * UMI_LEND_SLOTS);
        for (unsigned i = 0; i < COUNT; i++) {
            op_recv(&recvs[i], p->server, 0, pair_tag(COUNT - 1 - i), in, LEN);
            assert_int_equal(op_wait(p, &recvs[i]), UMX_OK);
            assert_memory_equal(in, out + COUNT - 1 - i, LEN);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        }
        assert_int_equal(client_agreement(p)->table->num_free, UMI_LEND_SLOTS);
        assert_int_equal(client_agreement(p)->table->last_id - first,
                         (round + 1) * UMI_LEND_SLOTS);
    }
}

/* ---- lies ----------------------------------------------------------------
 */

static void
test_a_loan_without_terms_fails_the_endpoint(void **state)
{
    pair *p = *state;

    open_pair(p);
    feed_lent(p->server, (umi_lend_loan){.id = 1, .len = SIZE});
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
    assert_int_equal(sys.reads, 0);
}

/* A loan is looked up in the table: an address in the message is not used. */
static void
test_a_loan_that_is_not_in_the_table_is_not_read(void **state)
{
    pair         *p = *state;
    umi_lend_loan name;

    open_lending_pair(p);
    name = (umi_lend_loan){.id  = client_agreement(p)->table->last_id,
                           .len = SIZE};
    feed_lent(p->server, name);
    check_ended(p);
    assert_int_equal(sys.reads, 0);
}

static void
test_a_slot_that_shows_nothing_is_not_read(void **state)
{
    pair *p = *state;
    op    send_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, SIZE), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    sys.reads = 0;
    feed_lent(p->server, (umi_lend_loan){.id = 0, .len = SIZE});
    check_refused(p);
    assert_int_equal(sys.reads, 0);
}

/* A copy of a slot lies in the lender's memory, behind its table: somebody has
 * sent it there. */
static void
test_a_planted_slot_is_not_looked_at(void **state)
{
    pair          *p    = *state;
    umi_lend_slot *slot = malloc(sizeof(*slot));
    umi_lend_loan  name = {.id = 42, .len = SIZE};
    size_t         away;

    open_lending_pair(p);
    assert_non_null(slot);
    slot->id      = name.id;
    slot->address = (uintptr_t)out;
    slot->len     = SIZE;
    away      = (uintptr_t)slot - (uintptr_t)client_agreement(p)->table->slots;
    name.slot = (uint32_t)(away / sizeof(*slot));
    feed_lent(p->server, name);
    check_refused(p);
    assert_int_equal(sys.reads, 0);
    free(slot);
}

static void
test_a_length_that_is_not_the_tables_is_not_read(void **state)
{
    pair         *p = *state;
    umi_lend_loan name;
    op            send_op;

    open_lending_pair(p);
    lend(p, &send_op);
    name = last_loan(p);
    name.len -= 1;
    feed_lent(p->server, name); /* before the true one has come */
    in[SIZE - 1] = 0;
    memset(in, 'i', SIZE - 1);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, SIZE),
                     UMX_ERR_CONNECTION_RESET);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 0);
    }
    assert_int_equal(sys.reads, 0);
    assert_true(op_wait(p, &send_op) < 0);
}

/* Numbers that mean something, now and then, among any. */
static void
test_noise_does_no_harm(void **state)
{
    pair    *p = *state;
    uint64_t words[12];

    open_lending_pair(p);
    srand(1);
    for (int i = 0; i < 20000; i++) {
        unsigned id  = (rand() % 2 == 0) ? UMI_AM_LENT : UMI_AM_NOTE;
        size_t   len = (rand() % 2 == 0) ? 48 : (size_t)rand() % 96;

        for (int j = 0; j < 12; j++) {
            words[j] = ((uint64_t)rand() << 32 | (unsigned)rand()) >>
                       (rand() % 64);
        }
        if (id == UMI_AM_NOTE && rand() % 4 == 0) {
            words[0] = p->server->base.wire_id;
            words[1] = 1 + (unsigned)rand() % 3;
        }
        feed(p->server_worker, id, words, len);
    }
    assert_int_equal(pass(p, out, SIZE, in, SIZE), UMX_OK);
    check_pattern(in, SIZE, 1);
}

static void
test_a_return_of_what_is_not_lent_is_ignored(void **state)
{
    pair         *p = *state;
    umi_lend_loan name;
    umi_lend_note note = {.kind = UMI_LEND_RETURN};
    op            send_op, recv_op;

    open_lending_pair(p);
    feed_note(p->server, note); /* the client has never lent */
    lend(p, &send_op);
    pair_settle(p);
    name             = last_loan(p);
    note.u.loan.id   = name.id;
    note.u.loan.slot = name.slot ^ 1;
    feed_note(p->client, note);
    note.u.loan.id   = name.id + 1;
    note.u.loan.slot = name.slot;
    feed_note(p->client, note);
    note.u.loan.id   = name.id;
    note.u.loan.slot = UMI_LEND_SLOTS;
    feed_note(p->client, note);
    assert_false(op_is_done(&send_op));
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
}

int
main(void)
{
#define TEST(f)                      \
    {                                \
#f, f, setup, teardown, NULL \
    }
    const struct CMUnitTest tests[] = {
        TEST(test_the_receiver_reads_what_is_lent),
        TEST(test_both_sides_lend),
        TEST(test_the_loan_lasts_until_the_message_is_read),
        TEST(test_a_message_that_is_too_long_is_not_read),
        TEST(test_a_message_that_is_dropped_is_not_read),
        TEST(test_a_length_that_differs_is_told),
        TEST(test_it_is_given_back_without_memory),
        TEST(test_it_goes_where_memory_has_gaps),
        TEST(test_a_cancelled_send_is_withdrawn),
        TEST(test_a_send_that_is_cancelled_while_it_is_read),
        TEST(test_a_receive_of_an_ended_loan_fails_with_its_endpoint),
        TEST(test_nothing_is_read_once_the_lender_has_ended),
        TEST(test_a_close_waits_until_the_peer_has_read),
        TEST(test_a_close_ends_when_the_last_loan_is_read),
        TEST(test_a_send_to_a_peer_that_is_gone_fails),
        TEST(test_what_the_receiver_closes_on_ends),
        TEST(test_what_the_receiver_has_read_when_it_closes_is_sent),
        TEST(test_a_message_that_fits_no_receive_is_returned),
        TEST(test_a_worker_may_end_with_loans),
        TEST(test_no_process_reads_its_own_memory),
        TEST(test_without_permission_messages_go_by_rendezvous),
        TEST(test_memory_out_of_reach_goes_by_rendezvous),
        TEST(test_a_limit_of_0_lends_nothing),
        TEST(test_other_lengths_go_by_rendezvous),
        TEST(test_what_would_be_eager_is_lent),
        TEST(test_over_tcp_nothing_is_lent),
        TEST(test_a_loan_that_cannot_be_read_fails_the_endpoint),
        TEST(test_what_has_been_returned_is_not_read),
        TEST(test_what_is_returned_while_it_is_read_is_wiped),
        TEST(test_a_slot_that_is_used_again_is_not_the_loan),
        TEST(test_memory_with_gaps_gets_nothing_of_a_loan_that_is_over),
        TEST(test_what_the_table_has_no_slot_for_goes_by_rendezvous),
        TEST(test_a_loan_without_terms_fails_the_endpoint),
        TEST(test_a_loan_that_is_not_in_the_table_is_not_read),
        TEST(test_a_slot_that_shows_nothing_is_not_read),
        TEST(test_a_planted_slot_is_not_looked_at),
        TEST(test_a_length_that_is_not_the_tables_is_not_read),
        TEST(test_noise_does_no_harm),
        TEST(test_a_return_of_what_is_not_lent_is_ignored),
    };

    return UNIT_RUN(tests);
}
