/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* struct ucred, accept4() */
#include "lend/agree.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/hash.h"
#include "util/log.h"
#include "util/process.h"
#include "worker/ep_base.h"

#ifndef SO_PEERPIDFD /* Linux 6.5; the headers may be older */
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open /* Linux 5.3; one number everywhere but on Alpha */
#define SYS_pidfd_open 434
#endif

enum {
    CALLER_MS   = 1000, /* a lender writes as soon as it is connected */
    MAX_REFUSED = 16,
    MAX_ASKS    = 16, /* a peer asks once for each endpoint */
    BACKLOG     = 16
};

/* ---- state ---------------------------------------------------------------
 */

static void
close_watch(umi_lend_agreement *agreement, umi_watch *watch)
{
    int fd = watch->fd;

    if (fd >= 0) {
        umi_watch_stop(&agreement->link->worker->watches, watch);
        close(fd);
    }
}

/* `fd` is the watch's, or closed. */
static bool
open_watch(umi_lend_agreement *agreement, umi_watch *watch, int fd,
           umi_watch_fn fn)
{
    if (fd < 0) {
        return false;
    }
    if (umi_watch_start(&agreement->link->worker->watches, watch, fd, EPOLLIN,
                        fn) != UMX_OK) {
        close(fd);
        return false;
    }
    return true;
}

/* Forget the lender. */
static void
drop_lender(umi_lend_agreement *agreement)
{
    umi_timer_stop(&agreement->timer);
    close_watch(agreement, &agreement->lender);
    close_watch(agreement, &agreement->process);
    memset(&agreement->source, 0, sizeof(agreement->source));
}

/* End the invitation: its nonce is of no use any more. */
static void
end_invitation(umi_lend_agreement *agreement)
{
    close_watch(agreement, &agreement->socket);
    memset(&agreement->invitation, 0, sizeof(agreement->invitation));
}

static void
stop_lending(umi_lend_agreement *agreement)
{
    agreement->may_lend = false;
    close_watch(agreement, &agreement->reader);
}

static void on_timer(umi_timer *timer);

void
umi_lend_init_link(umi_link *link)
{
    umi_lend_agreement *agreement = umi_lend_agreement_of(link);

    agreement->link       = link;
    agreement->reader.fd  = -1;
    agreement->socket.fd  = -1;
    agreement->lender.fd  = -1;
    agreement->process.fd = -1;
    umi_timer_init(&agreement->timer, on_timer);
}

/* The reader's connection ends before the table's memory is somebody else's:
 * the reader looks at it after each reading. */
void
umi_lend_fini_link(umi_link *link)
{
    umi_lend_agreement *agreement = umi_lend_agreement_of(link);

    stop_lending(agreement);
    end_invitation(agreement);
    drop_lender(agreement);
    if (agreement->table != NULL) {
        umi_lend_table_end(agreement->table);
    }
}

/* ---- sockets -------------------------------------------------------------
 */

/* Make the address of the socket `name`; returns its length. Only sockets of
 * ours have such a name: no note can send this process, with its user's rights,
 * to any other. */
static socklen_t
fill_address(struct sockaddr_un *addr, const uint8_t *name)
{
    size_t len = offsetof(struct sockaddr_un, sun_path) + 1; /* of the NUL */

    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    len += (size_t)sprintf(addr->sun_path + 1, "umx-lend-");
    for (int i = 0; i < UMI_LEND_NAME_SIZE; i++) {
        len += (size_t)sprintf((char *)addr + len, "%02x", name[i]);
    }
    return (socklen_t)len;
}

static int
new_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Ask the kernel who made, or listens on, the other end; false if that is
 * another user. */
static bool
read_peer(int fd, struct ucred *peer)
{
    socklen_t len = sizeof(*peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &len) == 0 &&
           peer->uid == geteuid();
}

/* ---- lending -------------------------------------------------------------
 */

static void
on_reader(umi_watch *watch, uint32_t events)
{
    umi_lend_agreement *agreement = umi_container_of(watch, umi_lend_agreement,
                                                     reader);
    uint8_t             answer    = 0;
    ssize_t             n         = recv(watch->fd, &answer, sizeof(answer), 0);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n == sizeof(answer) && answer == UMI_LEND_WELCOME &&
        !agreement->may_lend) {
        agreement->may_lend = true;
    } else {
        stop_lending(agreement);
    }
}

static int
connect_to(const uint8_t *name)
{
    struct sockaddr_un addr;
    struct ucred       reader;
    socklen_t          len = fill_address(&addr, name);
    int                fd  = new_socket();

    if (fd >= 0 && (connect(fd, (struct sockaddr *)&addr, len) != 0 ||
                    !read_peer(fd, &reader))) {
        close(fd);
        return -1;
    }
    return fd;
}

