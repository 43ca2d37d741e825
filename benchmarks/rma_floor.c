/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on a peer's memory in C: the floor of rma.py.
 *
 * rma_floor PORT KEY    connect to 127.0.0.1:PORT, open KEY (hexadecimal); then
 *                       for each line "put N", "get N" or "list N" of standard
 *                       input do it N times and print {"value": seconds of one}
 *
 * put: 8 bytes. get, list: PIECES pieces of PIECE bytes, not neighbours, by a
 * umx_rma_get() each, or by one umx_rma_get_many().
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <umx/umx.h>

enum {
    PIECES  = 1000,
    PIECE   = 8192,
    KEY_MAX = 8192
};

static umx_worker  *worker;
static umx_rkey    *rkey;
static umx_rma_item items[PIECES];

static void
check(umx_status status, const char *what)
{
    if (status != UMX_OK) {
        fprintf(stderr, "%s: %s\n", what, umx_status_string(status));
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

/* Wait for an operation that a call has posted. */
static void
finish(umx_status status, umx_request **req_p)
{
    if (status == UMX_INPROGRESS) {
        status = umx_request_wait(*req_p, UMX_TIMEOUT_INFINITE);
        umx_request_release(*req_p);
    }
    check(status, "operation");
}

static void
put(void)
{
    static char  bytes[8];
    umx_rma_item item = {.buf = umx_host_buffer(bytes, sizeof(bytes))};
    umx_request *req;

    finish(umx_rma_put(rkey, &item, NULL, &req), &req);
}

static void
get(void)
{
    umx_request *req;

    for (int i = 0; i < PIECES; i++) {
        finish(umx_rma_get(rkey, &items[i], NULL, &req), &req);
    }
}

static void
list(void)
{
    umx_request *req;

    finish(umx_rma_get_many(rkey, items, PIECES, NULL, &req), &req);
}

static umx_ep *
connect_to(uint16_t port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    umx_connect_params params = {.addr     = (struct sockaddr *)&addr,
                                 .addr_len = sizeof(addr)};
    umx_ep            *ep;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(umx_ep_connect(worker, &params, &ep), "connect");
    while (umx_ep_get_state(ep) == UMX_EP_CONNECTING) {
        check(umx_worker_wait(worker, UMX_TIMEOUT_INFINITE), "wait");
    }
    check(umx_ep_error(ep), "connect");
    return ep;
}

static void
open_key(umx_ep *ep, const char *hex)
{
    uint8_t  key[KEY_MAX];
    size_t   len = strlen(hex) / 2;
    unsigned byte;

    for (size_t i = 0; i < len && i < KEY_MAX; i++) {
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) {
            exit(2);
        }
        key[i] = (uint8_t)byte;
    }
    check(umx_rkey_open(ep, key, len, &rkey), "key");
}

/* The last piece first, so that none has a neighbour. */
static void
fill_items(void)
{
    char *bytes = calloc(PIECES, PIECE);

    if (bytes == NULL) {
        exit(2);
    }
    for (uint64_t i = 0; i < PIECES; i++) {
        items[i].offset = (PIECES - 1 - i) * PIECE;
        items[i].buf    = umx_host_buffer(bytes + i * PIECE, PIECE);
    }
}

static double
measure(void (*operation)(void), int count)
{
    double start = now();

    for (int i = 0; i < count; i++) {
        operation();
    }
    return (now() - start) / count;
}

int
main(int argc, char **argv)
{
    umx_context *context;
    umx_ep      *ep;
    char         name[8];
    int          count;

    if (argc != 3) {
        return 2;
    }
    check(umx_context_create(NULL, &context, NULL), "context");
    check(umx_worker_create(context, &worker), "worker");
    ep = connect_to((uint16_t)atoi(argv[1]));
    open_key(ep, argv[2]);
    fill_items();
    while (scanf("%7s %d", name, &count) == 2) {
        void (*operation)(void) = (strcmp(name, "put") == 0) ? put :
                                  (strcmp(name, "get") == 0) ? get :
                                                               list;

        printf("{\"value\": %.12f}\n", measure(operation, count));
        fflush(stdout);
    }
    umx_rkey_destroy(rkey);
    umx_ep_destroy(ep);
    umx_worker_destroy(worker);
    umx_context_release(context);
    return 0;
}
