/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair child wrap=umx_buffer_read */
/* tests: comm/group comm/inbox_out */
/* A rank is killed, or stopped, at each step of each collective operation, and
 * of messages; and while it copies bytes into the inbox of another one.
 *
 * Ranks are processes. The victim sends itself the signal after so many calls
 * of progress that moved something; the others end the operation, if they can,
 * and then call barriers until one fails. Each says how long after the signal
 * that was, and whom it holds responsible. One that is stopped for a while only
 * does no harm. KILL_MATRIX=1 in the environment:
 * every number of ranks, step and length, with a table; KILL_MATRIX=4: of four
 * ranks. */
#include "pair.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "util/clock.h"

enum {
    MAX_RANKS    = 4,
    NUM_OPS      = 10,
    MESSAGES     = NUM_OPS - 1,
    GOES_ON      = 3,  /* barriers after a short stop */
    UNTIL_MAPPED = 10, /* barriers, until messages go by inboxes */
    HEARTBEAT_MS = 100
};

static const char *const op_names[NUM_OPS] = {
    "barrier",  "bcast",  "gather",    "scatter", "allgather",
    "alltoall", "reduce", "allreduce", "split",   "messages",
};

/* What a rank does; the argument of the child. */
typedef struct plan {
    int    rank, size, op, victim, step, sig;
    int    is_copy;  /* steps are copies into an inbox */
    int    is_short; /* SIGCONT follows at once */
    size_t len;      /* bytes of each piece */
    char   tls[16];
} plan;

/* What a rank has seen. */
typedef struct report {
    uint64_t   when_ns;
    umx_status status; /* of the operation that failed */
    int        rank;   /* held responsible */
    bool       has_failure;
    char       reason[120]; /* for people */
} report;

/* ---- a rank ----------------------------------------------------------------
 */

/* Memory of a rank that lasts as long as its operations. */
typedef struct memory {
    char  *send, *recv;
    size_t counts[MAX_RANKS];
    /* Of the operation that was lost; UMX_INPROGRESS: none was. */
    umx_status lost;
} memory;

/* UCX keeps a message of the victim's: the operation has failed, and its memory
 * stays lent. */
static void
on_lost(umx_request *req, umx_status status, void *arg)
{
    umx_status *status_p = arg;

    (void)req;
    *status_p = status;
}

static umx_status
post(umx_comm *comm, const plan *p, int kind, memory *m, umx_request **req_p)
{
    umx_op_params how     = {.field_mask = UMX_OP_FIELD_FLAGS |
                                           UMX_OP_FIELD_ON_LOST,
                             .flags   = UMX_OP_FLAG_KEEP,
                             .on_lost = on_lost,
                             .arg     = &m->lost};
    umx_pieces    pieces  = {.counts = m->counts};
    size_t        size    = (size_t)p->size;
    umx_buffer    one_in  = umx_host_buffer(m->recv, p->len);
    umx_buffer    one     = umx_host_buffer(m->send, p->len);
    umx_buffer    all     = umx_host_buffer(m->send, p->len * size);
    umx_buffer    all_in  = umx_host_buffer(m->recv, p->len * size);
    umx_reduction what    = {UMX_INT64, UMX_SUM};
    int           root    = 1 % p->size;
    bool          is_root = p->rank == root;
    umx_comm     *made;
    umx_status    status;

    switch (kind) {
    case 0:
        return umx_barrier(comm, &how, req_p);
    case 1:
        return umx_bcast(comm, root, &one, &how, req_p);
    case 2:
        return umx_gatherv(comm, root, &one, is_root ? &all_in : NULL, &pieces,
                           &how, req_p);
    case 3:
        return umx_scatterv(comm, root, is_root ? &all : NULL, &pieces, &one_in,
                            &how, req_p);
    case 4:
        return umx_allgatherv(comm, &one, &all_in, &pieces, &how, req_p);
    case 5:
        return umx_alltoallv(comm, &all, &pieces, &all_in, &pieces, &how,
                             req_p);
    case 6:
        return umx_reduce(comm, root, &what, &one, is_root ? &one_in : NULL,
                          &how, req_p);
    case 7:
        return umx_allreduce(comm, &what, &one, &one_in, &how, req_p);
    default:
        status = umx_comm_split(comm, p->rank % 2, 0, &how, &made, req_p);
        if (status >= 0) {
            umx_comm_destroy(made); /* the operation has it as well */
        }
        return status;
    }
}

