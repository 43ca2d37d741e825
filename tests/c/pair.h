/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h: two workers of one process, connected over loopback.
 *
 * PAIR_TEST(f) is f twice: with UCX's choice of transports and over tcp. The
 * test fills in what it wants of `config` and opens the pair; the teardown
 * closes it and looks for what was left behind. */
#ifndef PAIR_H
#define PAIR_H

#include "unit.h"

#include <netinet/in.h>
#include <umx/umx.h>

#include "worker/worker.h"
#include "channel/channel.h"

#define SECOND_NS UINT64_C(1000000000)

typedef struct pair {
    const char   *tls; /* NULL: UCX's choice */
    umx_config    config;
    umx_config   *client_config; /* NULL: `config` */
    umx_window    window;        /* of both endpoints */
    umx_context  *context;
    umx_context  *client_context;
    umx_worker   *client_worker;
    umx_worker   *server_worker;
    umx_listener *listener;
    umx_ep       *client; /* NULL when the test has given it back */
    umx_ep       *server;
} pair;

/* One operation, and what was passed to its callback. */
typedef struct op {
    umx_request  *req; /* NULL unless in progress */
    umx_status    status;
    int           calls;
    umx_recv_info info;
    umx_message  *message;
} op;

int pair_setup(void **state);
int pair_teardown(void **state);
int pair_abort_and_teardown(void **state);

#define PAIR_TEST(f)                                                \
    {#f, f, pair_setup, pair_teardown, NULL},                       \
    {                                                               \
#f " over tcp", f, pair_setup, pair_teardown, (void *)"tcp" \
    }
#define PAIR_TEST_ONCE(f)                      \
    {                                          \
#f, f, pair_setup, pair_teardown, NULL \
    }

/* With fake_ucp nothing is delivered: there is no closing by agreement. */
#define PAIR_TEST_FAKE(f)                                \
    {                                                    \
#f, f, pair_setup, pair_abort_and_teardown, NULL \
    }

/* A context of `tls` (NULL: UCX's choice) and `config` (NULL: default). */
umx_context *pair_context(const char *tls, const umx_config *config);

/* The contexts and workers alone. */
void pair_workers(pair *p);

/* Context, workers and listener; then the endpoints too. */
void pair_listen(pair *p);
void pair_open(pair *p);

/* Start to connect p->client, with a timeout unless 0. */
void pair_connect(pair *p, uint64_t timeout_ns);

/* A second connection of the two workers, which uses the same stream. The first
 * one is `client` and `server` afterwards. */
void pair_open_second(pair *p, umx_ep **client, umx_ep **server);

/* The listener's address. */
size_t pair_address(const pair *p, struct sockaddr_storage *addr);

/* Progress both workers; sleep if nothing happens. */
void pair_step(pair *p);

#define PAIR_UNTIL(p, condition) \
    do {                         \
        while (!(condition)) {   \
            pair_step(p);        \
        }                        \
    } while (0)

/* For what libumx does without where memory is short, as lending. */
#define PAIR_UNTIL_OPTIONAL(p, condition) \
    do {                                  \
        UNIT_OPTIONAL(true);              \
        PAIR_UNTIL(p, condition);         \
        UNIT_OPTIONAL(false);             \
    } while (0)

/* Until all that the other side has sent so far has arrived: a message of
 * channel UINT16_MAX there and back. */
void pair_settle(pair *p);

/* Handle `control` as a message from the handshake's socket of `ep`, and wait
 * until what it begins need not wait. */
void pair_hear(umx_ep *ep, const umi_control *control);

/* Where `ep` is, as it would tell its peer. */
void pair_where(umx_ep *ep, umi_where *where);

/* A TCP socket on a port of its own, which does not listen. */
int bound_socket(struct sockaddr_in *addr);

/* Handle `control` as a message that UCX delivers to `ep`. Returns the
 * verdict. */
int pair_feed_control(umx_ep *ep, const umi_control *control);

extern const umx_match pair_any;
extern const umx_match pair_untagged;

static inline umx_match
pair_tag(uint64_t tag)
{
    umx_match match = {.tag = tag, .mask = UINT64_MAX};

    return match;
}

/* Callback parameters that record in `o`. */
umx_op_params op_params(op *o);
/* Record the status that the posting call returned. */
void op_posted(op *o, umx_status status);
void op_send(op *o, umx_ep *ep, uint16_t channel, umx_match match,
             const void *data, size_t len);
void op_recv(op *o, umx_ep *ep, uint16_t channel, umx_match match, void *data,
             size_t len);
void op_recv_message(op *o, umx_ep *ep, uint16_t channel, umx_match match);
void op_am_send(op *o, umx_ep *ep, uint16_t id, const void *header,
                size_t header_len, const void *data, size_t len);
void op_am_recv(op *o, umx_ep *ep, uint16_t id);
void op_am_recv_small(op *o, umx_ep *ep, uint16_t id, void *data, size_t len);
/* `o->message` is `message` afterwards if that is still the caller's. */
void op_message_recv(op *o, umx_message *message, void *data, size_t len);
void op_close(op *o, umx_ep *ep, uint64_t timeout_ns);

static inline bool
op_is_done(const op *o)
{
    return o->req == NULL;
}

/* Cancel what must be in progress. */
static inline void
op_cancel(umx_request *req)
{
    assert_non_null(req);
    umx_request_cancel(req);
}

/* Progress until `o` is done; its status. */
umx_status op_wait(pair *p, op *o);

/* Post and wait. */
umx_status pair_send(pair *p, umx_ep *ep, uint16_t channel, umx_match match,
                     const void *data, size_t len);
umx_status pair_recv(pair *p, umx_ep *ep, uint16_t channel, umx_match match,
                     void *data, size_t len);

/* Bytes that depend on `seed`; check_pattern() fails the test if they are not
 * there. */
void fill_pattern(void *data, size_t len, unsigned seed);
void check_pattern(const void *data, size_t len, unsigned seed);

#endif
