/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair child wrap=umi_process_is_self wrap=getsockopt */
/* tests: lend/agree */
#define _GNU_SOURCE /* struct ucred, process_vm_readv() */
#include "child.h"
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "lend/lend.h"
#include "lend/agree.h"
#include "util/process.h"

enum {
    KIB      = 1024,
    SIZE     = 300 * KIB,
    NOBODY   = 65534,
    SO_PIDFD = 77 /* SO_PEERPIDFD: the headers may be older */
};

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* ---- the system ----------------------------------------------------------
 */

static struct {
    bool  is_one_process; /* umi_process_is_self() may be true */
    bool  is_stranger;    /* the peer of a socket is another user's, */
    bool  is_elsewhere;   /* or in another namespace of processes */
    bool  has_no_pidfd;   /* of sockets: as before Linux 6.5 */
    pid_t pid;            /* of the peer, unless 0 */
} sys;

bool __real_umi_process_is_self(pid_t pid);
bool __wrap_umi_process_is_self(pid_t pid);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);

bool
__wrap_umi_process_is_self(pid_t pid)
{
    return sys.is_one_process && __real_umi_process_is_self(pid);
}

int
__wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    struct ucred *peer = value;
    int           rc;

    if (level == SOL_SOCKET && name == SO_PIDFD && sys.has_no_pidfd) {
        errno = ENOPROTOOPT;
        return -1;
    }
    rc = __real_getsockopt(fd, level, name, value, len);
    if (rc == 0 && level == SOL_SOCKET && name == SO_PEERCRED) {
        peer->uid = sys.is_stranger ? peer->uid + 1 : peer->uid;
        peer->pid = sys.is_elsewhere ? 0 : peer->pid;
        peer->pid = (sys.pid != 0) ? sys.pid : peer->pid;
    }
    return rc;
}

/* ---- a pair, of which the client wants to lend ---------------------------
 */

static char out[SIZE], in[SIZE];

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

/* Containers may forbid the system call. */
static void
need_reading(void)
{
    struct iovec local = {in, 1}, remote = {out, 1};

    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1) {
        skip();
    }
}

static void
open_pair(pair *p)
{
    need_reading();
    memset(&sys, 0, sizeof(sys));
    fill_pattern(out, SIZE, 1);
    p->config.rndv_thresh_shm = 1;
    p->config.cma_min         = 0;
    p->config.cma_max         = 1024 * KIB;
    pair_open(p);
}