static void
signal_oneself(const plan *p)
{
    uint64_t when = umi_clock_ns();

    child_write(CHILD_OUT, &when, sizeof(when));
    (void)raise(p->sig);
}

static const plan *copying; /* the victim's; or NULL */
static int         copies;  /* until the signal */

umx_status __real_umx_buffer_read(const umx_buffer *buf, void *to, size_t len);
umx_status __wrap_umx_buffer_read(const umx_buffer *buf, void *to, size_t len);

umx_status
__wrap_umx_buffer_read(const umx_buffer *buf, void *to, size_t len)
{
    if (copying != NULL && copies-- == 0) {
        signal_oneself(copying);
        copying = NULL;
    }
    return __real_umx_buffer_read(buf, to, len);
}

/* Progress until the request is complete, or lost. The victim counts. */
static umx_status
finish(umx_worker *worker, const plan *p, umx_request *req,
       const umx_status *lost, int *steps_p)
{
    umx_status status;

    while ((status = umx_request_status(req)) == UMX_INPROGRESS &&
           (status = *lost) == UMX_INPROGRESS) {
        if (steps_p != NULL && *steps_p >= 0) {
            if (umx_worker_poll(worker) != 0 && (*steps_p)-- == 0) {
                signal_oneself(p);
            }
        } else if (umx_worker_wait(worker, SECOND_NS) < 0) {
            abort();
        }
    }
    umx_request_release(req);
    return status;
}

/* Send to the next rank, and receive from the one before. */
static umx_status
run_messages(umx_worker *worker, umx_comm *comm, const plan *p, memory *m,
             int *steps_p)
{
    umx_op_params   how    = {.field_mask = UMX_OP_FIELD_FLAGS |
                                            UMX_OP_FIELD_ON_LOST,
                              .flags   = UMX_OP_FLAG_KEEP,
                              .on_lost = on_lost,
                              .arg     = &m->lost};
    int             next   = (p->rank + 1) % p->size;
    int             before = (p->rank + p->size - 1) % p->size;
    umx_buffer      in     = umx_host_buffer(m->recv, p->len);
    umx_buffer      out    = umx_host_buffer(m->send, p->len);
    umx_request    *recv = NULL, *send = NULL;
    umx_comm_status got;
    umx_status      received, sent;

    received = umx_comm_irecv(comm, before, 0, UINT64_MAX, &in, &how, &recv,
                              &got);
    sent     = umx_comm_isend(comm, next, 0, &out, &how, &send);
    if (sent == UMX_INPROGRESS) {
        sent = finish(worker, p, send, &m->lost, steps_p);
    }
    if (received == UMX_INPROGRESS) {
        received = finish(worker, p, recv, &m->lost, steps_p);
    }
    return (sent != UMX_OK) ? sent : received;
}

static umx_status
run(umx_worker *worker, umx_comm *comm, const plan *p, int kind, memory *m,
    int *steps_p)
{
    umx_request *req = NULL;
    umx_status   status;

    if (kind == MESSAGES) {
        return run_messages(worker, comm, p, m, steps_p);
    }
    status = post(comm, p, kind, m, &req);

    return (status == UMX_INPROGRESS) ?
               finish(worker, p, req, &m->lost, steps_p) :
               status;
}

