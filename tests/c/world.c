/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/communicator.h"
#include "comm/member.h"
#include "endpoint/endpoint.h"
#include "port.h"

enum {
    IDLE_STEPS = 100 /* of a millisecond, in which nothing comes */
};

int
world_setup(void **state)
{
    world *w = calloc(1, sizeof(*w));

    w->tls = *state;
    umx_config_default(&w->config);
    *state = w;
    return 0;
}

static bool
has_requests(const world *w)
{
    umx_worker_stats stats = {0};

    for (int i = 0; i < w->size && stats.requests_in_use == 0; i++) {
        if (w->workers[i] != NULL) {
            umx_worker_query(w->workers[i], &stats);
        }
    }
    return stats.requests_in_use != 0;
}

int
world_teardown(void **state)
{
    world *w = *state;

    for (int i = 0; i < w->size; i++) {
        if (w->comms[i] != NULL) {
            umx_comm_close(w->comms[i]);
        }
    }
    for (int i = 0; i < w->size; i++) {
        if (w->comms[i] != NULL) {
            umx_comm_destroy(w->comms[i]);
        }
    }
    while (has_requests(w)) { /* goodbyes, to ranks that were still there */
        world_step(w);
    }
    for (int i = 0; i < w->size; i++) {
        if (w->workers[i] != NULL) {
            umx_worker_destroy(w->workers[i]);
        }
    }
    umx_context_release(w->context);
    free(w);
    return 0;
}

void
world_workers(world *w, int size)
{
    w->context = pair_context(w->tls, &w->config);
    w->size    = size;
    for (int i = 0; i < size; i++) {
        assert_int_equal(umx_worker_create(w->context, &w->workers[i]), UMX_OK);
    }
}

umx_comm_params
world_params(world *w, int rank)
{
    static struct sockaddr_in addr;

    if (w->port == 0) {
        w->port = port_choose();
    }
    addr = (struct sockaddr_in){.sin_family      = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port        = htons(w->port)};
    return (umx_comm_params){
        .field_mask = UMX_COMM_FIELD_TIMEOUT,
        .rank       = rank,
        .size       = w->size,
        .addr       = (struct sockaddr *)&addr,
        .addr_len   = sizeof(addr),
        .timeout_ns = (w->timeout_ns != 0) ? w->timeout_ns : 20 * SECOND_NS,
    };
}

void
world_open(world *w, int size)
{
    job jobs[MAX_RANKS];

    world_workers(w, size);
    for (int i = 0; i < size; i++) {
        umx_comm_params params = world_params(w, i);
        umx_op_params   how    = job_params(&jobs[i]);
        umx_request    *req    = NULL;

        job_posted(
            &jobs[i],
            umx_comm_create(w->workers[i], &params, &how, &w->comms[i], &req),
            &req);
    }
    world_wait(w, jobs, size, UMX_OK);
    for (int i = 0; i < size; i++) {
        assert_int_equal(umx_comm_rank(w->comms[i]), i);
        assert_int_equal(umx_comm_size(w->comms[i]), size);
    }
}

world *
world_open_another(const world *like, int size)
{
    void *state = (void *)(uintptr_t)like->tls;

    assert_int_equal(world_setup(&state), 0);
    world_open(state, size);
    return state;
}

void
world_step(world *w)
{
    struct pollfd fds[MAX_RANKS];
    nfds_t        count   = 0;
    bool          is_idle = true;
    uint64_t      soonest = UINT64_MAX;

    for (int i = 0; i < w->size; i++) {
        uint64_t deadline;

        if (w->workers[i] == NULL || w->is_stopped[i]) {
            continue;
        }
        if (umx_worker_drain(w->workers[i]) == UMX_INPROGRESS) {
            is_idle = false;
        }
        deadline     = umx_worker_deadline(w->workers[i]);
        soonest      = (deadline < soonest) ? deadline : soonest;
        fds[count++] = (struct pollfd){.fd     = umx_worker_fd(w->workers[i]),
                                       .events = POLLIN};
    }
    if (is_idle) {
        /* What one did may be work for another: look again soon. */
        if (poll(fds, count, 1) == 0 && ++w->num_idle % IDLE_STEPS == 0) {
            UNIT_IDLE();
        }
    } else {
        w->num_idle = 0;
    }
}

