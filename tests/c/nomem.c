/* SPDX-License-Identifier: BSD-3-Clause */
/* nomem.c: what `make nomem` runs instead of a test program's main loop.
 *
 * libumx is compiled with its allocations going through nomem_malloc() and its
 * kin. Each test runs in a process of its own, first as it is, then with its
 * first allocation failing, then with its second, and so on until none fails.
 * A test may notice that: it gives up at its first assertion, and then all of
 * its workers are brought to an end. What may not happen: a signal, a report of
 * a sanitizer, a hang, an endpoint that is open while its peer knows that it
 * has failed, an operation that waits for ever between endpoints that are well,
 * or memory that nobody frees, but for what nobody frees without a failure
 * either. UCX's own allocations do not fail. */
#include "unit.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <umx/messenger.h>
#include <umx/umx.h>

#include "worker/worker.h"
#include "channel/channel.h"

enum {
    MAX_CALLS    = 4096,
    MAX_LIVE     = 16384,
    MAX_KEPT     = 256,
    MAX_WORKERS  = 16,
    DEPTH        = 16,
    MAX_FRAMES   = 64,
    LIMIT_S      = 30,
    IDLE_ROUNDS  = 15,  /* of 100 ms: nothing will come; more than CALLER_MS */
    SETTLE_MS    = 500, /* for endpoints to hear of each other's end ... */
    QUIET_MS     = 50,  /* ... or until nothing has happened for so long */
    EXIT_GAVE_UP = 40,
    EXIT_FOUND
};

/* Report of a child to its parent. */
typedef struct report {
    unsigned num_calls;
    bool     has_failed;         /* an allocation has */
    void    *site;               /* of the one that failed, */
    void    *frames[MAX_FRAMES]; /* and the way to it */
    int      num_frames;
    char     why[256];
    uint64_t stacks[MAX_CALLS];
    void    *kept[MAX_KEPT]; /* where what lives on without a failure is from */
    size_t   num_kept;
} report;

typedef struct live {
    void *address;
    void *site;
} live;

static report     *told;
static unsigned    fail_at; /* 0: none */
static live        lives[MAX_LIVE];
static umx_worker *workers[MAX_WORKERS];
static bool        is_ending;
static unsigned    num_idle;
static bool        is_told;     /* an operation has failed, and said so */
static bool        is_optional; /* what the test waits for need not come */
static uint64_t    seen[MAX_CALLS * 4];
static size_t      num_seen;

void       __sanitizer_symbolize_pc(void *pc, const char *format, char *text,
                                    size_t size);
void      *nomem_malloc(size_t size);
void      *nomem_calloc(size_t count, size_t size);
void      *nomem_realloc(void *old, size_t size);
char      *nomem_strdup(const char *text);
char      *nomem_strndup(const char *text, size_t len);
void       __real_free(void *address);
void       __wrap_free(void *address);
umx_status __real_umx_worker_create(umx_context *context,
                                    umx_worker **worker_p);
umx_status __wrap_umx_worker_create(umx_context *context,
                                    umx_worker **worker_p);
void       __real_umx_worker_destroy(umx_worker *worker);
void       __wrap_umx_worker_destroy(umx_worker *worker);

/* ---- allocations ---------------------------------------------------------
 */

static uint64_t
hash_stack(void)
{
    void    *frames[DEPTH];
    int      count = backtrace(frames, DEPTH);
    uint64_t hash  = 1469598103934665603u;

    for (int i = 0; i < count; i++) {
        hash = (hash ^ (uintptr_t)frames[i]) * 1099511628211u;
    }
    return hash;
}

static bool
fails(void *site)
{
    if (told == NULL || is_ending) {
        return false;
    }
    if (told->num_calls < MAX_CALLS && fail_at == 0) {
        told->stacks[told->num_calls] = hash_stack();
    }
    if (++told->num_calls != fail_at) {
        return false;
    }
    told->has_failed = true;
    told->site       = site;
    told->num_frames = backtrace(told->frames, MAX_FRAMES);
    return true;
}

static void *
note(void *address, void *site)
{
    for (size_t i = 0; address != NULL && i < MAX_LIVE; i++) {
        if (lives[i].address == NULL) {
            lives[i] = (live){address, site};
            break;
        }
    }
    return address;
}

static void
forget(const void *address)
{
    for (size_t i = 0; address != NULL && i < MAX_LIVE; i++) {
        if (lives[i].address == address) {
            lives[i].address = NULL;
            return;
        }
    }
}