static umx_comm *
join(umx_worker *worker, const plan *p)
{
    uint8_t         address[UMX_ADDRESS_MAX];
    const void     *own;
    size_t          len;
    umx_op_params   how    = {.field_mask = UMX_OP_FIELD_FLAGS,
                              .flags      = UMX_OP_FLAG_KEEP};
    umx_comm_params params = {
        .field_mask   = UMX_COMM_FIELD_TIMEOUT | UMX_COMM_FIELD_HEARTBEAT,
        .rank         = p->rank,
        .size         = p->size,
        .root         = address,
        .timeout_ns   = 30 * SECOND_NS,
        .heartbeat_ns = HEARTBEAT_MS * SECOND_NS / 1000,
    };
    umx_request *req  = NULL;
    umx_status   none = UMX_INPROGRESS; /* nothing is lost here */
    umx_comm    *comm;
    umx_status   status;

    if (p->sig == SIGKILL || p->is_short) {
        params.heartbeat_ns = 10 * SECOND_NS; /* it is not what tells */
    }
    if (p->rank == 0) {
        if (umx_worker_get_address(worker, &own, &len) != UMX_OK) {
            abort();
        }
        memcpy(address, own, len);
        child_write(CHILD_OUT, &len, sizeof(len));
        child_write(CHILD_OUT, address, len);
    } else {
        child_read(CHILD_IN, &len, sizeof(len));
        child_read(CHILD_IN, address, len);
    }
    params.root_len = len;
    status          = umx_comm_create(worker, &params, &how, &comm, &req);
    if (status == UMX_INPROGRESS) {
        status = finish(worker, p, req, &none, NULL);
    }
    if (status != UMX_OK) {
        fprintf(stderr, "rank %d: %s\n", p->rank, umx_comm_reason(comm));
        abort();
    }
    return comm;
}

/* Run the operation. The victim signals itself in any case: its part may be
 * over before the step. */
static umx_status
run_op(umx_worker *worker, umx_comm *comm, plan *p, memory *m)
{
    bool       is_victim = p->rank == p->victim;
    umx_status status;

    copying = (is_victim && p->is_copy) ? p : NULL;
    copies  = p->step;
    status  = run(worker, comm, p, p->op, m,
                 (is_victim && !p->is_copy) ? &p->step : NULL);
    if (copying != NULL && p->step == 0) {
        (void)fprintf(stderr, "rank %d has copied nothing\n", p->rank);
        abort();
    }
    if (is_victim && (p->is_copy ? copying != NULL : p->step >= 0)) {
        copying = NULL;
        signal_oneself(p);
    }
    return status;
}

static int
run_rank(const char *arg)
{
    plan             p = {0};
    umx_context     *context;
    umx_worker      *worker;
    umx_comm        *comm;
    memory           m;
    umx_comm_failure failure = {.rank = -1};
    report           seen    = {0};

    if (sscanf(arg, "%d %d %d %d %d %d %d %d %zu %15s", &p.rank, &p.size, &p.op,
               &p.victim, &p.step, &p.sig, &p.is_copy, &p.is_short, &p.len,
               p.tls) != 10) {
        return 2;
    }
    m.lost = UMX_INPROGRESS;
    m.send = calloc((size_t)p.size, p.len);
    m.recv = calloc((size_t)p.size, p.len);
    for (int i = 0; i < p.size; i++) {
        m.counts[i] = p.len;
    }
    context = pair_context(strcmp(p.tls, "any") == 0 ? NULL : p.tls, NULL);
    if (umx_worker_create(context, &worker) != UMX_OK) {
        return 3;
    }
    comm        = join(worker, &p);
    seen.status = run(worker, comm, &p, 0, &m, NULL);
    for (int i = 0; seen.status == UMX_OK && p.is_copy && i < UNTIL_MAPPED;
         i++) {
        seen.status = run(worker, comm, &p, 0, &m, NULL);
    }
    if (seen.status == UMX_OK) {
        seen.status = run_op(worker, comm, &p, &m);
    }
    for (int i = 0; seen.status == UMX_OK && (!p.is_short || i < GOES_ON);
         i++) {
        seen.status = run(worker, comm, &p, 0, &m, NULL);
    }
    seen.when_ns     = umi_clock_ns();
    seen.has_failure = umx_comm_get_failure(comm, &failure);
    seen.rank        = failure.rank;
    (void)snprintf(seen.reason, sizeof(seen.reason), "%s",
                   umx_comm_reason(comm));
    child_write(CHILD_OUT, &seen, sizeof(seen));
    umx_comm_close(comm);
    umx_comm_destroy(comm);
    /* What the others are told has to leave before the process does. */
    while (umx_worker_num_closing(worker) != 0 &&
           umx_worker_wait(worker, SECOND_NS / 10) >= 0) {
    }
    umx_worker_destroy(worker);
    umx_context_release(context);
    free(m.send);
    free(m.recv);
    return 0;
}

