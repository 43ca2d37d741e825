/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints over plain UCX: the floor of connect.py and memory.py.
 *
 * bare_ucx server            accept endpoints for ever; prints {"port": N}
 * bare_ucx hold PORT N       open N endpoints, print {"held": N}, wait
 * bare_ucx connect PORT W N  open and close W, then N endpoints, one after
 *                            the other; prints {"value": endpoints a second}
 *
 * Settings come from the environment. Every endpoint has error handling.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

static ucp_worker_h worker;

static void
check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A peer that closes is an error to UCX; nothing has to be done about it. */
static void
on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status;
}

static void
worker_create(void)
{
    ucp_params_t        params  = {0};
    ucp_worker_params_t wparams = {0};
    ucp_context_h       context;
    ucp_config_t       *config;

    check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_AM | UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    check(ucp_init(&params, config, &context), "ucp_init");
    ucp_config_release(config);
    wparams.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    wparams.thread_mode = UCS_THREAD_MODE_SINGLE;
    check(ucp_worker_create(context, &wparams, &worker), "ucp_worker_create");
}

/* Progress until `request` is done; ends a request that was pending. */
static void
wait_for(ucs_status_ptr_t request)
{
    if (!UCS_PTR_IS_PTR(request)) {
        return;
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
    }
    ucp_request_free(request);
}

static ucp_ep_h
ep_create(ucp_ep_params_t *params)
{
    ucp_ep_h ep;

    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode       = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb = on_error;
    check(ucp_ep_create(worker, params, &ep), "ucp_ep_create");
    return ep;
}

static void
on_connect(ucp_conn_request_h request, void *arg)
{
    ucp_ep_params_t params = {0};

    (void)arg;
    params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    ep_create(&params);
}

static struct sockaddr_in
loopback(int port)
{
    struct sockaddr_in addr = {0};

    addr.sin_family      = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    addr.sin_port        = htons((uint16_t)port);
    return addr;
}

static ucp_ep_h
ep_connect(int port)
{
    struct sockaddr_in  addr   = loopback(port);
    ucp_ep_params_t     params = {0};
    ucp_request_param_t none   = {0};
    ucp_ep_h            ep;

    params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
    params.flags      = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr    = (struct sockaddr *)&addr;
    params.sockaddr.addrlen = sizeof(addr);
    ep                      = ep_create(&params);
    wait_for(ucp_ep_flush_nbx(ep, &none));
    return ep;
}

static void
reconnect(int port, int count)
{
    ucp_request_param_t none = {0};

    for (int i = 0; i < count; ++i) {
        wait_for(ucp_ep_close_nbx(ep_connect(port), &none));
    }
}

/* Progress for ever, asleep while nothing happens. */
static void
serve(void)
{
    struct pollfd event = {.events = POLLIN};

    check(ucp_worker_get_efd(worker, &event.fd), "ucp_worker_get_efd");
    for (;;) {
        while (ucp_worker_progress(worker)) {
        }
        if (ucp_worker_arm(worker) == UCS_OK) {
            poll(&event, 1, -1);
        }
    }
}

static void
server(void)
{
    struct sockaddr_in    addr   = loopback(0);
    ucp_listener_params_t params = {0};
    ucp_listener_attr_t   attr;
    ucp_listener_h        listener;

    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                        UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr.addr    = (struct sockaddr *)&addr;
    params.sockaddr.addrlen = sizeof(addr);
    params.conn_handler.cb  = on_connect;
    check(ucp_listener_create(worker, &params, &listener), "listener_create");
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    check(ucp_listener_query(listener, &attr), "listener_query");
    memcpy(&addr, &attr.sockaddr, sizeof(addr));
    printf("{\"port\": %d}\n", ntohs(addr.sin_port));
    fflush(stdout);
    serve();
}

int
main(int argc, char **argv)
{
    worker_create();
    if (argc == 2 && strcmp(argv[1], "server") == 0) {
        server();
    } else if (argc == 4 && strcmp(argv[1], "hold") == 0) {
        for (int i = 0; i < atoi(argv[3]); ++i) {
            ep_connect(atoi(argv[2]));
        }
        printf("{\"held\": %s}\n", argv[3]);
        fflush(stdout);
        serve();
    } else if (argc == 5 && strcmp(argv[1], "connect") == 0) {
        double start;

        reconnect(atoi(argv[2]), atoi(argv[3]));
        start = now();
        reconnect(atoi(argv[2]), atoi(argv[4]));
        printf("{\"value\": %g}\n", atoi(argv[4]) / (now() - start));
    } else {
        fputs("usage: bare_ucx server | hold PORT N | connect PORT W N\n",
              stderr);
        return 2;
    }
    return 0;
}
