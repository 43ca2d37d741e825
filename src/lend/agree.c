/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* struct ucred, accept4() */
#include "lend/agree.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/ep_base.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/process.h"

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
close_watch(umi_cma *cma, umi_watch *watch)
{
    int fd = watch->fd;

    if (fd >= 0) {
        umi_watch_stop(cma->link->worker, watch);
        close(fd);
    }
}

/* `fd` is the watch's, or closed. */
static bool
open_watch(umi_cma *cma, umi_watch *watch, int fd, umi_watch_fn fn)
{
    if (fd < 0) {
        return false;
    }
    if (umi_watch_start(cma->link->worker, watch, fd, EPOLLIN, fn) != UMX_OK) {
        close(fd);
        return false;
    }
    return true;
}

/* Nothing of the lender is known any more. */
static void
drop_lender(umi_cma *cma)
{
    umi_timer_stop(&cma->timer);
    close_watch(cma, &cma->lender);
    close_watch(cma, &cma->process);
    memset(&cma->source, 0, sizeof(cma->source));
}

/* The nonce is of no use any more. */
static void
end_invitation(umi_cma *cma)
{
    close_watch(cma, &cma->socket);
    memset(&cma->invitation, 0, sizeof(cma->invitation));
}

static void
stop_lending(umi_cma *cma)
{
    cma->may_lend = false;
    close_watch(cma, &cma->reader);
}

/* The reader's connection ends before the table's memory is somebody else's:
 * the reader looks at it after each reading. */
static void
end_cma(umi_link *link)
{
    umi_cma *cma = link->cma;

    link->cma = NULL;
    stop_lending(cma);
    end_invitation(cma);
    drop_lender(cma);
    if (cma->table != NULL) {
        umi_cma_table_end(cma->table);
    }
    free(cma);
}

static void on_timer(umi_timer *timer);

/* NULL when out of memory. */
static umi_cma *
cma_of(umi_link *link)
{
    umi_cma *cma = link->cma;

    if (cma != NULL) {
        return cma;
    }
    cma = calloc(1, sizeof(*cma));
    if (cma != NULL) {
        cma->link       = link;
        cma->reader.fd  = -1;
        cma->socket.fd  = -1;
        cma->lender.fd  = -1;
        cma->process.fd = -1;
        umi_timer_init(&cma->timer, on_timer);
        link->cma     = cma;
        link->end_cma = end_cma;
    }
    return cma;
}

/* ---- sockets -------------------------------------------------------------
 */

/* Only sockets of ours have such a name: no note can send this process, with
 * its user's rights, to any other. Its length. */
static socklen_t
fill_address(struct sockaddr_un *addr, const uint8_t *name)
{
    size_t len = offsetof(struct sockaddr_un, sun_path) + 1; /* of the NUL */

    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    len += (size_t)sprintf(addr->sun_path + 1, "umx-lend-");
    for (int i = 0; i < UMI_CMA_NAME_SIZE; i++) {
        len += (size_t)sprintf((char *)addr + len, "%02x", name[i]);
    }
    return (socklen_t)len;
}