/* Send one message from the client to the server. */
static void
pass(pair *p)
{
    op send_op, recv_op;

    memset(in, 0, SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    op_send(&send_op, p->client, 0, pair_tag(1), out, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    check_pattern(in, SIZE, 1);
}

/* Loans so far. */
static uint64_t
num_loans(const pair *p)
{
    umx_worker_stats stats;

    umx_worker_query(p->client_worker, &stats);
    return stats.loans;
}

static void
check_loan(pair *p)
{
    uint64_t before = num_loans(p);

    pass(p);
    assert_int_equal(num_loans(p), before + 1);
}

static void
check_rendezvous(pair *p)
{
    uint64_t before = num_loans(p);

    pass(p);
    pair_settle(p);
    pass(p);
    assert_int_equal(num_loans(p), before);
}

static void
until_agreed(pair *p)
{
    PAIR_UNTIL_OPTIONAL(p, client_agreement(p)->may_lend);
}

static void
open_lending_pair(pair *p)
{
    open_pair(p);
    pass(p);
    until_agreed(p);
}

/* A new connection of the same workers. */
static void
connect_again(pair *p)
{
    umx_ep_abort(p->client);
    umx_ep_destroy(p->client);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    umx_ep_destroy(p->server);
    p->client = p->server = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
}

/* Beside the one there is, so that the peer stays. */
static void
connect_beside(pair *p, umx_ep **client_p, umx_ep **server_p)
{
    *client_p = p->client;
    *server_p = p->server;
    p->server = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
}

static void
end_beside(umx_ep *client, umx_ep *server)
{
    umx_ep_abort(client);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
}

/* ---- who comes to the socket of an invitation ----------------------------
 */

static umi_lend_note kept_note;
static umi_am_fn     note_fn;

static int
keep_note(umx_worker *worker, const umi_am_arrival *arrival)
{
    (void)worker;
    memcpy(&kept_note, arrival->header, sizeof(kept_note));
    return UMI_AM_CONSUMED;
}

/* Opened, and the client does not see the INVITE before answer_invite(). */
static void
open_invited_pair(pair *p)
{
    open_pair(p);
    note_fn = p->client_worker->am_handlers[UMI_AM_NOTE].fn;
    p->client_worker->am_handlers[UMI_AM_NOTE].fn = keep_note;
    kept_note.kind                                = 0;
    pass(p);
    PAIR_UNTIL_OPTIONAL(p, kept_note.kind == UMI_LEND_INVITE);
    p->client_worker->am_handlers[UMI_AM_NOTE].fn = note_fn;
}

static void
hear_invite(const pair *p)
{
    umi_am_arrival arrival = {.header     = &kept_note,
                              .header_len = sizeof(kept_note)};

    assert_int_equal(note_fn(p->client_worker, &arrival), UMI_AM_CONSUMED);
}

static int
connect_to(const uint8_t *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t             len  = offsetof(struct sockaddr_un, sun_path) + 1;
    int                fd   = socket(AF_UNIX, SOCK_SEQPACKET, 0);

    strcpy(addr.sun_path + 1, "umx-lend-");
    for (int i = 0; i < UMI_LEND_NAME_SIZE; i++) {
        sprintf(addr.sun_path + 10 + 2 * i, "%02x", name[i]);
    }
    len += 9 + 2 * UMI_LEND_NAME_SIZE;
    if (connect(fd, (struct sockaddr *)&addr, (socklen_t)len) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Table of the introduction that introduction() makes for the client. */
static umi_lend_slot planted[1];

static umi_lend_introduction
introduction(const pair *p)
{
    umi_lend_introduction self = {.table = (uintptr_t)planted, .size = 1};

    memcpy(self.nonce, kept_note.u.invite.nonce, sizeof(self.nonce));
    memcpy(self.lender, p->client_worker->key, sizeof(self.lender));
    memcpy(self.reader, p->server_worker->key, sizeof(self.reader));
    return self;
}

static int
call_with(const void *data, size_t len)
{
    int fd = connect_to(kept_note.u.invite.name);

    assert_true(fd >= 0);
    assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
    return fd;
}

/* Nothing, or the answer, and that the connection is over. */
static bool
is_welcomed(int fd)
{
    uint8_t answer = 0;
    ssize_t n      = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT);

    if (n == sizeof(answer)) {
        assert_int_equal(answer, UMI_LEND_WELCOME);
        return true;
    }
    assert_true(n == 0 || errno == ECONNRESET); /* the connection is over */
    return false;
}

static void
check_is_refused(pair *p, const void *data, size_t len)
{
    unsigned before = server_agreement(p)->num_refused;
    int      fd     = call_with(data, len);

    PAIR_UNTIL(p, server_agreement(p)->num_refused == before + 1);
    assert_false(is_welcomed(fd));
    assert_int_equal(server_agreement(p)->source.size, 0);
    close(fd);
}

static void
test_the_invitation_is_for_one_lender(void **state)
{
    pair *p = *state;

    open_invited_pair(p);
    hear_invite(p);
    until_agreed(p);
    assert_int_equal(server_agreement(p)->socket.fd, -1);
    assert_int_equal(connect_to(kept_note.u.invite.name), -1);
    check_loan(p);
}

static void
test_a_nonce_is_good_once(void **state)
{
    pair                 *p = *state;
    umi_lend_introduction self;
    int                   first, second;

    open_invited_pair(p);
    self   = introduction(p);
    first  = call_with(&self, sizeof(self));
    second = call_with(&self, sizeof(self));
    PAIR_UNTIL(p, server_agreement(p)->source.size != 0);
    assert_true(is_welcomed(first));
    assert_false(is_welcomed(second));
    close(first);
    close(second);
    PAIR_UNTIL(p, server_agreement(p)->source.size == 0);
    hear_invite(p); /* nobody is there */
    check_rendezvous(p);
}

static void
test_who_is_not_invited_is_refused(void **state)
{
    pair                 *p = *state;
    umi_lend_introduction self, lie;

    open_invited_pair(p);
    self = lie = introduction(p);
    lie.nonce[15] ^= 1;
    check_is_refused(p, &lie, sizeof(lie));
    lie = self;
    lie.lender[0] ^= 1; /* the peer has passed its invitation on */
    check_is_refused(p, &lie, sizeof(lie));
    lie = self;
    lie.reader[0] ^= 1; /* the caller takes this worker for another */
    check_is_refused(p, &lie, sizeof(lie));
    check_is_refused(p, &self, sizeof(self) - 1);
    check_is_refused(p, &self, 0);
    p->server->base.link->is_proven = false; /* a key only claimed */
    check_is_refused(p, &self, sizeof(self));
    p->server->base.link->is_proven = true;
    hear_invite(p);
    until_agreed(p);
    check_loan(p);
}

static void
test_what_is_too_long_is_no_introduction(void **state)
{
    pair                 *p       = *state;
    umi_lend_introduction self[2] = {{.size = 0}};

    open_invited_pair(p);
    self[0] = introduction(p);
    check_is_refused(p, self, sizeof(self[0]) + 1);
}

static void
test_a_table_that_cannot_be_read_is_refused(void **state)
{
    pair                 *p = *state;
    umi_lend_introduction self;

    open_invited_pair(p);
    self       = introduction(p);
    self.table = 4096;
    check_is_refused(p, &self, sizeof(self));
    assert_int_equal(server_agreement(p)->socket.fd, -1);
}

/* A silent caller would keep the lender out. */
static void
test_who_says_nothing_is_dropped(void **state)
{
    pair *p = *state;
    int   fd;

    open_invited_pair(p);
    fd = connect_to(kept_note.u.invite.name);
    PAIR_UNTIL(p, server_agreement(p)->lender.fd >= 0);
    hear_invite(p); /* waits behind it */
    PAIR_UNTIL(p, server_agreement(p)->num_refused == 1);
    assert_false(is_welcomed(fd));
    until_agreed(p);
    close(fd);
    check_loan(p);
}

static void
test_who_goes_before_it_says_anything_is_forgotten(void **state)
{
    pair *p = *state;
    int   fd;

    open_invited_pair(p);
    fd = connect_to(kept_note.u.invite.name);
    PAIR_UNTIL(p, server_agreement(p)->lender.fd >= 0);
    close(fd);
    PAIR_UNTIL(p, server_agreement(p)->num_refused == 1);
    hear_invite(p);
    until_agreed(p);
}

static int
num_open(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) != -1;
    }
    return count;
}

static void
test_callers_cannot_take_all_descriptors(void **state)
{
    enum {
        CALLERS = 16
    };
    pair *p = *state;
    int   fds[CALLERS], before;

    open_invited_pair(p);
    before = num_open();
    for (int i = 0; i < CALLERS; i++) {
        fds[i] = connect_to(kept_note.u.invite.name);
        assert_true(fds[i] >= 0);
    }
    PAIR_UNTIL(p, server_agreement(p)->lender.fd >= 0);
    pair_settle(p);
    assert_true(num_open() <= before + CALLERS + 2); /* caller and process */
    for (int i = 0; i < CALLERS; i++) {
        umi_timer_start(p->server_worker, &server_agreement(p)->timer, 0);
        PAIR_UNTIL(p, server_agreement(p)->num_refused == (unsigned)i + 1 ||
                          server_agreement(p)->socket.fd < 0);
        PAIR_UNTIL(p, server_agreement(p)->lender.fd >= 0 ||
                          server_agreement(p)->socket.fd < 0);
    }
    assert_int_equal(server_agreement(p)->socket.fd, -1); /* no more callers */
    assert_int_equal(server_agreement(p)->lender.fd, -1);
    for (int i = 0; i < CALLERS; i++) {
        close(fds[i]);
    }
    assert_int_equal(num_open(), before - 1);
    hear_invite(p);
    check_rendezvous(p);
}

/* An introduction that carries one; the reader's end of it is closed. */
static void
test_no_descriptor_is_taken_from_a_caller(void **state)
{
    pair                 *p = *state;
    umi_lend_introduction self;
    struct iovec          bytes = {&self, sizeof(self)};
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(sizeof(int))];
    } control             = {.header = {.cmsg_len   = CMSG_LEN(sizeof(int)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type  = SCM_RIGHTS}};
    struct msghdr message = {.msg_iov        = &bytes,
                             .msg_iovlen     = 1,
                             .msg_control    = &control,
                             .msg_controllen = sizeof(control)};
    int           fd, ends[2];
    char          byte;

    open_invited_pair(p);
    self = introduction(p);
    self.nonce[0] ^= 1;
    assert_int_equal(pipe(ends), 0);
    memcpy(CMSG_DATA(&control.header), &ends[1], sizeof(ends[1]));
    fd = connect_to(kept_note.u.invite.name);
    assert_true(fd >= 0);
    assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), sizeof(self));
    close(ends[1]);
    PAIR_UNTIL(p, server_agreement(p)->num_refused == 1);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* the last one is closed */
    assert_false(is_welcomed(fd));
    close(ends[0]);
    close(fd);
}