static void
introduce(umi_lend_agreement *agreement, const umi_lend_invitation *invitation)
{
    const umi_link       *link = agreement->link;
    umi_lend_introduction self = {.table = (uintptr_t)agreement->table->slots,
                                  .size  = UMI_LEND_SLOTS};

    if (!open_watch(agreement, &agreement->reader, connect_to(invitation->name),
                    on_reader)) {
        return;
    }
    memcpy(self.nonce, invitation->nonce, sizeof(self.nonce));
    memcpy(self.lender, link->worker->key, sizeof(self.lender));
    memcpy(self.reader, link->key, sizeof(self.reader));
    if (send(agreement->reader.fd, &self, sizeof(self), MSG_NOSIGNAL) !=
        (ssize_t)sizeof(self)) {
        stop_lending(agreement);
    }
}

void
umi_lend_on_invite(umi_ep_base *ep, const umi_lend_invitation *invitation)
{
    umi_lend_agreement *agreement = umi_lend_agreement_of(ep->link);

    if (ep->lend->step != UMI_LEND_ASKED) {
        return;
    }
    ep->lend->step = UMI_LEND_ANSWERED;
    if (agreement->reader.fd >= 0) {
        return; /* another endpoint was faster */
    }
    if (agreement->table == NULL) {
        agreement->table = umi_lend_table_new();
    }
    if (agreement->table != NULL) {
        introduce(agreement, invitation);
    }
}

bool
umi_lend_is_agreed_on(umi_ep_base *ep)
{
    umi_lend_agreement *agreement = umi_lend_agreement_of(ep->link);
    umi_lend_note       ask       = {.kind = UMI_LEND_ASK};

    if (agreement->reader.fd >= 0) {
        return agreement->may_lend;
    }
    if (ep->lend->step == UMI_LEND_NOT_ASKED) {
        ep->lend->step = UMI_LEND_ASKED;
        umi_lend_send_note(ep, &ask);
    }
    return false;
}

/* ---- borrowing: who calls ------------------------------------------------
 */

/* Refuse who has called; another may call. */
static void
refuse_caller(umi_lend_agreement *agreement, const char *why)
{
    umi_log(UMI_LOG_DEBUG, "a lender is refused: %s", why);
    drop_lender(agreement);
    if (++agreement->num_refused == MAX_REFUSED) {
        end_invitation(agreement);
    } else {
        umi_watch_change(&agreement->link->worker->watches, &agreement->socket,
                         EPOLLIN);
    }
}

static void
on_timer(umi_timer *timer)
{
    refuse_caller(umi_container_of(timer, umi_lend_agreement, timer),
                  "it says nothing");
}

/* Drop the lender, which has nothing to say after its introduction. */
static void
on_lender_end(umi_watch *watch, uint32_t events)
{
    (void)events;
    drop_lender(umi_container_of(watch, umi_lend_agreement, lender));
}

static void
on_process_end(umi_watch *watch, uint32_t events)
{
    umi_lend_agreement *agreement = umi_container_of(watch, umi_lend_agreement,
                                                     process);

    (void)events;
    if (agreement->source.size != 0) {
        drop_lender(agreement);
    } else {
        refuse_caller(agreement, "it has ended");
    }
}

static bool
is_invited(const umi_lend_agreement    *agreement,
           const umi_lend_introduction *caller)
{
    const umi_link *link = agreement->link;

    return link->is_proven &&
           umi_equal_constant_time(caller->nonce, agreement->invitation.nonce,
                                   sizeof(caller->nonce)) &&
           memcmp(caller->lender, link->key, sizeof(caller->lender)) == 0 &&
           memcmp(caller->reader, link->worker->key, sizeof(caller->reader)) ==
               0;
}

/* Decide whether the caller is the one that was invited. */
static void
meet(umi_lend_agreement *agreement, const umi_lend_introduction *caller)
{
    uint8_t         welcome = UMI_LEND_WELCOME;
    umi_lend_source source  = {.pid     = agreement->source.pid,
                               .address = caller->table,
                               .size    = caller->size};

    if (!is_invited(agreement, caller)) {
        refuse_caller(agreement, "it is not the one that was invited");
        return;
    }
    if (!umi_lend_source_is_readable(&source)) {
        refuse_caller(agreement, "its memory cannot be read");
        end_invitation(agreement); /* it has been shown */
        return;
    }
    umi_timer_stop(&agreement->timer);
    end_invitation(agreement);
    agreement->source       = source;
    agreement->lender.fn    = on_lender_end;
    agreement->has_borrowed = true;
    if (send(agreement->lender.fd, &welcome, sizeof(welcome), MSG_NOSIGNAL) !=
        (ssize_t)sizeof(welcome)) {
        drop_lender(agreement);
    }
}