static int
new_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Who made or listens on the other end; false if it is nobody of ours. */
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
    umi_cma *cma    = umi_container_of(watch, umi_cma, reader);
    uint8_t  answer = 0;
    ssize_t  n      = recv(watch->fd, &answer, sizeof(answer), 0);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n == sizeof(answer) && answer == UMI_CMA_WELCOME && !cma->may_lend) {
        cma->may_lend = true;
    } else {
        stop_lending(cma);
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
introduce(umi_cma *cma, const umi_cma_invitation *invitation)
{
    const umi_link      *link = cma->link;
    umi_cma_introduction self = {.table = (uintptr_t)cma->table->slots,
                                 .size  = UMI_CMA_SLOTS};

    if (!open_watch(cma, &cma->reader, connect_to(invitation->name),
                    on_reader)) {
        return;
    }
    memcpy(self.nonce, invitation->nonce, sizeof(self.nonce));
    memcpy(self.lender, link->worker->key, sizeof(self.lender));
    memcpy(self.reader, link->key, sizeof(self.reader));
    if (send(cma->reader.fd, &self, sizeof(self), MSG_NOSIGNAL) !=
        (ssize_t)sizeof(self)) {
        stop_lending(cma);
    }
}

void
umi_cma_on_invite(umi_ep *ep, const umi_cma_invitation *invitation)
{
    umi_cma *cma;

    if (ep->cma_step != UMI_CMA_ASKED) {
        return;
    }
    ep->cma_step = UMI_CMA_ANSWERED;
    cma          = cma_of(ep->link);
    if (cma == NULL || cma->reader.fd >= 0) {
        return; /* another endpoint was faster */
    }
    if (cma->table == NULL) {
        cma->table = umi_cma_table_new();
    }
    if (cma->table != NULL) {
        introduce(cma, invitation);
    }
}

bool
umi_cma_is_agreed_on(umi_ep *ep)
{
    umi_cma     *cma = ep->link->cma;
    umi_cma_note ask = {.kind = UMI_CMA_ASK};

    if (cma != NULL && cma->reader.fd >= 0) {
        return cma->may_lend;
    }
    if (ep->cma_step == UMI_CMA_NOT_ASKED) {
        ep->cma_step = UMI_CMA_ASKED;
        umi_cma_send_note(ep, &ask);
    }
    return false;
}

/* ---- borrowing: who calls ------------------------------------------------
 */

/* There may be another. */
static void
refuse_caller(umi_cma *cma, const char *why)
{
    umi_log(UMI_LOG_DEBUG, "a lender is refused: %s", why);
    drop_lender(cma);
    if (++cma->num_refused == MAX_REFUSED) {
        end_invitation(cma);
    } else {
        umi_watch_change(cma->link->worker, &cma->socket, EPOLLIN);
    }
}

static void
on_timer(umi_timer *timer)
{
    refuse_caller(umi_container_of(timer, umi_cma, timer), "it says nothing");
}

/* After the introduction a lender has nothing to say. */
static void
on_lender_end(umi_watch *watch, uint32_t events)
{
    (void)events;
    drop_lender(umi_container_of(watch, umi_cma, lender));
}

static void
on_process_end(umi_watch *watch, uint32_t events)
{
    umi_cma *cma = umi_container_of(watch, umi_cma, process);

    (void)events;
    if (cma->source.size != 0) {
        drop_lender(cma);
    } else {
        refuse_caller(cma, "it has ended");
    }
}

static bool
is_invited(const umi_cma *cma, const umi_cma_introduction *caller)
{
    const umi_link *link = cma->link;

    return link->is_proven &&
           umi_equal_constant_time(caller->nonce, cma->invitation.nonce,
                                   sizeof(caller->nonce)) &&
           memcmp(caller->lender, link->key, sizeof(caller->lender)) == 0 &&
           memcmp(caller->reader, link->worker->key, sizeof(caller->reader)) ==
               0;
}

/* It is the one, or not. */
static void
meet(umi_cma *cma, const umi_cma_introduction *caller)
{
    uint8_t        welcome = UMI_CMA_WELCOME;
    umi_cma_source source  = {
         .pid = cma->source.pid, .address = caller->table, .size = caller->size};

    if (!is_invited(cma, caller)) {
        refuse_caller(cma, "it is not the one that was invited");
        return;
    }
    if (!umi_cma_source_is_readable(&source)) {
        refuse_caller(cma, "its memory cannot be read");
        end_invitation(cma); /* it has been shown */
        return;
    }
    umi_timer_stop(&cma->timer);
    end_invitation(cma);
    cma->source       = source;
    cma->lender.fn    = on_lender_end;
    cma->has_borrowed = true;
    if (send(cma->lender.fd, &welcome, sizeof(welcome), MSG_NOSIGNAL) !=
        (ssize_t)sizeof(welcome)) {
        drop_lender(cma);
    }
}

static void
on_caller(umi_watch *watch, uint32_t events)
{
    umi_cma             *cma = umi_container_of(watch, umi_cma, lender);
    umi_cma_introduction caller;
    ssize_t n = recv(watch->fd, &caller, sizeof(caller), MSG_TRUNC);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n == (ssize_t)sizeof(caller)) {
        meet(cma, &caller);
    } else {
        refuse_caller(cma, "that was no introduction");
    }
}