umx_buffer
world_new_buffer(const world *w, size_t len, bool is_memory)
{
    umx_memh  *memh;
    umx_buffer buf;

    if (is_memory && len != 0) {
        if (umx_memh_alloc(w->context, len, &memh) != UMX_OK) {
            abort(); /* an assertion of cmocka is for its thread only */
        }
        buf      = *umx_memh_buffer(memh);
        buf.memh = memh;
        return buf;
    }
    buf = umx_host_buffer(malloc(len), len);
    if (len != 0) {
        memset(buf.data, 1, len);
    }
    return buf;
}

void
world_free_buffer(const umx_buffer *buf)
{
    if (buf->memh != NULL) {
        umx_memh_release(buf->memh);
    } else {
        free(buf->data);
    }
}

static void
on_done(umx_request *req, umx_status status, void *arg)
{
    job *j = arg;

    (void)req;
    UNIT_TOLD(status);
    j->status = status;
    j->req    = NULL;
    j->calls++;
}

umx_op_params
job_params(job *j)
{
    *j = (job){.status = UMX_INPROGRESS};
    return (umx_op_params){
        .field_mask = UMX_OP_FIELD_ON_DONE, .on_done = on_done, .arg = j};
}

void
job_posted(job *j, umx_status status, umx_request *const *req_p)
{
    if (status == UMX_INPROGRESS) {
        assert_non_null(*req_p);
        j->req = *req_p;
    } else {
        j->status = status;
        UNIT_TOLD(status);
    }
}

umx_status
world_wait_one(world *w, job *j)
{
    for (int i = 0; i < 30000 && j->status == UMX_INPROGRESS; i++) {
        world_step(w);
    }
    assert_int_not_equal(j->status, UMX_INPROGRESS);
    return j->status;
}

void
world_wait(world *w, job *jobs, int count, umx_status status)
{
    for (int i = 0; i < count; i++) {
        umx_status got = world_wait_one(w, &jobs[i]);

        if (got != status) {
            print_message("rank %d: %s: %s\n", i, umx_status_string(got),
                          (i < w->size && w->comms[i] != NULL) ?
                              umx_comm_reason(w->comms[i]) :
                              "");
        }
        assert_int_equal(got, status);
    }
}

void
send_to(world *w, int from, int to, uint64_t tag, const void *data, size_t len,
        job *j)
{
    umx_op_params params = job_params(j);
    umx_buffer    buf    = umx_host_buffer(data, len);
    umx_request  *req    = NULL;

    job_posted(j, umx_comm_isend(w->comms[from], to, tag, &buf, &params, &req),
               &req);
}

static void
on_received(umx_request *req, umx_status status, void *arg)
{
    receipt *r = arg;

    UNIT_TOLD(status);
    r->got      = *umx_comm_result(req);
    r->j.status = status;
    r->j.req    = NULL;
    r->j.calls++;
}

umx_op_params
receipt_params(receipt *r)
{
    umx_op_params params = job_params(&r->j);

    params.on_done = on_received;
    params.arg     = r;
    return params;
}

void
recv_from(world *w, int rank, int source, uint64_t tag, uint64_t mask,
          void *data, size_t len, receipt *r)
{
    umx_op_params params = receipt_params(r);
    umx_buffer    buf    = umx_host_buffer(data, len);
    umx_request  *req    = NULL;

    job_posted(&r->j,
               umx_comm_irecv(w->comms[rank], source, tag, mask, &buf, &params,
                              &req, &r->got),
               &req);
}

uint64_t random_state;

uint64_t
next_random(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

unsigned char
byte_of(int from, int to, size_t i)
{
    return (unsigned char)(from * 31 + to * 17 + (int)(i * 7));
}

void
expect_reason(world *w, int rank, const char *text)
{
    if (strstr(umx_comm_reason(w->comms[rank]), text) == NULL) {
        print_message("rank %d: %s\n", rank, umx_comm_reason(w->comms[rank]));
    }
    assert_non_null(strstr(umx_comm_reason(w->comms[rank]), text));
}

void
world_move_away(world *w, int rank)
{
    for (int i = 0; i < w->size; i++) {
        umi_comm_member *member = &w->comms[i]->group->members[rank];

        if (i == rank) {
            continue;
        }
        if (member->mine != NULL) {
            member->mine->peer_pid = 0;
        }
        if (member->theirs != NULL) {
            member->theirs->peer_pid = 0;
        }
    }
}
