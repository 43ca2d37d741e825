/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair child wrap=umi_process_is_self */
/* Three parties. The owner, another process, lends memory to its peer. The
 * reader, in this process, reads what its peer lends. Between them, in this
 * process too, is somebody who is the peer of both, and passes on what it
 * likes. */
#include "child.h"
#include "pair.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lend/lend.h"
#include "lend/agree.h"
#include "util/process.h"
#include "codec/header.h"

enum {
    SIZE = 300 * 1024
};

bool __wrap_umi_process_is_self(pid_t pid);

/* Say that the worker in the middle is in the reader's process. */
bool
__wrap_umi_process_is_self(pid_t pid)
{
    (void)pid;
    return false;
}

static umx_worker *
new_worker(umx_context **context_p)
{
    umx_config  config;
    umx_worker *worker;

    umx_config_default(&config);
    config.rndv_thresh_shm = 1;
    config.cma_min         = 0;
    config.cma_max         = 1024 * 1024;
    *context_p             = pair_context(NULL, &config);
    assert_int_equal(umx_worker_create(*context_p, &worker), UMX_OK);
    return worker;
}

static umx_ep *accepted;

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    (void)listener;
    (void)arg;
    accepted = ep;
}

static umx_listener *
listen_at(umx_worker *worker, struct sockaddr_in *addr)
{
    umx_listener_params params = {.addr      = (void *)addr,
                                  .addr_len  = sizeof(*addr),
                                  .on_accept = on_accept};
    umx_listener       *listener;
    size_t              len = sizeof(*addr);

    *addr                 = (struct sockaddr_in){.sin_family = AF_INET};
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(umx_listener_create(worker, &params, &listener), UMX_OK);
    assert_int_equal(umx_listener_address(listener, (void *)addr, &len),
                     UMX_OK);
    return listener;
}

/* ---- the owner -----------------------------------------------------------
 */

/* Sends block after block to who connects: lent, once that is agreed. */
static int
run_owner(const char *arg)
{
    static char        block[SIZE];
    umx_context       *context;
    umx_worker        *worker = new_worker(&context);
    struct sockaddr_in addr;
    op                 o;

    (void)arg;
    memset(block, 'b', SIZE);
    (void)listen_at(worker, &addr);
    child_write(CHILD_OUT, &addr, sizeof(addr));
    while (accepted == NULL) {
        (void)!umx_worker_wait(worker, UMX_TIMEOUT_INFINITE);
    }
    for (;;) {
        op_send(&o, accepted, 0, pair_tag(1), block, SIZE);
        while (!op_is_done(&o)) {
            if (umx_worker_wait(worker, UMX_TIMEOUT_INFINITE) < 0) {
                return 1;
            }
        }
    }
}

/* ---- the one in the middle -----------------------------------------------
 */

static struct {
    child         owner;
    umx_context  *contexts[3];
    umx_worker   *workers[3];
    umx_worker   *reader, *to_owner, *to_reader; /* the three workers by name */
    umx_listener *listener;                      /* the reader's */
    umx_ep       *owner_ep;                      /* of to_owner */
    umx_ep       *reader_ep;                     /* of to_reader */
    umx_ep       *reader_end;                    /* of the reader's */
    umi_lend_note asked;                         /* by the owner */
    umi_lend_loan lent;                          /* by the owner, last */
} all;

static void
step(void)
{
    struct pollfd fds[3];
    bool          is_idle = true;

    for (int i = 0; i < 3; i++) {
        unsigned before = all.workers[i]->activity;

        is_idle = umx_worker_drain(all.workers[i]) == UMX_OK &&
                  before == all.workers[i]->activity && is_idle;
        fds[i] = (struct pollfd){.fd     = umx_worker_fd(all.workers[i]),
                                 .events = POLLIN};
    }
    if (is_idle && poll(fds, 3, 100) == 0) {
        UNIT_IDLE();
    }
}

#define UNTIL(condition)     \
    do {                     \
        while (!(condition)) \
            step();          \
    } while (0)

/* For what is done without where memory is short. */
#define UNTIL_OPTIONAL(condition) \
    do {                          \
        UNIT_OPTIONAL(true);      \
        UNTIL(condition);         \
        UNIT_OPTIONAL(false);     \
    } while (0)

