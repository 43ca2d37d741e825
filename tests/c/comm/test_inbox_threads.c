/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port tsan wrap=shmat wrap=shmdt wrap=shmctl */
/* tests: comm/inbox comm/inbox_out */
/* Ranks that are threads write into each other's inboxes at the same time.
 *
 * Here a memory is mapped once in the process, and not once for each rank, so
 * that ThreadSanitizer sees that it is the same: what both sides do with a ring
 * is ordered by the words of the cells, or it is a race. */
#include <pthread.h>
#include <sys/shm.h>

#include "world.h"

#include "comm/inbox.h"

/* ---- one mapping for all -------------------------------------------------
 */

enum {
    MAX_SEGMENTS = 256
};

/* A segment that is mapped. */
typedef struct mapping {
    void         *address; /* NULL: a free entry */
    int           number;
    unsigned long users;
} mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mapping         mappings[MAX_SEGMENTS];

void *__real_shmat(int number, const void *address, int flags);
void *__wrap_shmat(int number, const void *address, int flags);
int   __real_shmdt(const void *address);
int   __wrap_shmdt(const void *address);
int   __real_shmctl(int number, int command, struct shmid_ds *info);
int   __wrap_shmctl(int number, int command, struct shmid_ds *info);

/* Find the entry of a segment, or a free one. The lock is held. */
static mapping *
entry_of(int number)
{
    mapping *entry = NULL;

    for (int i = 0; i < MAX_SEGMENTS; i++) {
        mapping *m = &mappings[i];

        if (m->address != NULL && m->number == number) {
            return m;
        }
        entry = (m->address == NULL) ? m : entry;
    }
    assert_non_null(entry);
    return entry;
}

void *
__wrap_shmat(int number, const void *address, int flags)
{
    mapping *m;
    void    *mapped;

    pthread_mutex_lock(&lock);
    m = entry_of(number);
    if (m->address == NULL) {
        mapped = __real_shmat(number, address, flags);
        *m     = (mapping){(mapped == (void *)-1) ? NULL : mapped, number, 0};
    }
    m->users++;
    mapped = (m->address == NULL) ? (void *)-1 : m->address;
    pthread_mutex_unlock(&lock);
    return mapped;
}