/* ---- the test --------------------------------------------------------------
 */

static uint64_t late[100000]; /* ns, of each rank that has been told */
static size_t   num_late;

static void
check_report(const plan *p, const report *seen, uint64_t when_ns)
{
    bool is_right = p->is_short ?
                        seen->status == UMX_OK :
                        seen->status == UMX_ERR_RANK_FAILED &&
                            seen->has_failure && seen->rank == p->victim;

    if (!is_right) {
        fail_msg("%s of %d ranks and %zu bytes, rank %d at step %d: rank %d "
                 "ended with %s and holds rank %d responsible: %s",
                 op_names[p->op], p->size, p->len, p->victim, p->step, p->rank,
                 umx_status_string(seen->status), seen->rank, seen->reason);
    }
    if (p->rank != p->victim) {
        late[num_late++] = seen->when_ns - when_ns;
    }
}

/* What a rank writes; one that ends instead is named. */
static void
read_from(const plan *p, const child *rank, void *data, size_t len)
{
    ssize_t n;
    int     status;

    do {
        n = read(rank->in, data, len);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)len) {
        assert_int_equal(waitpid(rank->pid, &status, 0), rank->pid);
        fail_msg("%s of %d ranks and %zu bytes, rank %d at step %d: rank %d "
                 "has ended without a report, with wait status %#x",
                 op_names[p->op], p->size, p->len, p->victim, p->step, p->rank,
                 (unsigned)status);
    }
}

static void
run_plan(plan p)
{
    child    ranks[MAX_RANKS];
    uint8_t  address[UMX_ADDRESS_MAX];
    size_t   len;
    uint64_t when_ns;
    report   seen;
    char     arg[128];

    for (p.rank = 0; p.rank < p.size; p.rank++) {
        (void)snprintf(arg, sizeof(arg), "%d %d %d %d %d %d %d %d %zu %s",
                       p.rank, p.size, p.op, p.victim, p.step, p.sig, p.is_copy,
                       p.is_short, p.len, p.tls);
        ranks[p.rank] = child_start("rank", arg);
    }
    child_read(ranks[0].in, &len, sizeof(len));
    child_read(ranks[0].in, address, len);
    for (int i = 1; i < p.size; i++) {
        child_write(ranks[i].out, &len, sizeof(len));
        child_write(ranks[i].out, address, len);
    }
    p.rank = p.victim;
    read_from(&p, &ranks[p.victim], &when_ns, sizeof(when_ns));
    if (p.is_short) {
        int status;

        assert_int_equal(waitpid(ranks[p.victim].pid, &status, WUNTRACED),
                         ranks[p.victim].pid);
        assert_true(WIFSTOPPED(status));
        (void)kill(ranks[p.victim].pid, SIGCONT);
    }
    for (p.rank = 0; p.rank < p.size; p.rank++) {
        if (p.rank != p.victim) {
            read_from(&p, &ranks[p.rank], &seen, sizeof(seen));
            check_report(&p, &seen, when_ns);
        }
    }
    if (p.sig == SIGSTOP) { /* it comes back, and may find itself revoked */
        (void)kill(ranks[p.victim].pid, SIGCONT);
        p.rank = p.victim;
        read_from(&p, &ranks[p.victim], &seen, sizeof(seen));
        check_report(&p, &seen, when_ns);
    }
    for (int i = 0; i < p.size; i++) {
        int status = child_end(&ranks[i], 0);

        if (i == p.victim && p.sig == SIGKILL) {
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        } else {
            assert_int_equal(status, 0);
        }
    }
}

static int
compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void
print_late(const plan *p)
{
    qsort(late, num_late, sizeof(*late), compare);
    printf("%-9s n=%d %7zu bytes: %4zu reports, ms until the failure: median "
           "%.2f, 99 %% %.2f, max %.2f\n",
           op_names[p->op], p->size, p->len, num_late,
           (double)late[num_late / 2] / 1e6,
           (double)late[num_late * 99 / 100] / 1e6,
           (double)late[num_late - 1] / 1e6);
    (void)fflush(stdout);
}

