/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair child */
/* Three parties. The owner, another process, has a secret and lends other
 * memory. The reader, in this process, reads what its peer lends. Between them
 * somebody, in this process too, who says to each that it is the other one,
 * and passes on what it likes. */
#include "child.h"
#include "pair.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cma.h"
#include "ops/cma_agree.h"
#include "wire/header.h"

enum {
    SIZE = 300 * 1024
};

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

static char secret[SIZE]; /* not lent */
static char block[SIZE];  /* lent to whom it takes for the reader */

/* What the test should know of it, and nobody in the middle could. */
typedef struct owner_facts {
    struct sockaddr_in addr;
    uint64_t           secret_at;
} owner_facts;

static int
run_owner(const char *arg)
{
    umx_context *context;
    umx_worker  *worker = new_worker(&context);
    owner_facts  facts  = {.secret_at = (uintptr_t)secret};
    op           first, second;

    (void)arg;
    memset(secret, 's', SIZE);
    memset(block, 'b', SIZE);
    (void)listen_at(worker, &facts.addr);
    child_write(CHILD_OUT, &facts, sizeof(facts));
    while (accepted == NULL) {
        (void)!umx_worker_wait(worker, UMX_TIMEOUT_INFINITE);
    }
    op_send(&first, accepted, 0, pair_tag(1), block, SIZE); /* asks */
    while (accepted->base.peer->cma == NULL ||
           !accepted->base.peer->cma->may_lend) {
        (void)!umx_worker_wait(worker, UMX_TIMEOUT_INFINITE);
    }
    op_send(&second, accepted, 0, pair_tag(1), block, SIZE); /* lends */
    while (!op_is_done(&second)) {
        (void)!umx_worker_wait(worker, UMX_TIMEOUT_INFINITE);
    }
    memset(block, 'x', SIZE); /* the owner's again */
    child_write(CHILD_OUT, "", 1);
    while (umx_worker_wait(worker, UMX_TIMEOUT_INFINITE) >= 0) {
        /* until the test kills this process */
    }
    return 1;
}

/* ---- the one in the middle -----------------------------------------------
 */

static struct {
    child         owner;
    owner_facts   facts;
    umx_context  *contexts[3];
    umx_worker   *workers[3];
    umx_worker   *reader, *to_owner, *to_reader; /* the same */
    umx_ep       *owner_ep;                      /* of to_owner */
    umx_ep       *reader_ep;                     /* of to_reader */
    umx_ep       *reader_end;                    /* of the reader's */
    umx_listener *listener;                      /* the reader's */
    umi_cma_note  early; /* of the owner, before there was the reader */
    umi_cma_loan  lent;  /* by the owner, last */
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
    if (is_idle) {
        (void)poll(fds, 3, 100);
    }
}

#define UNTIL(condition)     \
    do {                     \
        while (!(condition)) \
            step();          \
    } while (0)

/* UCX reads the header until it has sent it. */
static void
send_header(umx_ep *ep, unsigned id, const void *header, size_t len)
{
    static char         bytes[64][128];
    static unsigned     next;
    char               *copy   = bytes[next++];
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags        = UCP_AM_SEND_FLAG_EAGER};

    assert_true(next < 64 && len <= sizeof(bytes[0]));
    memcpy(copy, header, len);
    (void)ucp_am_send_nbx(ep->base.handle, id, copy, len, NULL, 0, &params);
}

static void
pass_on(umx_ep *ep, umi_cma_note note)
{
    note.endpoint = ep->base.remote_id;
    send_header(ep, UMI_AM_NOTE, &note, sizeof(note));
}

static umi_cma_note
note_of(const umi_am_arrival *arrival)
{
    umi_cma_note note;

    memcpy(&note, arrival->header, sizeof(note));
    return note;
}