int
__wrap_shmdt(const void *address)
{
    int rc = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_SEGMENTS; i++) {
        if (mappings[i].address == address && --mappings[i].users == 0) {
            mappings[i].address = NULL;
            rc                  = __real_shmdt(address);
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* How many have it mapped is what libumx asks for. */
int
__wrap_shmctl(int number, int command, struct shmid_ds *info)
{
    int rc = __real_shmctl(number, command, info);

    if (rc == 0 && command == IPC_STAT) {
        pthread_mutex_lock(&lock);
        info->shm_nattch = entry_of(number)->users;
        pthread_mutex_unlock(&lock);
    }
    return rc;
}

/* ---- ranks ---------------------------------------------------------------
 */

enum {
    ROUNDS = 40
};

static const size_t lens[] = {8, 100, 20000, 65536, 70000, 300000, 900000};

enum {
    NUM_LENS = sizeof(lens) / sizeof(*lens)
};

/* A rank, in a thread. */
typedef struct rank {
    world    *w;
    int       number;
    pthread_t thread;
    bool      is_memory; /* what is sent lies in a Memory */
    bool      is_ahead;  /* the root waits for nobody */
} rank;

/* An assertion of cmocka can end its own thread only. */
#define expect(condition) expect_that(condition, __LINE__)

static void
expect_that(bool is_true, int line)
{
    if (!is_true) {
        (void)fprintf(stderr, "line %d\n", line);
        abort();
    }
}

static void
finish(const rank *r, job *j)
{
    umx_worker *worker = r->w->workers[r->number];

    while (j->status == UMX_INPROGRESS) {
        expect(umx_worker_wait(worker, 30 * SECOND_NS) == UMX_OK);
    }
    expect(j->status == UMX_OK);
}

static void
barrier(const rank *r)
{
    job           j;
    umx_op_params params = job_params(&j);
    umx_request  *req    = NULL;

    job_posted(&j, umx_barrier(r->w->comms[r->number], &params, &req), &req);
    finish(r, &j);
}

static void
bcast(const rank *r, int root, const umx_buffer *buf, int round)
{
    job            j;
    umx_op_params  params = job_params(&j);
    umx_request   *req    = NULL;
    unsigned char *data   = buf->data;

    if (r->number == root) {
        memset(data, round + 1, buf->len);
    }
    job_posted(&j, umx_bcast(r->w->comms[r->number], root, buf, &params, &req),
               &req);
    finish(r, &j);
    for (size_t i = 0; i < buf->len; i += 7) {
        expect(data[i] == round + 1);
    }
}

/* Both ranks send, and read what comes while it comes. */
static void
exchange(const rank *r, umx_buffer *send, umx_buffer *recv, int round)
{
    size_t         counts[] = {send->len / 2, send->len / 2};
    umx_pieces     pieces   = {.counts = counts};
    job            j;
    umx_op_params  params = job_params(&j);
    umx_request   *req    = NULL;
    unsigned char *data   = recv->data;

    memset(send->data, 2 * round + r->number, send->len);
    job_posted(&j,
               umx_alltoallv(r->w->comms[r->number], send, &pieces, recv,
                             &pieces, &params, &req),
               &req);
    finish(r, &j);
    for (size_t i = 0; i < recv->len; i += 7) {
        expect(data[i] == 2 * round + (i >= counts[0]));
    }
}

static void *
run_rank(void *arg)
{
    const rank *r = arg;
    umx_buffer  send, recv;

    umx_worker_adopt(r->w->workers[r->number]);
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = lens[round % NUM_LENS];

        send = world_new_buffer(r->w, len, r->is_memory);
        recv = world_new_buffer(r->w, len, r->is_memory);
        if (r->is_ahead) {
            for (int i = 0; i < 5; i++) {
                bcast(r, 0, &send, round);
            }
        } else {
            bcast(r, round % 2, &send, round);
            exchange(r, &send, &recv, round);
        }
        world_free_buffer(&send);
        world_free_buffer(&recv);
    }
    barrier(r);
    return NULL;
}

static void
run_ranks(world *w, bool is_memory, bool is_ahead)
{
    rank ranks[2];
    job  jobs[2];

    world_open(w, 2);
    for (int i = 0; i < 20; i++) {
        for (int n = 0; n < 2; n++) {
            umx_op_params params = job_params(&jobs[n]);
            umx_request  *req    = NULL;

            job_posted(&jobs[n], umx_barrier(w->comms[n], &params, &req), &req);
        }
        world_wait(w, jobs, 2, UMX_OK);
        world_step(w);
    }
    for (int n = 0; n < 2; n++) {
        w->comms[n]->group->is_crowded = false; /* bytes come in steps */
        assert_true(
            umi_comm_inbox_is_busy_wait(w->comms[n])); /* it is mapped */
        ranks[n] = (rank){w, n, 0, is_memory, is_ahead};
    }
    for (int n = 0; n < 2; n++) {
        assert_int_equal(
            pthread_create(&ranks[n].thread, NULL, run_rank, &ranks[n]), 0);
    }
    for (int n = 0; n < 2; n++) {
        assert_int_equal(pthread_join(ranks[n].thread, NULL), 0);
        umx_worker_adopt(w->workers[n]);
    }
}

static void
test_ranks_that_exchange(void **state)
{
    run_ranks(*state, false, false);
}

static void
test_ranks_that_copy_from_memories_of_each_other(void **state)
{
    run_ranks(*state, true, false);
}

static void
test_a_root_that_is_ahead(void **state)
{
    run_ranks(*state, false, true);
}

#define LOCAL_TEST(f)                            \
    {                                            \
#f, f, world_setup, world_teardown, NULL \
    }

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        LOCAL_TEST(test_ranks_that_exchange),
        LOCAL_TEST(test_ranks_that_copy_from_memories_of_each_other),
        LOCAL_TEST(test_a_root_that_is_ahead),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