/* `ops`: bits. */
static void
run_matrix(plan p, unsigned ops, int num_steps)
{
    for (p.op = 0; p.op < NUM_OPS; p.op++) {
        if ((ops & 1u << p.op) == 0) {
            continue;
        }
        num_late = 0;
        for (p.victim = 0; p.victim < p.size; p.victim++) {
            for (p.step = 0; p.step < num_steps; p.step++) {
                run_plan(p);
            }
        }
        if (getenv("KILL_MATRIX") != NULL) {
            print_late(&p);
        }
    }
}

static void
run_all(plan p)
{
    static const size_t lens[] = {8, 20000, 300000, 1000000, 16000000};

    int size = atoi(getenv("KILL_MATRIX"));

    alarm(7200);
    printf("%s%s, transports: %s\n", strsignal(p.sig),
           p.is_short ? " for a while" : "", p.tls);
    for (p.size = 2; p.size <= MAX_RANKS; p.size++) {
        if (size > 1 && p.size != size) {
            continue;
        }
        for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
            p.len = lens[i];
            run_matrix(p, ~0u, 8);
        }
    }
}

static void
run_signal(const char *tls, int sig, unsigned ops)
{
    plan p = {.sig = sig, .size = 3, .len = 100000};

    (void)snprintf(p.tls, sizeof(p.tls), "%s", (tls != NULL) ? tls : "any");
    if (getenv("KILL_MATRIX") != NULL) {
        run_all(p);
    } else {
        run_matrix(p, ops, 1);
    }
}

static void
test_a_rank_is_killed_at_each_step(void **state)
{
    (void)state;
    run_signal(NULL, SIGKILL, ~0u);
}

static void
test_a_rank_is_killed_at_each_step_over_tcp(void **state)
{
    (void)state;
    run_signal("tcp", SIGKILL, 1u << 0 | 1u << 5);
}

static void
test_a_rank_is_stopped_at_each_step(void **state)
{
    (void)state;
    run_signal(NULL, SIGSTOP, 1u << 0 | 1u << 7);
}

/* The others wait for it, and all goes on. */
static void
test_a_rank_is_stopped_for_a_while(void **state)
{
    plan p = {.sig      = SIGSTOP,
              .size     = 2,
              .len      = 300000,
              .is_short = true,
              .tls      = "any"};

    (void)state;
    if (getenv("KILL_MATRIX") != NULL) {
        run_all(p);
    } else {
        run_matrix(p, 1u << 1 | 1u << 5 | 1u << MESSAGES, 1);
    }
}

/* The root of a bcast, whose other rank copies what is there already. */
static void
run_copies(int sig, bool is_short)
{
    static const int steps[] = {0, 5, 18};

    plan p = {.sig      = sig,
              .size     = 2,
              .len      = 300000,
              .op       = 1,
              .victim   = 1,
              .is_copy  = true,
              .is_short = is_short,
              .tls      = "any"};

    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        p.step = steps[i];
        run_plan(p);
    }
}

static void
test_a_rank_is_killed_while_it_copies(void **state)
{
    (void)state;
    run_copies(SIGKILL, false);
}

static void
test_a_rank_is_stopped_while_it_copies(void **state)
{
    (void)state;
    run_copies(SIGSTOP, false);
}

static void
test_a_rank_is_stopped_for_a_while_while_it_copies(void **state)
{
    (void)state;
    run_copies(SIGSTOP, true);
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {{"rank", run_rank}};
    const struct CMUnitTest  tests[]   = {
           cmocka_unit_test(test_a_rank_is_killed_at_each_step),
           cmocka_unit_test(test_a_rank_is_killed_at_each_step_over_tcp),
           cmocka_unit_test(test_a_rank_is_stopped_at_each_step),
           cmocka_unit_test(test_a_rank_is_stopped_for_a_while),
           cmocka_unit_test(test_a_rank_is_killed_while_it_copies),
           cmocka_unit_test(test_a_rank_is_stopped_while_it_copies),
           cmocka_unit_test(test_a_rank_is_stopped_for_a_while_while_it_copies),
    };

    child_role(argc, argv, entries, 1);
    return UNIT_RUN(tests);
}