/* Until nothing more comes of the invitation. */
static void
check_lender_is_refused(pair *p)
{
    hear_invite(p);
    assert_true(client_agreement(p)->reader.fd >= 0);
    PAIR_UNTIL(p, client_agreement(p)->reader.fd < 0);
    assert_int_equal(server_agreement(p)->source.size, 0);
    assert_int_equal(server_agreement(p)->lender.fd, -1);
    assert_int_equal(server_agreement(p)->process.fd, -1);
    check_rendezvous(p);
}

static void
test_no_process_reads_its_own_memory(void **state)
{
    open_invited_pair(*state);
    sys.is_one_process = true;
    check_lender_is_refused(*state);
}

static void
test_a_process_of_another_namespace_is_refused(void **state)
{
    open_invited_pair(*state);
    sys.is_elsewhere = true;
    check_lender_is_refused(*state);
}

/* The lender does not go to one, either. */
static void
test_a_reader_of_another_user_is_not_told(void **state)
{
    pair *p = *state;

    open_invited_pair(p);
    sys.is_stranger = true;
    hear_invite(p);
    assert_int_equal(client_agreement(p)->reader.fd, -1);
    check_rendezvous(p);
}

static void
test_a_process_that_has_ended_is_refused(void **state)
{
    child gone = child_start("nothing", NULL);

    assert_int_equal(child_end(&gone, 0), 0);
    open_invited_pair(*state);
    sys.has_no_pidfd = true;
    sys.pid          = gone.pid;
    check_lender_is_refused(*state);
}