/* UCX reads the header until it has sent it. */
static void
send_header(umx_ep *ep, unsigned id, const void *header, size_t len)
{
    static char         bytes[64][128];
    static unsigned     next;
    char               *copy   = bytes[next++ % 64];
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags        = UCP_AM_SEND_FLAG_EAGER};

    assert_true(len <= sizeof(bytes[0]));
    memcpy(copy, header, len);
    (void)ucp_am_send_nbx(ep->base.handle, id, copy, len, NULL, 0, &params);
}

static void
pass_on(umx_ep *ep, umi_lend_note note)
{
    note.endpoint = ep->base.remote_id;
    send_header(ep, UMI_AM_NOTE, &note, sizeof(note));
}

static umi_lend_note
note_of(const umi_am_arrival *arrival)
{
    umi_lend_note note;

    memcpy(&note, arrival->header, sizeof(note));
    return note;
}

static int
on_note_of_owner(umx_worker *worker, const umi_am_arrival *arrival)
{
    (void)worker;
    all.asked = note_of(arrival);
    return UMI_AM_CONSUMED;
}

static int
on_note_of_reader(umx_worker *worker, const umi_am_arrival *arrival)
{
    (void)worker;
    pass_on(all.owner_ep, note_of(arrival));
    return UMI_AM_CONSUMED;
}

static int
on_loan_of_owner(umx_worker *worker, const umi_am_arrival *arrival)
{
    (void)worker;
    memcpy(&all.lent, arrival->header, sizeof(all.lent));
    return UMI_AM_CONSUMED;
}

/* The next message to the reader, as lent by its peer. */
static void
lend_to_reader(umi_lend_loan name)
{
    umi_header header = {
        .kind     = UMI_KIND_MESSAGE,
        .flags    = UMI_FLAG_UNTAGGED,
        .seq      = umi_channels_of(all.reader_end)->channel0.rx_seq,
        .endpoint = all.reader_ep->base.remote_id};
    char bytes[sizeof(name) + UMI_HEADER_MIN];

    memcpy(bytes, &name, sizeof(name));
    memcpy(bytes + sizeof(name), &header, UMI_HEADER_MIN);
    send_header(all.reader_ep, UMI_AM_LENT, bytes, sizeof(bytes));
}

static umx_ep *
connect_to(umx_worker *worker, const struct sockaddr_in *addr)
{
    umx_connect_params params = {.addr     = (const void *)addr,
                                 .addr_len = sizeof(*addr)};
    umx_ep            *ep;

    assert_int_equal(umx_ep_connect(worker, &params, &ep), UMX_OK);
    UNTIL(umx_ep_get_state(ep) != UMX_EP_CONNECTING);
    assert_int_equal(umx_ep_get_state(ep), UMX_EP_OPEN);
    return ep;
}

static int
setup(void **state)
{
    struct sockaddr_in owner_addr, reader_addr;

    (void)state;
    memset(&all, 0, sizeof(all));
    all.owner = child_start("owner", NULL);
    child_read(all.owner.in, &owner_addr, sizeof(owner_addr));
    for (int i = 0; i < 3; i++) {
        all.workers[i] = new_worker(&all.contexts[i]);
    }
    all.reader    = all.workers[0];
    all.to_owner  = all.workers[1];
    all.to_reader = all.workers[2];
    accepted      = NULL;
    all.listener  = listen_at(all.reader, &reader_addr);
    all.to_owner->am_handlers[UMI_AM_LENT].fn = on_loan_of_owner;
    all.reader_ep = connect_to(all.to_reader, &reader_addr);
    UNTIL(accepted != NULL);
    all.reader_end = accepted;
    if (*state != NULL) {
        all.to_owner->am_handlers[UMI_AM_NOTE].fn  = on_note_of_owner;
        all.to_reader->am_handlers[UMI_AM_NOTE].fn = on_note_of_reader;
    }
    all.owner_ep = connect_to(all.to_owner, &owner_addr);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    (void)child_end(&all.owner, SIGKILL);
    umx_ep_abort(all.reader_end);
    umx_ep_abort(all.reader_ep);
    umx_ep_abort(all.owner_ep);
    umx_ep_destroy(all.reader_end);
    umx_ep_destroy(all.reader_ep);
    umx_ep_destroy(all.owner_ep);
    umx_listener_destroy(all.listener);
    for (int i = 0; i < 3; i++) {
        umx_worker_destroy(all.workers[i]);
        umx_context_release(all.contexts[i]);
    }
    return 0;
}