void *
nomem_malloc(size_t size)
{
    void *site = __builtin_return_address(0);

    return fails(site) ? NULL : note(malloc(size), site);
}

void *
nomem_calloc(size_t count, size_t size)
{
    void *site = __builtin_return_address(0);

    return fails(site) ? NULL : note(calloc(count, size), site);
}

void *
nomem_realloc(void *old, size_t size)
{
    void *site = __builtin_return_address(0);

    if (fails(site)) {
        return NULL;
    }
    forget(old);
    return note(realloc(old, size), site);
}

char *
nomem_strdup(const char *text)
{
    void *site = __builtin_return_address(0);

    return fails(site) ? NULL : note(strdup(text), site);
}

char *
nomem_strndup(const char *text, size_t len)
{
    void *site = __builtin_return_address(0);

    return fails(site) ? NULL : note(strndup(text, len), site);
}

void
__wrap_free(void *address)
{
    forget(address);
    __real_free(address);
}

/* ---- what tests are told -------------------------------------------------
 */

void
nomem_told(int status)
{
    is_told = is_told || status < 0;
}

void
nomem_optional(int is)
{
    is_optional = is != 0;
}

/* A posting call of a test; tests do not always look at what it returns. */
#define WATCH(name, declared, passed)             \
    umx_status __real_##name declared;            \
    umx_status __wrap_##name declared;            \
    umx_status __wrap_##name declared             \
    {                                             \
        umx_status status = __real_##name passed; \
                                                  \
        nomem_told(status);                       \
        return status;                            \
    }

/* clang-format off */
WATCH(umx_stream_send, (umx_ep *ep, const umx_buffer *buf, const umx_op_params *params, umx_request **req_p), (ep, buf, params, req_p))
WATCH(umx_stream_recv, (umx_ep *ep, const umx_buffer *buf, unsigned flags, const umx_op_params *params, umx_request **req_p, umx_recv_info *info), (ep, buf, flags, params, req_p, info))
WATCH(umx_frames_send, (umx_ep *ep, uint16_t channel, const void *header, size_t header_len, const umx_buffer *buffers, size_t count, const umx_op_params *params, umx_request **req_p), (ep, channel, header, header_len, buffers, count, params, req_p))
WATCH(umx_frames_recv, (umx_ep *ep, uint16_t channel, const umx_frames_target *target, const umx_op_params *params, umx_request **req_p), (ep, channel, target, params, req_p))
WATCH(umx_frames_recv_message, (umx_ep *ep, uint16_t channel, const umx_op_params *params, umx_request **req_p, umx_message **message_p), (ep, channel, params, req_p, message_p))
WATCH(umx_frames_recv_fitting, (umx_ep *ep, uint16_t channel, const umx_buffer *buffers, size_t count, const umx_op_params *params, umx_request **req_p, umx_message **message_p), (ep, channel, buffers, count, params, req_p, message_p))
WATCH(umx_message_recv_frames, (umx_message **message_p, const umx_buffer *buffers, size_t count, const umx_op_params *params, umx_request **req_p), (message_p, buffers, count, params, req_p))
WATCH(umx_channel_send, (umx_ep *ep, uint16_t channel, const umx_match *match, const umx_buffer *buf, const umx_op_params *params, umx_request **req_p), (ep, channel, match, buf, params, req_p))
WATCH(umx_channel_recv, (umx_ep *ep, uint16_t channel, const umx_match *match, const umx_buffer *buf, const umx_op_params *params, umx_request **req_p, umx_recv_info *info), (ep, channel, match, buf, params, req_p, info))
WATCH(umx_am_send, (umx_ep *ep, uint16_t id, const void *header, size_t header_len, const umx_buffer *buf, const umx_op_params *params, umx_request **req_p), (ep, id, header, header_len, buf, params, req_p))
WATCH(umx_tag_send, (umx_ep *ep, uint64_t tag, const umx_buffer *buf, const umx_op_params *params, umx_request **req_p), (ep, tag, buf, params, req_p))
WATCH(umx_tag_send_sync, (umx_ep *ep, uint64_t tag, const umx_buffer *buf, const umx_op_params *params, umx_request **req_p), (ep, tag, buf, params, req_p))
WATCH(umx_tag_recv, (umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask, const umx_buffer *buf, const umx_op_params *params, umx_request **req_p, umx_recv_info *info), (worker, ep, tag, mask, buf, params, req_p, info))
WATCH(umx_rma_put, (umx_rkey *rkey, const umx_rma_item *item, const umx_op_params *params, umx_request **req_p), (rkey, item, params, req_p))
WATCH(umx_rma_get, (umx_rkey *rkey, const umx_rma_item *item, const umx_op_params *params, umx_request **req_p), (rkey, item, params, req_p))
WATCH(umx_ep_flush, (umx_ep *ep, const umx_op_params *params, umx_request **req_p), (ep, params, req_p))
WATCH(umx_ep_close, (umx_ep *ep, uint64_t timeout_ns, const umx_op_params *params, umx_request **req_p), (ep, timeout_ns, params, req_p))
WATCH(umx_ep_ping, (umx_ep *ep, const umx_op_params *params, umx_request **req_p), (ep, params, req_p))
WATCH(umx_message_send, (umx_message_sender *sender, const umx_message_out *message, const umx_op_params *params, umx_request **req_p), (sender, message, params, req_p))
/* clang-format on */