/* Valgrind, for one, knows nothing of them. */
static void
need_pidfds(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (fd < 0) {
        skip();
    }
    close(fd);
}

/* Sockets give no pidfd before Linux 6.5, so the process is watched by its
 * number. */
static void
test_a_process_is_watched_by_its_number(void **state)
{
    pair *p = *state;

    need_pidfds();
    open_invited_pair(p);
    sys.has_no_pidfd = true;
    hear_invite(p);
    until_agreed(p);
    assert_true(server_agreement(p)->process.fd >= 0);
    check_loan(p);
}

/* ---- other processes -----------------------------------------------------
 */

/* Data that a calling child needs, written by the test. */
typedef struct call_args {
    umi_lend_invitation   invitation;
    umi_lend_introduction self;
} call_args;

static int
run_nothing(const char *arg)
{
    (void)arg;
    return 0;
}

/* Call from another user's process that knows everything a caller has to
 * know. */
static int
run_other_user(const char *arg)
{
    call_args args;
    uint8_t   answer;
    int       fd;

    (void)arg;
    child_read(CHILD_IN, &args, sizeof(args));
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0) {
        return 2;
    }
    fd = connect_to(args.invitation.name);
    if (fd < 0) {
        return 3;
    }
    (void)!send(fd, &args.self, sizeof(args.self), MSG_NOSIGNAL);
    return (recv(fd, &answer, sizeof(answer), 0) == sizeof(answer)) ? 1 : 0;
}