static void
on_caller(umi_watch *watch, uint32_t events)
{
    umi_lend_agreement *agreement = umi_container_of(watch, umi_lend_agreement,
                                                     lender);
    umi_lend_introduction caller;
    ssize_t n = recv(watch->fd, &caller, sizeof(caller), MSG_TRUNC);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n == (ssize_t)sizeof(caller)) {
        meet(agreement, &caller);
    } else {
        refuse_caller(agreement, "that was no introduction");
    }
}

/* Open the process at the other end: -1 if the system cannot say. False if the
 * process is gone. */
static bool
open_process(int fd, pid_t pid, int *process_p)
{
    socklen_t len = sizeof(*process_p);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, process_p, &len) == 0) {
        return true;
    }
    if (errno == ENOPROTOOPT) {
        *process_p = (int)syscall(SYS_pidfd_open, pid, 0);
        if (*process_p >= 0) {
            return true;
        }
    }
    *process_p = -1;
    return errno == ENOPROTOOPT || errno == ENOSYS || errno == EPERM;
}

static bool
watch_process(umi_lend_agreement *agreement, pid_t pid)
{
    int process;

    return open_process(agreement->lender.fd, pid, &process) &&
           (process < 0 || open_watch(agreement, &agreement->process, process,
                                      on_process_end));
}

/* Tell why the caller may not lend; NULL if it may. */
static const char *
check_caller(umi_lend_agreement *agreement, struct ucred *caller)
{
    if (!read_peer(agreement->lender.fd, caller)) {
        return "it is another user's";
    }
    if (caller->pid <= 0) {
        return "it is of another namespace";
    }
    if (umi_process_is_self(caller->pid)) {
        return "it is this process";
    }
    return watch_process(agreement, caller->pid) ? NULL :
                                                   "it cannot be watched";
}

static void
on_call(umi_watch *watch, uint32_t events)
{
    umi_lend_agreement *agreement = umi_container_of(watch, umi_lend_agreement,
                                                     socket);
    struct ucred        caller;
    const char         *why;
    int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)events;
    if (fd < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (!open_watch(agreement, &agreement->lender, fd, on_caller)) {
        umi_log(UMI_LOG_DEBUG, "no lender can be met: %s", strerror(errno));
        end_invitation(agreement);
        return;
    }
    why = check_caller(agreement, &caller);
    if (why != NULL) {
        refuse_caller(agreement, why);
        return;
    }
    agreement->source.pid = caller.pid;
    umi_watch_change(&agreement->link->worker->watches, &agreement->socket,
                     0); /* one at a time */
    umi_timer_start(agreement->link->worker, &agreement->timer,
                    CALLER_MS * UINT64_C(1000000));
    on_caller(&agreement->lender, EPOLLIN);
}

/* ---- borrowing: the invitation -------------------------------------------
 */

static bool
invite(umi_lend_agreement *agreement)
{
    struct sockaddr_un addr;
    socklen_t          len;
    int                fd;

    if (!umi_random_bytes(&agreement->invitation,
                          sizeof(agreement->invitation))) {
        return false;
    }
    agreement->num_refused = 0;
    len                    = fill_address(&addr, agreement->invitation.name);
    fd                     = new_socket();
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) != 0 ||
        listen(fd, BACKLOG) != 0) {
        umi_log(UMI_LOG_DEBUG, "no lender can be invited: %s", strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    return open_watch(agreement, &agreement->socket, fd, on_call);
}

/* An invitation that is open is sent again: the first may have come to an
 * endpoint that was over. */
void
umi_lend_on_ask(umi_ep_base *ep)
{
    umi_lend_agreement *agreement = umi_lend_agreement_of(ep->link);
    umi_lend_note       note      = {.kind = UMI_LEND_INVITE};

    if ((ep->worker->context->config.cma_max == 0 &&
         !ep->worker->lend->takes_loans) ||
        !ep->link->has_shm || ep->lend->num_asks >= MAX_ASKS) {
        return;
    }
    ep->lend->num_asks++;
    if (agreement->source.size != 0) {
        if (umi_lend_has_lender(agreement)) {
            return; /* it has asked before it knew */
        }
        drop_lender(agreement);
    }
    if (agreement->socket.fd >= 0 || invite(agreement)) {
        note.u.invite = agreement->invitation;
        umi_lend_send_note(ep, &note);
    }
}

bool
umi_lend_has_lender(const umi_lend_agreement *agreement)
{
    struct pollfd fds[] = {
        {.fd = agreement->lender.fd, .events = POLLIN | POLLRDHUP},
        {.fd = agreement->process.fd, .events = POLLIN},
    };

    int n;

    if (agreement->source.size == 0) {
        return false;
    }
    do {
        n = poll(fds, 2, 0);
    } while (n < 0 && errno == EINTR);
    return n == 0;
}