/* ---- the end of a test ---------------------------------------------------
 */

umx_status
__wrap_umx_worker_create(umx_context *context, umx_worker **worker_p)
{
    umx_status status = __real_umx_worker_create(context, worker_p);

    for (int i = 0; status == UMX_OK && i < MAX_WORKERS; i++) {
        if (workers[i] == NULL) {
            workers[i] = *worker_p;
            break;
        }
    }
    return status;
}

void
__wrap_umx_worker_destroy(umx_worker *worker)
{
    for (int i = 0; i < MAX_WORKERS; i++) {
        if (workers[i] == worker) {
            workers[i] = NULL;
        }
    }
    __real_umx_worker_destroy(worker);
}

/* Does not return. */
static void
end_child(int status, const char *why)
{
    (void)snprintf(told->why, sizeof(told->why), "%s", why);
    (void)fflush(NULL);
    _exit(status);
}

static void
settle(void)
{
    unsigned before = 0;
    int      quiet  = 0;

    for (int i = 0; i < SETTLE_MS / 5 && quiet < QUIET_MS / 5; i++) {
        unsigned activity = 0;

        for (int k = 0; k < MAX_WORKERS; k++) {
            if (workers[k] != NULL) {
                (void)!umx_worker_drain(workers[k]);
                activity += workers[k]->activity;
            }
        }
        quiet  = (activity == before) ? quiet + 1 : 0;
        before = activity;
        (void)usleep(5000);
    }
}

static umx_ep *
find_peer(const umx_ep *ep)
{
    for (int k = 0; k < MAX_WORKERS; k++) {
        umx_ep *peer = (workers[k] == NULL) ?
                           NULL :
                           umi_endpoint_find(workers[k], ep->base.remote_id);

        if (peer != NULL && peer->base.remote_id == ep->base.wire_id) {
            return peer;
        }
    }
    return NULL;
}

/* Is some endpoint open whose peer has failed? `*num_bad_p`: that have. */
static bool
has_untold(unsigned *num_bad_p)
{
    bool is_bad = false;

    *num_bad_p = 0;
    for (int k = 0; k < MAX_WORKERS; k++) {
        if (workers[k] == NULL) {
            continue;
        }
        UMI_LIST_FOREACH(node, &workers[k]->eps) {
            const umx_ep *ep = umi_endpoint_of(
                umi_container_of(node, umi_ep_base, node));
            const umx_ep *peer = find_peer(ep);

            *num_bad_p += ep->state != UMX_EP_OPEN;
            is_bad = is_bad || (ep->state == UMX_EP_OPEN && peer != NULL &&
                                !ep->is_peer_closed &&
                                (peer->state == UMX_EP_FAILED ||
                                 peer->state == UMX_EP_CLOSED));
        }
    }
    return is_bad;
}

/* Drop the test's references to the endpoints and listeners of a worker. */
static void
release_handles(umx_worker *worker)
{
    umx_worker_withdraw_address(worker); /* references of the library itself */
    while (!umi_list_is_empty(&worker->listeners)) {
        umx_listener *listener = umi_container_of(worker->listeners.next,
                                                  umx_listener, node);

        umx_listener_destroy(listener);
        if (worker->listeners.next == &listener->node) {
            break;
        }
    }
    UMI_LIST_FOREACH_SAFE(node, &worker->eps) {
        umx_ep *ep = umi_endpoint_of(umi_container_of(node, umi_ep_base, node));

        if (!ep->is_dropped &&
            (ep->handshake == NULL || ep->handshake->listener == NULL)) {
            umx_ep_destroy(ep);
        }
    }
}