/* The process at the other end: -1 if the system cannot say. False if it is
 * gone. */
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
watch_process(umi_cma *cma, pid_t pid)
{
    int process;

    return open_process(cma->lender.fd, pid, &process) &&
           (process < 0 ||
            open_watch(cma, &cma->process, process, on_process_end));
}

/* Why it may not lend; NULL if it may. */
static const char *
check_caller(umi_cma *cma, struct ucred *caller)
{
    if (!read_peer(cma->lender.fd, caller)) {
        return "it is another user's";
    }
    if (caller->pid <= 0) {
        return "it is of another namespace";
    }
    if (umi_process_is_self(caller->pid)) {
        return "it is this process";
    }
    return watch_process(cma, caller->pid) ? NULL : "it cannot be watched";
}

static void
on_call(umi_watch *watch, uint32_t events)
{
    umi_cma     *cma = umi_container_of(watch, umi_cma, socket);
    struct ucred caller;
    const char  *why;
    int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)events;
    if (fd < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (!open_watch(cma, &cma->lender, fd, on_caller)) {
        umi_log(UMI_LOG_DEBUG, "no lender can be met: %s", strerror(errno));
        end_invitation(cma);
        return;
    }
    why = check_caller(cma, &caller);
    if (why != NULL) {
        refuse_caller(cma, why);
        return;
    }
    cma->source.pid = caller.pid;
    umi_watch_change(cma->link->worker, &cma->socket, 0); /* one at a time */
    umi_timer_start(cma->link->worker, &cma->timer,
                    CALLER_MS * UINT64_C(1000000));
    on_caller(&cma->lender, EPOLLIN);
}

/* ---- borrowing: the invitation -------------------------------------------
 */

static bool
invite(umi_cma *cma)
{
    struct sockaddr_un addr;
    socklen_t          len;
    int                fd;

    if (!umi_random_bytes(&cma->invitation, sizeof(cma->invitation))) {
        return false;
    }
    cma->num_refused = 0;
    len              = fill_address(&addr, cma->invitation.name);
    fd               = new_socket();
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) != 0 ||
        listen(fd, BACKLOG) != 0) {
        umi_log(UMI_LOG_DEBUG, "no lender can be invited: %s", strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    return open_watch(cma, &cma->socket, fd, on_call);
}

/* An invitation that is open is sent again: the first may have come to an
 * endpoint that was over. */
void
umi_cma_on_ask(umi_ep *ep)
{
    umi_link    *link = ep->link;
    umi_cma_note note = {.kind = UMI_CMA_INVITE};
    umi_cma     *cma;

    if (ep->worker->context->config.cma_max == 0 || !link->has_shm ||
        ep->num_cma_asks >= MAX_ASKS) {
        return;
    }
    ep->num_cma_asks++;
    cma = cma_of(link);
    if (cma == NULL) {
        return;
    }
    if (cma->source.size != 0) {
        if (umi_cma_has_lender(cma)) {
            return; /* it has asked before it knew */
        }
        drop_lender(cma);
    }
    if (cma->socket.fd >= 0 || invite(cma)) {
        note.u.invite = cma->invitation;
        umi_cma_send_note(ep, &note);
    }
}

bool
umi_cma_has_lender(const umi_cma *cma)
{
    struct pollfd fds[] = {
        {.fd = cma->lender.fd, .events = POLLIN | POLLRDHUP},
        {.fd = cma->process.fd, .events = POLLIN},
    };

    int n;

    if (cma->source.size == 0) {
        return false;
    }
    do {
        n = poll(fds, 2, 0);
    } while (n < 0 && errno == EINTR);
    return n == 0;
}
