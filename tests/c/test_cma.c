/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=umi_process_is_self wrap=process_vm_readv wrap=malloc */
#include "pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ops/cma.h"
#include "util/process.h"

enum {
    KIB    = 1024,
    SIZE   = 300 * KIB,
    FEW    = sizeof(umi_cma_proof) + sizeof(uint64_t), /* bytes, to check */
    ASK    = 1,                                        /* notes */
    INVITE = 2,
    RETURN = 5
};

/* ---- the system ----------------------------------------------------------
 */

static struct {
    bool     is_one_process; /* as the system says */
    int      error;          /* of process_vm_readv(), unless 0 */
    unsigned reads;          /* of more than a few bytes */
    size_t   read_bytes;
    bool     has_no_memory;
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
    n = __real_process_vm_readv(pid, local, num_local, remote, num_remote,
                                flags);
    if (n > FEW) {
        sys.reads++;
        sys.read_bytes += (size_t)n;
    }
    return n;
}

/* ---- a pair that lends ---------------------------------------------------
 */

/* One message there; the status of its receive. */
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

/* As if UCX handed it over. */
static void
feed(umx_worker *worker, unsigned id, const void *header, size_t len)
{
    umi_am_arrival arrival = {.header = header, .header_len = len};

    assert_int_equal(worker->am_handlers[id].fn(worker, &arrival),
                     UMI_AM_CONSUMED);
}