static int
on_note_of_owner(umx_worker *worker, const umi_am_arrival *arrival)
{
    (void)worker;
    if (all.reader_ep != NULL) {
        pass_on(all.reader_ep, note_of(arrival));
    } else {
        all.early = note_of(arrival);
    }
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

/* The first message to the reader, as lent by its peer. */
static void
lend_to_reader(umi_cma_loan name)
{
    umi_header header = {.kind     = UMI_KIND_MESSAGE,
                         .flags    = UMI_FLAG_UNTAGGED,
                         .endpoint = all.reader_ep->base.remote_id};
    char       bytes[sizeof(name) + UMI_HEADER_MIN];

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
    return ep;
}

/* Until the reader takes the owner for its peer, and may read it. */
static int
setup(void **state)
{
    struct sockaddr_in reader_addr;
    umx_ep            *reader_ep;

    (void)state;
    memset(&all, 0, sizeof(all));
    all.owner = child_start("owner", NULL);
    child_read(all.owner.in, &all.facts, sizeof(all.facts));
    for (int i = 0; i < 3; i++) {
        all.workers[i] = new_worker(&all.contexts[i]);
    }
    all.reader    = all.workers[0];
    all.to_owner  = all.workers[1];
    all.to_reader = all.workers[2];
    accepted      = NULL;
    all.listener  = listen_at(all.reader, &reader_addr);
    memcpy(all.to_owner->id, all.reader->id, UMI_WORKER_ID_SIZE);
    all.to_owner->am_handlers[UMI_AM_NOTE].fn = on_note_of_owner;
    all.to_owner->am_handlers[UMI_AM_LENT].fn = on_loan_of_owner;
    /* The owner's id is in its answer to anybody. */
    all.owner_ep = connect_to(all.to_owner, &all.facts.addr);
    while (all.owner_ep->base.peer == NULL) {
        (void)!umx_worker_drain(all.to_owner);
    }
    memcpy(all.to_reader->id, all.owner_ep->base.peer->worker_id,
           UMI_WORKER_ID_SIZE);
    all.to_reader->am_handlers[UMI_AM_NOTE].fn = on_note_of_reader;
    reader_ep = connect_to(all.to_reader, &reader_addr);
    while (accepted == NULL || umx_ep_get_state(reader_ep) != UMX_EP_OPEN) {
        (void)!umx_worker_drain(all.to_reader);
        (void)!umx_worker_drain(all.reader);
    }
    all.reader_ep  = reader_ep;
    all.reader_end = accepted;
    if (all.early.kind != 0) {
        pass_on(all.reader_ep, all.early);
    }
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

static umi_cma *
reader_cma(void)
{
    return all.reader_end->base.peer->cma;
}

/* The owner has gone to the reader's socket: what the kernel says of that is
 * the owner. */
static void
until_owner_lends(void)
{
    UNTIL(reader_cma() != NULL &&
          (reader_cma()->source.size != 0 || reader_cma()->num_refused != 0));
    if (reader_cma()->source.size == 0) {
        skip(); /* containers may forbid to read */
    }
    assert_int_equal(reader_cma()->source.pid, all.owner.pid);
    UNTIL(all.lent.id != 0);
}

static char in[SIZE];

static umx_status
receive(void)
{
    op o;

    memset(in, 'i', SIZE);
    op_recv(&o, all.reader_end, 0, pair_any, in, SIZE);
    UNTIL(op_is_done(&o));
    return o.status;
}

static void
check_refused(umi_cma_loan name)
{
    lend_to_reader(name);
    assert_int_equal(receive(), UMX_ERR_CONNECTION_RESET);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 0);
    }
}

/* ---- tests ---------------------------------------------------------------
 */

/* That is forwarding: it could have read it, and sent it on. */
static void
test_what_is_lent_can_be_passed_on(void **state)
{
    (void)state;
    until_owner_lends();
    lend_to_reader(all.lent);
    assert_int_equal(receive(), UMX_OK);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 'b');
    }
}

static void
test_no_address_is_followed_that_the_owner_has_not_written(void **state)
{
    umi_cma_loan name;

    (void)state;
    until_owner_lends();
    name    = all.lent;
    name.id = all.facts.secret_at; /* all that is as long as an address */
    check_refused(name);
}

static void
test_nothing_beyond_the_table_is_read(void **state)
{
    umi_cma_loan name;

    (void)state;
    until_owner_lends();
    name = all.lent;
    name.slot =
        (uint32_t)((all.facts.secret_at - reader_cma()->source.address) /
                   sizeof(umi_cma_slot));
    check_refused(name);
}

static void
test_an_early_return_ends_what_can_be_passed_on(void **state)
{
    umi_cma_note note = {.kind = UMI_CMA_RETURN};
    char         has_ended;

    (void)state;
    until_owner_lends();
    note.endpoint    = all.owner_ep->base.remote_id;
    note.u.loan.id   = all.lent.id;
    note.u.loan.slot = all.lent.slot;
    send_header(all.owner_ep, UMI_AM_NOTE, &note, sizeof(note));
    step(); /* UCX sends it */
    child_read(all.owner.in, &has_ended, sizeof(has_ended));
    check_refused(all.lent);
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {{"owner", run_owner}};
#define TEST(f)                      \
    {                                \
#f, f, setup, teardown, NULL \
    }
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_lent_can_be_passed_on),
        TEST(test_no_address_is_followed_that_the_owner_has_not_written),
        TEST(test_nothing_beyond_the_table_is_read),
        TEST(test_an_early_return_ends_what_can_be_passed_on),
    };

    child_role(argc, argv, entries, 1);
    return UNIT_RUN(tests);
}
