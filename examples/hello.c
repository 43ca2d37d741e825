/* SPDX-License-Identifier: BSD-3-Clause */
/* ./hello listen PORT: print the port, echo messages until the peer closes
 *
 * ./hello connect HOST PORT: send a line, print what comes back and the time
 * of the fastest round trip, close
 *
 * ./hello --self: both, in two processes
 *
 * HOST is numeric, PORT 0 is the system's choice. Both sides may also be a
 * Python program: messages are those of `ep.send()` and `ep.recv()`. */
#define _POSIX_C_SOURCE 200809L /* fork(), clock_gettime() */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <umx/umx.h>
#include <unistd.h>

#define TIMEOUT_NS (UINT64_C(10) * 1000000000)
#define ROUND_TRIPS 1000

static const umx_match untagged = {0, 0, UMX_MATCH_UNTAGGED};
static const umx_match next     = {0, 0, UMX_MATCH_ANY};

/* Report a failure; the caller ends. */
static umx_status
failed(const char *what, umx_status status)
{
    fprintf(stderr, "hello: %s: %s\n", what, umx_status_string(status));
    return status;
}

/* The status of an operation that was just posted without `on_done`: wait for
 * it if it is in progress. */
static umx_status
finish(umx_status status, umx_request *req)
{
    if (status != UMX_INPROGRESS) {
        return status;
    }
    status = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
    if (umx_request_status(req) != UMX_INPROGRESS) {
        umx_request_release(req);
    }
    return status;
}

static umx_status
send_message(umx_ep *ep, const void *data, size_t len)
{
    umx_buffer   buffer = umx_host_buffer(data, len);
    umx_request *req    = NULL;
    umx_status   status;

    status = umx_channel_send(ep, 0, &untagged, &buffer, NULL, &req);
    return finish(status, req);
}

/* The next message, whose length nobody knows before it comes, in memory that
 * the caller frees. */
static umx_status
receive_message(umx_ep *ep, char **data_p, size_t *len_p)
{
    umx_message *message = NULL;
    umx_request *req     = NULL;
    umx_status   status;
    umx_buffer   buffer;

    status = umx_channel_recv_message(ep, 0, &next, NULL, &req, &message);
    if (status == UMX_INPROGRESS) {
        status  = umx_request_wait(req, UMX_TIMEOUT_INFINITE);
        message = (status == UMX_OK) ? umx_request_message(req) : NULL;
        if (umx_request_status(req) != UMX_INPROGRESS) {
            umx_request_release(req);
        }
    }
    if (status != UMX_OK) {
        return status;
    }
    *len_p  = umx_message_info(message)->length;
    *data_p = (char *)malloc(*len_p + 1);
    if (*data_p == NULL) {
        umx_message_return(message);
        return UMX_ERR_NO_MEMORY;
    }
    buffer = umx_host_buffer(*data_p, *len_p);
    status = umx_message_recv(&message, &buffer, NULL, &req);
    if (message != NULL) {
        umx_message_return(message);
    }
    status = finish(status, req);
    if (status != UMX_OK) {
        free(*data_p);
    }
    return status;
}

static umx_status
close_ep(umx_ep *ep)
{
    umx_request *req    = NULL;
    umx_status   status = umx_ep_close(ep, TIMEOUT_NS, NULL, &req);

    return finish(status, req);
}

/* ---- listen --------------------------------------------------------------
 */

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    umx_ep **ep_p = (umx_ep **)arg;

    (void)listener;
    if (*ep_p == NULL) {
        *ep_p = ep;
    } else {
        umx_ep_destroy(ep); /* the program serves one peer */
    }
}

static umx_status
echo(umx_ep *ep)
{
    umx_status status;

    for (;;) {
        size_t len;
        char  *data;

        status = receive_message(ep, &data, &len);
        if (status != UMX_OK) {
            break;
        }
        status = send_message(ep, data, len);
        free(data);
        if (status != UMX_OK) {
            break;
        }
    }
    if (status != UMX_ERR_PEER_CLOSED) {
        return failed("echo", status);
    }
    status = close_ep(ep);
    return (status == UMX_OK) ? status : failed("close", status);
}

static umx_status
listen_on(umx_worker *worker, const struct sockaddr_in *addr)
{
    umx_ep             *ep       = NULL;
    umx_listener       *listener = NULL;
    struct sockaddr_in  bound;
    size_t              len = sizeof(bound);
    umx_listener_params params;
    umx_status          status;

    memset(&params, 0, sizeof(params));
    params.addr      = (const struct sockaddr *)addr;
    params.addr_len  = sizeof(*addr);
    params.on_accept = on_accept;
    params.arg       = &ep;
    status           = umx_listener_create(worker, &params, &listener);
    if (status != UMX_OK) {
        return failed("listen", status);
    }
    status = umx_listener_address(listener, (struct sockaddr *)&bound, &len);
    if (status != UMX_OK) {
        failed("address", status);
        goto destroy_listener;
    }
    printf("%u\n", ntohs(bound.sin_port));
    fflush(stdout);
    while (ep == NULL) {
        status = umx_worker_wait(worker, UMX_TIMEOUT_INFINITE);
        if (status != UMX_OK) {
            failed("accept", status);
            goto destroy_listener;
        }
    }
    status = echo(ep);
    umx_ep_destroy(ep);

destroy_listener:
    umx_listener_destroy(listener);
    return status;
}

/* ---- connect -------------------------------------------------------------
 */

/* The address and what the system said of it, "Connection refused" for
 * instance, if more is known than the status. */
static const char *
why(const umx_ep *ep, umx_status status)
{
    const char *reason = umx_ep_reason(ep);

    return (reason[0] != '\0') ? reason : umx_status_string(status);
}