/* Of zeros but for its kind. */
static void
feed_note(umx_ep *ep, uint64_t kind)
{
    uint64_t note[6] = {ep->base.wire_id, kind};

    feed(ep->base.worker, UMI_AM_NOTE, note, sizeof(note));
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

static void
open_lending_pair(pair *p)
{
    if (!may_read()) {
        skip();
    }
    open_pair(p);
    assert_int_equal(pass(p, out, 1, in, 1), UMX_OK);
    pair_settle(p);
    pair_settle(p);
    assert_true(p->client->base.peer->cma.may_lend);
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

    open_lending_pair(p);
    assert_int_equal(pass(p, out, SIZE, in, SIZE - 1),
                     UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(sys.reads, 0);
    assert_int_equal(pass(p, out, SIZE, in, SIZE), UMX_OK);
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

/* What is said when it has been read. */
static void
test_it_is_given_back_without_memory(void **state)
{
    pair     *p = *state;
    umi_pool *pool;
    void     *first, *next;
    op        send_op, recv_op;

    open_lending_pair(p);
    pool = &p->server_worker->cma;
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
test_an_odd_address_is_no_loan(void **state)
{
    char bytes[2];

    (void)state;
    assert_false(umi_cma_is_loan(bytes));
    assert_false(umi_cma_is_loan(bytes + 1));
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
test_a_cancelled_send_is_lent_until_it_is_over(void **state)
{
    pair *p = *state;
    op    send_op, recv_op;

    open_lending_pair(p);
    lend(p, &send_op);
    umx_request_cancel(send_op.req);
    pair_settle(p);
    assert_false(op_is_done(&send_op));
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    check_pattern(in, SIZE, 1);
    op_wait(p, &send_op);
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

/* It is not read before the program does. */
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
    umi_peer_close(p->client->base.peer);
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

static pid_t thread_number;

static void *
tell_number(void *arg)
{
    pthread_barrier_t *barrier = arg;

    thread_number = (pid_t)syscall(SYS_gettid);
    (void)pthread_barrier_wait(barrier);
    (void)pthread_barrier_wait(barrier);
    return NULL;
}

static void
test_a_thread_is_of_its_process(void **state)
{
    pthread_barrier_t barrier;
    pthread_t         thread;

    (void)state;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, tell_number, &barrier), 0);
    (void)pthread_barrier_wait(&barrier);
    assert_true(__real_umi_process_is_self(thread_number));
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(__real_umi_process_is_self(getppid()));
    (void)pthread_barrier_destroy(&barrier);
}

static void
test_without_permission_messages_go_by_rendezvous(void **state)
{
    open_pair(*state);
    sys.error = EPERM;
    check_rendezvous(*state);
}

/* Who passes on the notes of two others cannot have one read the other. */
static void
test_nobody_lends_in_the_name_of_another(void **state)
{
    pair *p = *state;

    open_pair(p);
    p->client_worker->id[0] ^= 1;
    check_rendezvous(p);
    p->client_worker->id[0] ^= 1;
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
    assert_false(p->client->base.peer->cma.is_asked);
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
    p->client->rndv_thresh = SIZE_MAX;
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
    feed_note(p->server, ASK);
    assert_false(p->server->base.peer->cma.is_invited);
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

/* A process that got the number of the lender's. */
static void
test_nothing_is_taken_of_another_process(void **state)
{
    pair *p = *state;
    op    send_op, recv_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    p->client->base.peer->cma.shown.nonce[0] ^= 1;
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_true(op_wait(p, &recv_op) < 0);
    assert_true(op_wait(p, &send_op) < 0);
}

/* ---- lies ----------------------------------------------------------------
 */

/* It would be a way to have things written to memory. */
static void
test_an_invitation_is_answered_once(void **state)
{
    pair         *p = *state;
    umi_cma      *cma;
    umi_cma_proof shown;

    open_pair(p);
    cma           = &p->client->base.peer->cma;
    cma->is_asked = true;
    feed_note(p->client, INVITE);
    assert_true(cma->is_shown);
    shown = cma->shown;
    p->client_worker->id[0] ^= 1;
    feed_note(p->client, INVITE);
    p->client_worker->id[0] ^= 1;
    assert_memory_equal(&shown, &cma->shown, sizeof(shown));
}

static void
test_a_loan_without_terms_fails_the_endpoint(void **state)
{
    pair      *p       = *state;
    uint64_t   loan[6] = {1, (uintptr_t)out, (uintptr_t)out, 100};
    umi_header header  = {
         .kind = UMI_KIND_MESSAGE, .flags = UMI_FLAG_UNTAGGED, .endpoint = 0};

    open_pair(p);
    header.endpoint = p->server->base.wire_id;
    memcpy(loan + 4, &header, UMI_HEADER_MIN);
    feed(p->server_worker, UMI_AM_LENT, loan, sizeof(loan));
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    assert_int_equal(sys.reads, 0);
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
            words[1] = 1 + (unsigned)rand() % 5;
        }
        feed(p->server_worker, id, words, len);
    }
    assert_int_equal(pass(p, out, SIZE, in, SIZE), UMX_OK);
    check_pattern(in, SIZE, 1);
}

static void
test_a_return_of_somebody_elses_loan_is_ignored(void **state)
{
    pair    *p       = *state;
    uint64_t note[6] = {0, RETURN};
    op       send_op, recv_op;

    open_lending_pair(p);
    lend(p, &send_op);
    pair_settle(p);
    note[0] = p->client->base.wire_id;
    note[2] = 12345;
    feed(p->client_worker, UMI_AM_NOTE, note, sizeof(note));
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
        TEST(test_an_odd_address_is_no_loan),
        TEST(test_it_goes_where_memory_has_gaps),
        TEST(test_a_cancelled_send_is_lent_until_it_is_over),
        TEST(test_nothing_is_read_once_the_lender_has_ended),
        TEST(test_a_close_waits_until_the_peer_has_read),
        TEST(test_a_close_ends_when_the_last_loan_is_read),
        TEST(test_a_send_to_a_peer_that_is_gone_fails),
        TEST(test_what_the_receiver_closes_on_ends),
        TEST(test_a_worker_may_end_with_loans),
        TEST(test_no_process_reads_its_own_memory),
        TEST(test_a_thread_is_of_its_process),
        TEST(test_without_permission_messages_go_by_rendezvous),
        TEST(test_nobody_lends_in_the_name_of_another),
        TEST(test_memory_out_of_reach_goes_by_rendezvous),
        TEST(test_a_limit_of_0_lends_nothing),
        TEST(test_other_lengths_go_by_rendezvous),
        TEST(test_what_would_be_eager_is_lent),
        TEST(test_over_tcp_nothing_is_lent),
        TEST(test_a_loan_that_cannot_be_read_fails_the_endpoint),
        TEST(test_nothing_is_taken_of_another_process),
        TEST(test_an_invitation_is_answered_once),
        TEST(test_a_loan_without_terms_fails_the_endpoint),
        TEST(test_noise_does_no_harm),
        TEST(test_a_return_of_somebody_elses_loan_is_ignored),
    };

    return UNIT_RUN(tests);
}