/* The test gives up: its frames stay on the stack, for what it has posted. */
static void
give_up(const char *file, int line)
{
    unsigned num_bad;

    is_ending = true;
    (void)file;
    (void)line;
    settle();
    if (has_untold(&num_bad)) {
        end_child(EXIT_FOUND, "an endpoint is open whose peer has failed");
    }
    for (int k = 0; k < MAX_WORKERS; k++) {
        umx_worker *worker = workers[k];

        if (worker != NULL) {
            /* A layer gives back what it has itself. */
            if (umi_list_is_empty(&worker->dependents)) {
                release_handles(worker);
            }
            workers[k] = NULL;
            __real_umx_worker_destroy(worker);
        }
    }
    end_child(EXIT_GAVE_UP, "");
}

/* cmocka's, for every assertion; its library finds ours first. */
__attribute__((visibility("default"))) void
_fail(const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d\n", file, line);
    if (is_ending || !told->has_failed) {
        end_child(EXIT_FOUND, "an assertion failed");
    }
    give_up(file, line);
    abort();
}

/* Signs of life that all endpoints have heard. */
static unsigned
count_heard(void)
{
    unsigned count = 0;

    for (int k = 0; k < MAX_WORKERS; k++) {
        if (workers[k] != NULL) {
            UMI_LIST_FOREACH(node, &workers[k]->eps) {
                count += umi_endpoint_of(
                             umi_container_of(node, umi_ep_base, node))
                             ->socket.num_heard;
            }
        }
    }
    return count;
}

void
nomem_idle(void)
{
    static unsigned num_heard;
    unsigned        num_bad, before = num_heard;

    num_heard = count_heard();
    if (num_heard != before) {
        num_idle = 0;
    }
    if (told == NULL || !told->has_failed || ++num_idle < IDLE_ROUNDS) {
        return;
    }
    if (!is_told && !is_optional && !has_untold(&num_bad) && num_bad == 0) {
        end_child(EXIT_FOUND, "an operation waits between endpoints that are "
                              "well");
    }
    give_up(__FILE__, __LINE__);
}

/* ---- runs ----------------------------------------------------------------
 */

static int log_fd;

/* Is what lives on of a place whose memory is for good: that of a table of this
 * process, as without a failure? */
static bool
is_kept(void *site)
{
    for (size_t i = 0; i < told->num_kept; i++) {
        if (told->kept[i] == site) {
            return true;
        }
    }
    return false;
}

static void
keep(void *site)
{
    if (!is_kept(site) && told->num_kept < MAX_KEPT) {
        told->kept[told->num_kept++] = site;
    }
}

static void
run_child(const struct CMUnitTest *test)
{
    size_t num_live = 0;

    (void)dup2(log_fd, STDOUT_FILENO);
    (void)dup2(log_fd, STDERR_FILENO);
    (void)alarm(LIMIT_S);
    if (_cmocka_run_group_tests("nomem", test, 1, NULL, NULL) != 0) {
        end_child(EXIT_FOUND, "a signal");
    }
    for (size_t i = 0; i < MAX_LIVE; i++) {
        if (lives[i].address != NULL && fail_at == 0) {
            keep(lives[i].site);
        } else if (lives[i].address != NULL && !is_kept(lives[i].site)) {
            (void)fprintf(stderr, "leak: from %p\n",
                          (void *)((char *)lives[i].site));
            num_live++;
        }
    }
    if (num_live != 0 && told->has_failed) {
        end_child(EXIT_FOUND, "a leak");
    }
    end_child(0, "");
}

static void
print_log(void)
{
    char    bytes[4096];
    ssize_t n;

    (void)lseek(log_fd, 0, SEEK_SET);
    while ((n = read(log_fd, bytes, sizeof(bytes))) > 0) {
        (void)!write(STDOUT_FILENO, bytes, (size_t)n);
    }
}

/* The names of frames take long to find, so only here. A transport of UCX that
 * the child has loaded is not known to this process. */
static void
print_frames(void)
{
    char text[512];

    for (int i = 0; i < told->num_frames; i++) {
        char *pc = told->frames[i];

        __sanitizer_symbolize_pc(pc - 1, "%f %S", text, sizeof(text));
        (void)printf("    #%d %s\n", i, text);
    }
}