static void
test_another_user_is_refused(void **state)
{
    pair     *p = *state;
    child     other;
    call_args args;

    if (geteuid() != 0) {
        skip();
    }
    open_invited_pair(p);
    args.invitation = kept_note.u.invite;
    args.self       = introduction(p);
    other           = child_start("other_user", NULL);
    child_write(other.out, &args, sizeof(args));
    PAIR_UNTIL(p, server_agreement(p)->num_refused == 1);
    assert_int_equal(child_end(&other, 0), 0);
    hear_invite(p);
    until_agreed(p); /* the peer that was invited may still call */
    check_loan(p);
}

/* Lends, and leaves the connection to a child. */
static int
run_leaver(const char *arg)
{
    static umi_lend_slot slot;
    call_args            args;
    uint8_t              answer;
    int                  fd;

    (void)arg;
    child_read(CHILD_IN, &args, sizeof(args));
    args.self.table = (uintptr_t)&slot;
    fd              = connect_to(args.invitation.name);
    if (fd < 0 ||
        send(fd, &args.self, sizeof(args.self), MSG_NOSIGNAL) !=
            (ssize_t)sizeof(args.self) ||
        recv(fd, &answer, sizeof(answer), 0) != sizeof(answer)) {
        return 1;
    }
    if (fork() == 0) {
        child_read(CHILD_IN, &answer, sizeof(answer)); /* the test's end */
        return 0;
    }
    return 0;
}

/* Check that a process that ended is forgotten: its number may be another
 * process's by now. */
static void
check_is_forgotten_with_its_process(pair *p)
{
    child     leaver;
    call_args args;
    uint8_t   end = 0;

    need_pidfds();
    args.invitation = kept_note.u.invite;
    args.self       = introduction(p);
    leaver          = child_start("leaver", NULL);
    child_write(leaver.out, &args, sizeof(args));
    PAIR_UNTIL(p, server_agreement(p)->source.size != 0);
    assert_int_equal(server_agreement(p)->source.pid, leaver.pid);
    PAIR_UNTIL(p, server_agreement(p)->source.size == 0);
    assert_int_equal(server_agreement(p)->source.pid, 0);
    child_write(leaver.out, &end, sizeof(end));
    assert_int_equal(child_end(&leaver, 0), 0);
}

static void
test_a_process_that_leaves_its_connection_to_a_child_is_forgotten(void **state)
{
    open_invited_pair(*state);
    check_is_forgotten_with_its_process(*state);
}

static void
test_the_same_before_sockets_had_pidfds(void **state)
{
    open_invited_pair(*state);
    sys.has_no_pidfd = true;
    check_is_forgotten_with_its_process(*state);
}

/* ---- the end of an agreement ---------------------------------------------
 */

/* A receive of what the client has lent, once something has happened. */
static void
check_loan_is_void(pair *p, op *send_op)
{
    op recv_op;

    memset(in, 'i', SIZE);
    op_recv(&recv_op, p->server, 0, pair_any, in, SIZE);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CONNECTION_RESET);
    for (size_t i = 0; i < SIZE; i++) {
        assert_int_equal(in[i], 0);
    }
    assert_true(op_wait(p, send_op) < 0);
}

/* The system reports it later. */
static void
test_nothing_is_taken_once_the_connection_is_over(void **state)
{
    pair *p = *state;
    op    send_op;

    open_lending_pair(p);
    op_send(&send_op, p->client, 0, pair_tag(1), out, SIZE);
    pair_settle(p);
    assert_int_equal(shutdown(client_agreement(p)->reader.fd, SHUT_RDWR), 0);
    assert_int_not_equal(server_agreement(p)->source.size, 0);
    check_loan_is_void(p, &send_op);
}

/* The number of a process that is over may be another process's. */
static void
test_nothing_is_taken_once_the_process_is_over(void **state)
{
    pair *p    = *state;
    int   over = eventfd(1, 0);
    op    send_op;

    open_lending_pair(p);
    op_send(&send_op, p->client, 0, pair_tag(1), out, SIZE);
    pair_settle(p);
    assert_true(server_agreement(p)->process.fd >= 0);
    assert_int_equal(dup2(over, server_agreement(p)->process.fd),
                     server_agreement(p)->process.fd);
    check_loan_is_void(p, &send_op);
    close(over);
}

