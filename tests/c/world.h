/* SPDX-License-Identifier: BSD-3-Clause */
/* world.h: a communicator whose ranks are workers of this process. */
#ifndef WORLD_H
#define WORLD_H

#include "pair.h"

#include <netinet/in.h>
#include <umx/umx.h>

#define MAX_RANKS 8

typedef struct world {
    const char  *tls; /* NULL: UCX's choice */
    umx_config   config;
    umx_context *context;
    int          size;
    umx_worker  *workers[MAX_RANKS];
    umx_comm    *comms[MAX_RANKS];
    uint16_t     port;
    uint64_t     timeout_ns;            /* until all have come; 0: 20 s */
    bool         is_stopped[MAX_RANKS]; /* makes no progress */
    unsigned     num_idle;
} world;

/* An operation of one rank. */
typedef struct job {
    umx_request *req; /* NULL unless in progress */
    umx_status   status;
    int          calls;
} job;

int world_setup(void **state);
int world_teardown(void **state);

#define WORLD_TEST(f)                                                 \
    {#f, f, world_setup, world_teardown, NULL},                       \
    {                                                                 \
#f " over tcp", f, world_setup, world_teardown, (void *)"tcp" \
    }

/* Context and workers of `size` ranks. */
void world_workers(world *w, int size);

/* Parameters of a rank that meets the others at w->port, which is chosen. */
umx_comm_params world_params(world *w, int rank);

/* Communicators as well. */
void world_open(world *w, int size);

/* Another world of the same transports, with communicators: for ranks that are
 * of no use afterwards. world_teardown() ends it. */
world *world_open_another(const world *like, int size);

/* Progress all workers; sleep if nothing happens. */
void world_step(world *w);

/* Let all ranks but `rank` take its process for one of another host, whose
 * silence means its end. */
void world_move_away(world *w, int rank);

/* A buffer of its own memory, which ranks can map if `is_memory`. Any thread.
 */
umx_buffer world_new_buffer(const world *w, size_t len, bool is_memory);
void       world_free_buffer(const umx_buffer *buf);

/* Parameters for an operation that tells `job`; and what its call returned. */
umx_op_params job_params(job *j);
void          job_posted(job *j, umx_status status, umx_request *const *req_p);

/* Step until all have ended, each with `status`. */
void world_wait(world *w, job *jobs, int count, umx_status status);

/* The same for one; its status. */
umx_status world_wait_one(world *w, job *j);

/* A receive of one rank. */
typedef struct receipt {
    job             j;
    umx_comm_status got;
} receipt;

umx_op_params receipt_params(receipt *r);

/* Post a message from a rank to another, and a receive. */
void send_to(world *w, int from, int to, uint64_t tag, const void *data,
             size_t len, job *j);
void recv_from(world *w, int rank, int source, uint64_t tag, uint64_t mask,
               void *data, size_t len, receipt *r);

/* A number below `below`; xorshift of the state, which a test sets first. */
extern uint64_t random_state;
uint64_t        next_random(uint64_t below);

/* What a rank sends to another, byte by byte. */
unsigned char byte_of(int from, int to, size_t i);

/* The reason of the revocation at that rank has `text` in it. */
void expect_reason(world *w, int rank, const char *text);

#endif