static umi_lend_agreement *
agreement_of(const umx_ep *ep)
{
    return umi_lend_agreement_of(ep->base.link);
}

static char in[SIZE];

static umx_status
receive(umx_ep *ep)
{
    op o;

    memset(in, 'i', SIZE);
    op_recv(&o, ep, 0, pair_any, in, SIZE);
    UNTIL(op_is_done(&o));
    return o.status;
}

/* Messages that come before it does are received. */
static void
until_owner_lends(void)
{
    static char block[SIZE];
    op          o = {.req = NULL};

    UNIT_OPTIONAL(true);
    while (all.lent.id == 0) {
        if (op_is_done(&o)) {
            op_recv(&o, all.owner_ep, 0, pair_any, block, SIZE);
        }
        step();
    }
    UNIT_OPTIONAL(false);
    if (!op_is_done(&o)) {
        op_cancel(o.req);
        UNTIL(op_is_done(&o));
    }
}

/* ---- tests ---------------------------------------------------------------
 */

/* The owner goes to the reader's socket, but not as the reader's peer. */
static void
test_an_invitation_that_is_passed_on_is_of_no_use(void **state)
{
    (void)state;
    UNTIL_OPTIONAL(all.asked.kind == UMI_LEND_ASK);
    pass_on(all.reader_ep, all.asked);
    UNTIL_OPTIONAL(agreement_of(all.reader_end)->num_refused != 0 ||
                   agreement_of(all.reader_end)->source.size != 0);
    assert_int_equal(agreement_of(all.reader_end)->source.size, 0);
    assert_int_equal(agreement_of(all.reader_end)->source.pid, 0);
    lend_to_reader((umi_lend_loan){.id = 1, .len = SIZE});
    assert_int_equal(receive(all.reader_end), UMX_ERR_PROTOCOL);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 'i');
    }
}

/* Each of the two has come to terms with the one in the middle. */
static void
test_a_loan_that_is_passed_on_is_not_read(void **state)
{
    op o;

    (void)state;
    op_send(&o, all.reader_ep, 0, pair_tag(1), in, 1); /* asks */
    assert_int_equal(receive(all.reader_end), UMX_OK);
    UNTIL_OPTIONAL(agreement_of(all.reader_ep)->table != NULL);
    UNTIL_OPTIONAL(agreement_of(all.reader_ep)->reader.fd < 0 ||
                   agreement_of(all.reader_ep)->may_lend);
    if (!agreement_of(all.reader_ep)->may_lend) {
        skip(); /* containers may forbid to read */
    }
    until_owner_lends();
    assert_int_equal(agreement_of(all.owner_ep)->source.pid, all.owner.pid);
    lend_to_reader(all.lent);
    memset(in, 'i', SIZE);
    op_recv(&o, all.reader_end, 0, pair_any, in, SIZE);
    assert_int_equal(o.status, UMX_INPROGRESS);
    /* Nothing of that name is lent: the receive waits to be told why. */
    UNTIL(!umi_list_is_empty(
        &umi_channels_of(all.reader_end)->channel0.ended_loans));
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 0);
    }
    umx_ep_abort(all.reader_ep);
    UNTIL(op_is_done(&o));
    assert_int_equal(o.status, UMX_ERR_CONNECTION_RESET);
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {{"owner", run_owner}};
    const struct CMUnitTest  tests[]   = {
           {"test_an_invitation_that_is_passed_on_is_of_no_use",
            test_an_invitation_that_is_passed_on_is_of_no_use, setup, teardown,
            (void *)"passes notes on"},
           {"test_a_loan_that_is_passed_on_is_not_read",
            test_a_loan_that_is_passed_on_is_not_read, setup, teardown, NULL},
    };

    child_role(argc, argv, entries, 1);
    return UNIT_RUN(tests);
}