static void
test_the_lender_is_forgotten_when_its_connection_ends(void **state)
{
    pair *p = *state;
    op    send_op;

    open_lending_pair(p);
    op_send(&send_op, p->client, 0, pair_tag(1), out, SIZE);
    pair_settle(p);
    assert_int_equal(shutdown(client_agreement(p)->reader.fd, SHUT_RDWR), 0);
    PAIR_UNTIL(p, server_agreement(p)->source.size == 0);
    assert_int_equal(server_agreement(p)->source.pid, 0);
    assert_int_equal(server_agreement(p)->lender.fd, -1);
    assert_int_equal(server_agreement(p)->process.fd, -1);
    check_loan_is_void(p, &send_op); /* no protocol error: it was lent */
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_CONNECTION_RESET);
}

static void
test_a_lender_that_talks_is_forgotten(void **state)
{
    pair *p = *state;

    open_lending_pair(p);
    assert_int_equal(send(client_agreement(p)->reader.fd, "more", 4, 0), 4);
    PAIR_UNTIL(p, server_agreement(p)->source.size == 0);
    PAIR_UNTIL(p, !client_agreement(p)->may_lend);
    check_rendezvous(p);
}

static void
test_an_answer_that_is_none_is_no_welcome(void **state)
{
    pair   *p     = *state;
    uint8_t other = UMI_LEND_WELCOME + 1;

    open_lending_pair(p);
    assert_int_equal(send(server_agreement(p)->lender.fd, &other, 1, 0), 1);
    PAIR_UNTIL(p, !client_agreement(p)->may_lend);
    assert_int_equal(client_agreement(p)->reader.fd, -1);
    check_rendezvous(p);
}

static void
test_a_new_endpoint_comes_to_terms_again(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;

    open_lending_pair(p);
    assert_int_equal(shutdown(client_agreement(p)->reader.fd, SHUT_RDWR), 0);
    PAIR_UNTIL(p, !client_agreement(p)->may_lend);
    check_rendezvous(p); /* this connection has already asked */
    connect_beside(p, &client, &server);
    pass(p);
    until_agreed(p);
    check_loan(p);
    end_beside(client, server);
}

/* A peer asks before the end of the old connection has been seen. */
static void
test_an_ask_ends_an_agreement_that_is_over(void **state)
{
    pair         *p   = *state;
    umi_lend_note ask = {.kind = UMI_LEND_ASK, .endpoint = 0};
    int           old;

    open_lending_pair(p);
    old          = server_agreement(p)->lender.fd;
    ask.endpoint = p->server->base.wire_id;
    assert_int_equal(
        p->server_worker->am_handlers[UMI_AM_NOTE].fn(
            p->server_worker,
            &(umi_am_arrival){.header = &ask, .header_len = sizeof(ask)}),
        UMI_AM_CONSUMED);
    assert_int_equal(server_agreement(p)->lender.fd, old); /* still works */
    assert_int_equal(server_agreement(p)->socket.fd, -1);
    assert_int_equal(shutdown(client_agreement(p)->reader.fd, SHUT_RDWR), 0);
    assert_int_equal(
        p->server_worker->am_handlers[UMI_AM_NOTE].fn(
            p->server_worker,
            &(umi_am_arrival){.header = &ask, .header_len = sizeof(ask)}),
        UMI_AM_CONSUMED);
    assert_int_equal(server_agreement(p)->source.size, 0);
    assert_true(server_agreement(p)->socket.fd >= 0);
}

static void
test_the_sockets_go_with_the_peer(void **state)
{
    pair *p = *state;
    int   fds[3];

    open_lending_pair(p);
    fds[0] = client_agreement(p)->reader.fd;
    fds[1] = server_agreement(p)->lender.fd;
    fds[2] = server_agreement(p)->process.fd;
    umi_link_close(p->client->base.link);
    umi_link_close(p->server->base.link);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fcntl(fds[i], F_GETFD), -1);
    }
}