/* How it ended. */
static int
run(const struct CMUnitTest *test, unsigned which)
{
    int   status;
    pid_t pid;

    (void)!ftruncate(log_fd, 0);
    (void)lseek(log_fd, 0, SEEK_SET);
    memset(told, 0, offsetof(report, stacks));
    fail_at = which;
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        run_child(test);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return EXIT_FOUND;
    }
    if (WIFSIGNALED(status)) {
        (void)snprintf(told->why, sizeof(told->why), "%s",
                       WTERMSIG(status) == SIGALRM ? "a hang" : "a signal");
        return EXIT_FOUND;
    }
    return WEXITSTATUS(status);
}

/* Is an allocation of that stack, which none was before, of the share that this
 * program fails? */
static bool
is_chosen(uint64_t stack)
{
    const char *text  = getenv("NOMEM_SHARE");
    unsigned    which = 1, shares = 1;

    for (size_t i = 0; i < num_seen; i++) {
        if (seen[i] == stack) {
            return false;
        }
    }
    if (num_seen < sizeof(seen) / sizeof(*seen)) {
        seen[num_seen++] = stack;
    }
    if (text != NULL &&
        (sscanf(text, "%u/%u", &which, &shares) != 2 || shares == 0)) {
        (void)fprintf(stderr, "NOMEM_SHARE=1/4 is the first of four\n");
        exit(1);
    }
    return num_seen % shares == which % shares;
}

typedef struct counts {
    unsigned runs;
    unsigned passed;
    unsigned gave_up;
    unsigned found;
} counts;

static void
count(counts *all, const struct CMUnitTest *test, unsigned which, int end)
{
    extern char __executable_start;

    all->runs++;
    if (end == 0) {
        all->passed++;
    } else if (end == EXIT_GAVE_UP) {
        all->gave_up++;
    } else {
        all->found++;
        (void)printf("FOUND %s, allocation %u at +0x%lx: %s (exit %d)\n",
                     test->name, which,
                     (unsigned long)((char *)told->site - &__executable_start),
                     told->why[0] != '\0' ? told->why : "a sanitizer", end);
        print_frames();
        (void)fflush(stdout);
        print_log();
    }
}

/* `test` with each of its allocations failing. */
static void
fail_each(counts *all, const struct CMUnitTest *test, bool is_once)
{
    static uint64_t stacks[MAX_CALLS];

    const char *at = getenv("NOMEM_AT");
    int         end;
    unsigned    num_calls;

    told->num_kept = 0;
    end            = run(test, 0);

    if (end != 0) {
        (void)printf("%s does not pass as it is: %s\n", test->name, told->why);
        (void)fflush(stdout);
        print_log();
        all->found++;
        return;
    }
    num_calls = (told->num_calls < MAX_CALLS) ? told->num_calls : MAX_CALLS;
    memcpy(stacks, told->stacks, sizeof(stacks));
    if (at != NULL) {
        count(all, test, (unsigned)atoi(at), run(test, (unsigned)atoi(at)));
        return;
    }
    for (unsigned i = 1; i <= MAX_CALLS; i++) {
        if (is_once && (i > num_calls || !is_chosen(stacks[i - 1]))) {
            if (i > num_calls) {
                return;
            }
            continue;
        }
        end = run(test, i);
        if (!told->has_failed && end == 0) {
            return;
        }
        count(all, test, i, end);
    }
}

int
nomem_run(const struct CMUnitTest *tests, size_t num_tests)
{
    const char *only    = getenv("NOMEM_TEST");
    bool        is_once = getenv("NOMEM_ONCE") != NULL;
    counts      all     = {0};
    char        name[]  = "/tmp/nomem.XXXXXX";

    log_fd = mkstemp(name);
    (void)unlink(name);
    told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (log_fd < 0 || told == MAP_FAILED) {
        return 1;
    }
    for (size_t i = 0; i < num_tests; i++) {
        if (only == NULL || strstr(tests[i].name, only) != NULL) {
            fail_each(&all, &tests[i], is_once);
            (void)printf("%s: %u runs so far\n", tests[i].name, all.runs);
            (void)fflush(stdout);
        }
    }
    (void)printf("%u runs: %u passed, %u gave up, %u FOUND\n", all.runs,
                 all.passed, all.gave_up, all.found);
    return all.found != 0;
}