static double
now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* Send a line, and receive what the peer makes of it, which the caller frees.
 */
static umx_status
ask(umx_ep *ep, char **data_p, size_t *len_p)
{
    static const char line[] = "hello from C";

    umx_status status = send_message(ep, line, sizeof(line) - 1);

    if (status != UMX_OK) {
        return failed("send", status);
    }
    status = receive_message(ep, data_p, len_p);
    return (status == UMX_OK) ? status : failed("receive", status);
}

static umx_status
greet(umx_ep *ep)
{
    double     best = 0;
    char      *data;
    size_t     len;
    umx_status status = ask(ep, &data, &len);

    if (status != UMX_OK) {
        return status;
    }
    printf("%.*s\n", (int)len, data);
    free(data);
    for (int i = 0; i < ROUND_TRIPS; i++) {
        double begun = now_us(), us;

        status = ask(ep, &data, &len);
        if (status != UMX_OK) {
            return status;
        }
        us   = now_us() - begun;
        best = (i == 0 || us < best) ? us : best;
        free(data);
    }
    printf("a round trip takes %.1f us\n", best);
    status = close_ep(ep);
    return (status == UMX_OK) ? status : failed("close", status);
}

static umx_status
connect_to(umx_worker *worker, const struct sockaddr_in *addr)
{
    umx_connect_params params;
    umx_ep            *ep = NULL;
    umx_status         status;

    memset(&params, 0, sizeof(params));
    params.field_mask = UMX_CONNECT_FIELD_TIMEOUT;
    params.addr       = (const struct sockaddr *)addr;
    params.addr_len   = sizeof(*addr);
    params.timeout_ns = TIMEOUT_NS;
    status            = umx_ep_connect(worker, &params, &ep);
    if (status != UMX_OK) {
        return failed("connect", status);
    }
    while (status == UMX_OK && umx_ep_get_state(ep) == UMX_EP_CONNECTING) {
        status = umx_worker_wait(worker, UMX_TIMEOUT_INFINITE);
    }
    if (status == UMX_OK && umx_ep_get_state(ep) == UMX_EP_FAILED) {
        status = umx_ep_error(ep);
    }
    if (status == UMX_OK) {
        status = greet(ep);
    } else {
        fprintf(stderr, "hello: connect to %s\n", why(ep, status));
    }
    umx_ep_destroy(ep);
    return status;
}

/* ---- program -------------------------------------------------------------
 */

static bool
parse(int argc, char **argv, bool *is_listen_p, struct sockaddr_in *addr)
{
    bool        is_listen  = argc == 3 && strcmp(argv[1], "listen") == 0;
    bool        is_connect = argc == 4 && strcmp(argv[1], "connect") == 0;
    const char *host       = is_connect ? argv[2] : "127.0.0.1";
    char       *end;
    long        port;

    if (!is_listen && !is_connect) {
        return false;
    }
    port = strtol(argv[argc - 1], &end, 10);
    memset(addr, 0, sizeof(*addr));
    addr->sin_family = AF_INET;
    addr->sin_port   = htons((uint16_t)port);
    *is_listen_p     = is_listen;
    return *end == '\0' && end != argv[argc - 1] && port >= 0 &&
           port <= 65535 && inet_pton(AF_INET, host, &addr->sin_addr) == 1;
}

static int
run(bool is_listen, const struct sockaddr_in *addr)
{
    umx_context *context;
    umx_worker  *worker;
    umx_status   status = umx_context_create(NULL, &context, NULL);

    if (status != UMX_OK) {
        failed("context", status);
        return 1;
    }
    status = umx_worker_create(context, &worker);
    if (status == UMX_OK) {
        status = is_listen ? listen_on(worker, addr) : connect_to(worker, addr);
        umx_worker_destroy(worker);
    } else {
        failed("worker", status);
    }
    umx_context_release(context);
    return (status == UMX_OK) ? 0 : 1;
}

/* Start this program as the side that listens. Returns its process, and what
 * it prints: its port. */
static pid_t
start_listener(char *program, FILE **output_p)
{
    char  listen[] = "listen", port[] = "0";
    char *arguments[] = {program, listen, port, NULL};
    int   fds[2];
    pid_t pid;

    if (pipe(fds) != 0) {
        return -1;
    }
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    close(fds[1]);
    *output_p = fdopen(fds[0], "r");
    return (*output_p != NULL) ? pid : -1;
}

static int
run_both(char *program)
{
    struct sockaddr_in addr;
    FILE              *output;
    unsigned           port;
    int                rc, status;
    pid_t              pid = start_listener(program, &output);

    if (pid < 0 || fscanf(output, "%u", &port) != 1) {
        fprintf(stderr, "hello: the other side has not started\n");
        return 1;
    }
    memset(&addr, 0, sizeof(addr));
    addr.sin_family      = AF_INET;
    addr.sin_port        = htons((uint16_t)port);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    rc                   = run(false, &addr);
    waitpid(pid, &status, 0);
    fclose(output);
    return (rc == 0 && WIFEXITED(status)) ? WEXITSTATUS(status) : 1;
}

int
main(int argc, char **argv)
{
    struct sockaddr_in addr;
    bool               is_listen;

    if (argc == 2 && strcmp(argv[1], "--self") == 0) {
        return run_both(argv[0]);
    }
    if (!parse(argc, argv, &is_listen, &addr)) {
        fprintf(stderr, "usage: hello listen PORT\n"
                        "       hello connect HOST PORT\n"
                        "       hello --self\n");
        return 2;
    }
    return run(is_listen, &addr);
}