static void
test_a_peer_may_go_while_it_is_invited(void **state)
{
    pair *p = *state;
    int   fd;

    open_invited_pair(p);
    fd = server_agreement(p)->socket.fd;
    assert_true(fd >= 0);
    umi_link_close(p->server->base.link);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* ---- asking --------------------------------------------------------------
 */

/* The first connection ends before INVITE can arrive on it; the other
 * connection keeps the peer. */
static void
test_a_first_connection_that_is_short_is_not_the_last_word(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;
    op      send_op;

    open_pair(p);
    connect_beside(p, &client, &server);
    op_send(&send_op, client, 0, pair_tag(1), out, SIZE);
    assert_int_equal(client->base.lend->step, UMI_LEND_ASKED);
    end_beside(client, server);
    (void)op_wait(p, &send_op);
    pair_settle(p);
    assert_null(client_agreement(p)->table);
    pass(p);
    until_agreed(p);
    check_loan(p);
}

static void
test_a_connection_after_the_end_of_the_first_lends(void **state)
{
    pair *p = *state;

    open_lending_pair(p);
    connect_again(p);
    pass(p);
    until_agreed(p);
    check_loan(p);
}

static void
test_endpoints_of_one_pair_of_workers_share_the_agreement(void **state)
{
    pair   *p = *state;
    umx_ep *client, *server;

    open_lending_pair(p);
    connect_beside(p, &client, &server);
    check_loan(p);
    assert_int_equal(p->client->base.lend->step, UMI_LEND_NOT_ASKED);
    end_beside(client, server);
}

static void
test_an_invitation_is_answered_once(void **state)
{
    pair *p = *state;

    open_invited_pair(p);
    hear_invite(p);
    until_agreed(p);
    assert_int_equal(shutdown(client_agreement(p)->reader.fd, SHUT_RDWR), 0);
    PAIR_UNTIL(p, client_agreement(p)->reader.fd < 0);
    hear_invite(p);
    assert_int_equal(client_agreement(p)->reader.fd, -1);
}

static void
test_an_invitation_that_nobody_asked_for_is_ignored(void **state)
{
    pair               *p = *state;
    umi_lend_invitation invitation;

    open_pair(p);
    memset(&invitation, 1, sizeof(invitation));
    umi_lend_on_invite(&p->client->base, &invitation);
    assert_null(client_agreement(p)->table);
}

static void
test_an_ask_that_comes_twice_gets_the_same_invitation(void **state)
{
    pair               *p = *state;
    umi_lend_invitation first;
    int                 fd;

    open_invited_pair(p);
    first          = kept_note.u.invite;
    fd             = server_agreement(p)->socket.fd;
    kept_note.kind = 0;
    p->client_worker->am_handlers[UMI_AM_NOTE].fn = keep_note;
    umi_lend_on_ask(&p->server->base);
    PAIR_UNTIL_OPTIONAL(p, kept_note.kind == UMI_LEND_INVITE);
    p->client_worker->am_handlers[UMI_AM_NOTE].fn = note_fn;
    assert_memory_equal(&kept_note.u.invite, &first, sizeof(first));
    assert_int_equal(server_agreement(p)->socket.fd, fd);
    hear_invite(p);
    until_agreed(p);
}

/* Answers would pile up for one that takes none. */
static void
test_few_asks_are_answered(void **state)
{
    pair    *p = *state;
    unsigned in_use;

    open_invited_pair(p);
    in_use = p->server_worker->lend->objects.in_use;
    for (int i = 0; i < 100000; i++) {
        umi_lend_on_ask(&p->server->base);
    }
    assert_in_range(p->server_worker->lend->objects.in_use, in_use,
                    in_use + 16);
    hear_invite(p);
    until_agreed(p);
}

/* Calls `fn` while no descriptor is to be had. */
static void
without_descriptors(void (*fn)(pair *p), pair *p)
{
    struct rlimit limit, none;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none          = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    fn(p);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void
ask(pair *p)
{
    umi_lend_on_ask(&p->server->base);
}

static void
test_without_descriptors_nobody_is_invited(void **state)
{
    pair *p = *state;

    open_pair(p);
    without_descriptors(ask, p);
    assert_int_equal(server_agreement(p)->socket.fd, -1);
    umi_lend_on_ask(&p->server->base);
    assert_true(server_agreement(p)->socket.fd >= 0);
}

static void
hear(pair *p)
{
    hear_invite(p);
}

static void
test_without_descriptors_nothing_is_lent(void **state)
{
    pair *p = *state;

    open_invited_pair(p);
    without_descriptors(hear, p);
    assert_int_equal(client_agreement(p)->reader.fd, -1);
    check_rendezvous(p);
}

static void
call_ready(pair *p)
{
    umi_watch *socket = &server_agreement(p)->socket;

    socket->fn(socket, EPOLLIN);
}

/* A socket that stays ready would keep the worker from sleeping. */
static void
test_without_descriptors_an_invitation_ends(void **state)
{
    pair *p = *state;

    open_invited_pair(p);
    hear_invite(p);
    without_descriptors(call_ready, p);
    assert_int_equal(server_agreement(p)->socket.fd, -1);
    PAIR_UNTIL(p, client_agreement(p)->reader.fd < 0);
    check_rendezvous(p);
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {
        {"nothing", run_nothing},
        {"other_user", run_other_user},
        {"leaver", run_leaver},
    };
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_the_invitation_is_for_one_lender),
        PAIR_TEST_ONCE(test_a_nonce_is_good_once),
        PAIR_TEST_ONCE(test_who_is_not_invited_is_refused),
        PAIR_TEST_ONCE(test_what_is_too_long_is_no_introduction),
        PAIR_TEST_ONCE(test_a_table_that_cannot_be_read_is_refused),
        PAIR_TEST_ONCE(test_who_says_nothing_is_dropped),
        PAIR_TEST_ONCE(test_who_goes_before_it_says_anything_is_forgotten),
        PAIR_TEST_ONCE(test_callers_cannot_take_all_descriptors),
        PAIR_TEST_ONCE(test_no_descriptor_is_taken_from_a_caller),
        PAIR_TEST_ONCE(test_no_process_reads_its_own_memory),
        PAIR_TEST_ONCE(test_a_process_of_another_namespace_is_refused),
        PAIR_TEST_ONCE(test_a_reader_of_another_user_is_not_told),
        PAIR_TEST_ONCE(test_a_process_that_has_ended_is_refused),
        PAIR_TEST_ONCE(test_a_process_is_watched_by_its_number),
        PAIR_TEST_ONCE(test_another_user_is_refused),
        PAIR_TEST_ONCE(
            test_a_process_that_leaves_its_connection_to_a_child_is_forgotten),
        PAIR_TEST_ONCE(test_the_same_before_sockets_had_pidfds),
        PAIR_TEST_ONCE(test_nothing_is_taken_once_the_connection_is_over),
        PAIR_TEST_ONCE(test_nothing_is_taken_once_the_process_is_over),
        PAIR_TEST_ONCE(test_the_lender_is_forgotten_when_its_connection_ends),
        PAIR_TEST_ONCE(test_a_lender_that_talks_is_forgotten),
        PAIR_TEST_ONCE(test_an_answer_that_is_none_is_no_welcome),
        PAIR_TEST_ONCE(test_a_new_endpoint_comes_to_terms_again),
        PAIR_TEST_ONCE(test_an_ask_ends_an_agreement_that_is_over),
        PAIR_TEST_ONCE(test_the_sockets_go_with_the_peer),
        PAIR_TEST_ONCE(test_a_peer_may_go_while_it_is_invited),
        PAIR_TEST_ONCE(
            test_a_first_connection_that_is_short_is_not_the_last_word),
        PAIR_TEST_ONCE(test_a_connection_after_the_end_of_the_first_lends),
        PAIR_TEST_ONCE(
            test_endpoints_of_one_pair_of_workers_share_the_agreement),
        PAIR_TEST_ONCE(test_an_invitation_is_answered_once),
        PAIR_TEST_ONCE(test_an_invitation_that_nobody_asked_for_is_ignored),
        PAIR_TEST_ONCE(test_an_ask_that_comes_twice_gets_the_same_invitation),
        PAIR_TEST_ONCE(test_few_asks_are_answered),
        PAIR_TEST_ONCE(test_without_descriptors_nobody_is_invited),
        PAIR_TEST_ONCE(test_without_descriptors_nothing_is_lent),
        PAIR_TEST_ONCE(test_without_descriptors_an_invitation_ends),
    };

    child_role(argc, argv, entries, sizeof(entries) / sizeof(*entries));
    return UNIT_RUN(tests);
}
