/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* memfd_create */
#include "util/page.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <umx/version.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

enum {
    HOSTS_OFFSET = UMI_PAGE_HEADER_SIZE + UMI_PAGE_SLOTS * UMI_PAGE_SLOT_SIZE,
    FILE_SIZE    = HOSTS_OFFSET + UMI_PAGE_HOSTS * UMI_PAGE_HOST_SIZE
};

#define TEXT_OF(number) TEXT_OF_(number)
#define TEXT_OF_(number) #number
#define VERSION                \
    TEXT_OF(UMX_VERSION_MAJOR) \
    "." TEXT_OF(UMX_VERSION_MINOR) "." TEXT_OF(UMX_VERSION_PATCH)

/* The names of the numbers behind umi_page_slot.turn, in their order. */
static const char names[] =
    "number,begun_ns,drained,"
    "requests_in_use,requests_peak,requests_lost,endpoints,listeners,"
    "unexpected_messages,unexpected_bytes,protocol_errors,stray_messages,"
    "wakeups,spins,spin_hits,loans,renewals,extended_turns,sent_messages,"
    "sent_bytes,received_messages,received_bytes,pending_sends,pending_bytes,"
    "waiting_sends,rendezvous,failed_operations,timed_out_operations,"
    "cancelled_operations,failed_connections,refused_connections,"
    "missed_heartbeats,other_sent_messages,other_sent_bytes,"
    "other_received_messages,other_received_bytes,rank,num_ranks,communicator";

_Static_assert(sizeof(umx_worker_stats) == 29 * sizeof(uint64_t),
               "enter the new member into `names`");

/* A slot without a file. */
typedef struct plain_slot {
    umi_node      node; /* self.plain */
    umi_page_slot slot;
} plain_slot;

static struct {
    pthread_mutex_t  lock;
    umi_list         plain;
    umi_page_header *header; /* NULL: there is no file */
    int              fd;
    dev_t            device; /* of the file, like the next */
    ino_t            inode;
    unsigned         num_taken; /* slots of the file, now */
    unsigned         end_hosts; /* rows behind it were never taken */
    uint64_t         number;    /* of the worker that was last */
    bool             is_refused;
} self = {
    .lock  = PTHREAD_MUTEX_INITIALIZER,
    .plain = {&self.plain, &self.plain},
    .fd    = -1,
};

static uint64_t
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- the file ------------------------------------------------------------
 */

static umi_page_slot *
slot_at(unsigned i)
{
    return (umi_page_slot *)(void *)((char *)self.header +
                                     UMI_PAGE_HEADER_SIZE +
                                     (size_t)i * UMI_PAGE_SLOT_SIZE);
}

static umi_page_host *
host_at(unsigned i)
{
    return (umi_page_host *)(void *)((char *)self.header + HOSTS_OFFSET) + i;
}

/* True if `slot` is one of the file. */
static bool
is_of_file(const umi_page_slot *slot)
{
    return self.header != NULL && (uintptr_t)slot >= (uintptr_t)self.header &&
           (uintptr_t)slot < (uintptr_t)self.header + FILE_SIZE;
}

/* Close the descriptor, unless the program has, and another file has its number
 * now. */
static void
close_fd(void)
{
    struct stat file;

    if (self.fd >= 0 && fstat(self.fd, &file) == 0 &&
        file.st_dev == self.device && file.st_ino == self.inode) {
        close(self.fd);
    }
    self.fd = -1;
}

/* A file beyond the process's limit would end the process by a signal. */
static bool
is_allowed(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
           limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= FILE_SIZE;
}

static void *
map_file(void)
{
    struct stat file;
    void       *memory;

    if (!is_allowed()) {
        errno = EFBIG;
        return NULL;
    }
    self.fd = memfd_create(UMI_PAGE_NAME, MFD_CLOEXEC);
    if (self.fd < 0) {
        return NULL;
    }
    if (fstat(self.fd, &file) != 0 || ftruncate(self.fd, FILE_SIZE) != 0) {
        close(self.fd);
        self.fd = -1;
        return NULL;
    }
    self.device = file.st_dev;
    self.inode  = file.st_ino;
    memory = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd,
                  0);
    if (memory == MAP_FAILED) {
        close_fd();
        return NULL;
    }
    return memory;
}

static void
fill_header(umi_page_header *header)
{
    header->version          = UMI_PAGE_VERSION;
    header->header_size      = UMI_PAGE_HEADER_SIZE;
    header->slot_size        = UMI_PAGE_SLOT_SIZE;
    header->num_slots        = UMI_PAGE_SLOTS;
    header->hosts_offset     = HOSTS_OFFSET;
    header->host_size        = UMI_PAGE_HOST_SIZE;
    header->num_hosts        = UMI_PAGE_HOSTS;
    header->pid              = (uint64_t)getpid();
    header->ticks_per_second = umi_ticks_from_ns(1000000000u);
    header->ticks            = umi_ticks();
    header->ticks_ns         = now_ns();
    header->begun_ns         = header->ticks_ns;
    memcpy(header->umx_version, VERSION, sizeof(VERSION));
    memcpy(header->names, names, sizeof(names));
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(header->magic, "ucpstats", sizeof(header->magic));
}

static bool
is_wanted(void)
{
    const char *value = getenv("UCP_STATS");

    return value == NULL || strcmp(value, "0") != 0;
}

/* Make the file, unless it cannot be had. */
static void
make_file(void)
{
    void *memory;

    if (self.header != NULL || self.is_refused || !is_wanted()) {
        return;
    }
    memory = map_file();
    if (memory == NULL) {
        self.is_refused = true;
        umi_log(UMI_LOG_DEBUG,
                "other processes cannot read the counters of this one: there "
                "is no memory file for them: %s",
                strerror(errno));
        return;
    }
    fill_header(memory);
    self.header    = memory;
    self.end_hosts = 0;
}

static void
drop_file(void)
{
    (void)munmap(self.header, FILE_SIZE);
    self.header = NULL;
    close_fd();
}

/* ---- fork() --------------------------------------------------------------
 */

static void
before_fork(void)
{
    pthread_mutex_lock(&self.lock);
}

static void
after_fork_in_parent(void)
{
    pthread_mutex_unlock(&self.lock);
}

/* Let what the child writes go into memory of its own: workers of its parent
 * know where their slots are. */
static void
after_fork_in_child(void)
{
    if (self.header != NULL) {
        (void)mmap(self.header, FILE_SIZE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        self.header = NULL;
        close_fd();
    }
    umi_list_init(&self.plain);
    self.num_taken  = 0;
    self.is_refused = false;
    pthread_mutex_unlock(&self.lock);
}

static void
init_once(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent,
                         after_fork_in_child);
}

/* ---- slots ---------------------------------------------------------------
 */

/* Find a slot that nobody has; NULL: all are taken, or there is no file. */
static umi_page_slot *
find_free(void)
{
    if (self.header == NULL) {
        return NULL;
    }
    for (unsigned i = 0; i < UMI_PAGE_SLOTS; i++) {
        if (slot_at(i)->turn % 2 == 0) {
            return slot_at(i);
        }
    }
    return NULL;
}

static umi_page_slot *
new_plain(void)
{
    plain_slot *plain = calloc(1, sizeof(*plain));

    if (plain == NULL) {
        return NULL;
    }
    umi_list_append(&self.plain, &plain->node);
    return &plain->slot;
}

static void
free_plain(umi_page_slot *slot)
{
    plain_slot *plain = umi_container_of(slot, plain_slot, slot);

    umi_node_remove(&plain->node);
    free(plain);
}

/* True if row `i` is in use by the worker of `slot`. */
static bool
is_host_of(const umi_page_slot *slot, unsigned i)
{
    return host_at(i)->turn % 2 != 0 && host_at(i)->worker == slot->number;
}

static void
give_back_hosts(const umi_page_slot *slot)
{
    for (unsigned i = 0; i < self.end_hosts; i++) {
        if (is_host_of(slot, i)) {
            __atomic_store_n(&host_at(i)->turn, host_at(i)->turn + 1,
                             __ATOMIC_RELEASE);
        }
    }
}

static void
fill_slot(umi_page_slot *slot)
{
    slot->number   = ++self.number;
    slot->begun_ns = now_ns();
    slot->drained  = 0;
    memset(&slot->stats, 0, sizeof(slot->stats));
    memset(&slot->others, 0, sizeof(slot->others));
    slot->rank      = 0;
    slot->num_ranks = 0;
    memset(slot->communicator, 0, sizeof(slot->communicator));
    __atomic_store_n(&slot->turn, slot->turn + 1, __ATOMIC_RELEASE);
}

umi_page_slot *
umi_page_take(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    umi_page_slot        *slot;

    (void)pthread_once(&once, init_once);
    pthread_mutex_lock(&self.lock);
    make_file();
    slot = find_free();
    if (slot != NULL) {
        self.num_taken++;
    } else {
        slot = new_plain();
    }
    if (slot != NULL) {
        fill_slot(slot);
    }
    pthread_mutex_unlock(&self.lock);
    return slot;
}

void
umi_page_give_back(umi_page_slot *slot)
{
    pthread_mutex_lock(&self.lock);
    if (!is_of_file(slot)) {
        free_plain(slot);
    } else {
        give_back_hosts(slot);
        __atomic_store_n(&slot->turn, slot->turn + 1, __ATOMIC_RELEASE);
        if (--self.num_taken == 0) {
            drop_file();
        }
    }
    pthread_mutex_unlock(&self.lock);
}

/* ---- hosts ---------------------------------------------------------------
 */

/* Take a row that nobody has; NULL: all are taken. */
static umi_page_host *
take_host(const umi_page_slot *slot, const char *name)
{
    umi_page_host *host;
    unsigned       i = 0;

    while (i < UMI_PAGE_HOSTS && host_at(i)->turn % 2 != 0) {
        i++;
    }
    if (i == UMI_PAGE_HOSTS) {
        return NULL;
    }
    self.end_hosts = (i < self.end_hosts) ? self.end_hosts : i + 1;
    host           = host_at(i);
    host->worker   = slot->number;
    memset(&host->traffic, 0, sizeof(host->traffic));
    memset(host->name, 0, sizeof(host->name));
    memset(host->transports, 0, sizeof(host->transports));
    memcpy(host->name, name, strnlen(name, sizeof(host->name) - 1));
    __atomic_store_n(&host->turn, host->turn + 1, __ATOMIC_RELEASE);
    return host;
}

static umi_page_host *
find_or_take_host(const umi_page_slot *slot, const char *name)
{
    unsigned num_own = 0;

    for (unsigned i = 0; i < self.end_hosts; i++) {
        if (!is_host_of(slot, i)) {
            continue;
        }
        if (strcmp(host_at(i)->name, name) == 0) {
            return host_at(i);
        }
        num_own++;
    }
    return (num_own < UMI_PAGE_HOSTS_MAX) ? take_host(slot, name) : NULL;
}

umi_page_host *
umi_page_host_of(umi_page_slot *slot, const char *name)
{
    umi_page_host *host = NULL;

    pthread_mutex_lock(&self.lock);
    if (is_of_file(slot)) {
        host = find_or_take_host(slot, name);
    }
    pthread_mutex_unlock(&self.lock);
    return host;
}

/* True if `word` is one of those in `text`, between which are commas. */
static bool
has_word(const char *text, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = text; (at = strstr(at, word)) != NULL; at += len) {
        if ((at == text || at[-1] == ',') &&
            (at[len] == ',' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

/* The owner writes the text from its end: a reader finds whole words only. */
void
umi_page_host_add_transport(umi_page_host *host, const char *transport)
{
    size_t old = strlen(host->transports);
    size_t len = strlen(transport);
    char  *end = host->transports + old;

    if (len == 0 || old + len + 2 > sizeof(host->transports) ||
        has_word(host->transports, transport)) {
        return;
    }
    if (old == 0) {
        memcpy(end + 1, transport + 1, len - 1);
        __atomic_store_n(end, *transport, __ATOMIC_RELEASE);
    } else {
        memcpy(end + 1, transport, len);
        __atomic_store_n(end, ',', __ATOMIC_RELEASE);
    }
}

void
umi_page_set_rank(umi_page_slot *slot, const char *name, uint64_t rank,
                  uint64_t num_ranks)
{
    pthread_mutex_lock(&self.lock);
    __atomic_store_n(&slot->num_ranks, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    slot->rank = rank;
    memset(slot->communicator, 0, sizeof(slot->communicator));
    memcpy(slot->communicator, name,
           strnlen(name, sizeof(slot->communicator) - 1));
    __atomic_store_n(&slot->num_ranks, num_ranks, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&self.lock);
}

/* ---- reading -------------------------------------------------------------
 */

/* Translate ticks of this process's life into CLOCK_REALTIME. */
static uint64_t
time_of(uint64_t ticks)
{
    uint64_t per_ms = umi_ticks_from_ns(1000000);
    uint64_t ago    = umi_ticks() - ticks;

    return (ticks == 0) ?
               0 :
               now_ns() - (uint64_t)((double)ago * 1e6 / (double)per_ms);
}

static void
add_traffic(umx_worker_stats *stats, const umi_traffic *traffic)
{
    stats->sent_messages += __atomic_load_n(&traffic->sent_messages,
                                            __ATOMIC_RELAXED);
    stats->sent_bytes += __atomic_load_n(&traffic->sent_bytes,
                                         __ATOMIC_RELAXED);
    stats->received_messages += __atomic_load_n(&traffic->received_messages,
                                                __ATOMIC_RELAXED);
    stats->received_bytes += __atomic_load_n(&traffic->received_bytes,
                                             __ATOMIC_RELAXED);
}

/* umi_page_add_traffic(), with the lock. */
static void
add_all_traffic(const umi_page_slot *slot, umx_worker_stats *stats)
{
    add_traffic(stats, &slot->others);
    if (!is_of_file(slot)) {
        return;
    }
    for (unsigned i = 0; i < self.end_hosts; i++) {
        if (is_host_of(slot, i)) {
            add_traffic(stats, &host_at(i)->traffic);
        }
    }
}

void
umi_page_add_traffic(const umi_page_slot *slot, umx_worker_stats *stats)
{
    pthread_mutex_lock(&self.lock);
    add_all_traffic(slot, stats);
    pthread_mutex_unlock(&self.lock);
}

/* Read word by word: the owner writes meanwhile. */
static void
read_slot(const umi_page_slot *slot, umx_worker_numbers *numbers)
{
    const uint64_t *from = (const uint64_t *)(const void *)&slot->stats;
    uint64_t       *to   = (uint64_t *)(void *)&numbers->stats;

    numbers->number     = slot->number;
    numbers->begun_ns   = slot->begun_ns;
    numbers->drained_ns = time_of(
        __atomic_load_n(&slot->drained, __ATOMIC_RELAXED));
    for (size_t i = 0; i < sizeof(slot->stats) / sizeof(*from); i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
    add_all_traffic(slot, &numbers->stats);
    numbers->rank      = slot->rank;
    numbers->num_ranks = slot->num_ranks;
    memcpy(numbers->communicator, slot->communicator,
           sizeof(numbers->communicator));
}

size_t
umi_page_read(umx_worker_numbers *numbers, size_t max)
{
    size_t n = 0;

    pthread_mutex_lock(&self.lock);
    for (unsigned i = 0, left = self.num_taken; left != 0; i++) {
        if (slot_at(i)->turn % 2 != 0) {
            left--;
            if (n++ < max) {
                read_slot(slot_at(i), &numbers[n - 1]);
            }
        }
    }
    UMI_LIST_FOREACH(node, &self.plain) {
        if (n++ < max) {
            read_slot(&umi_container_of(node, plain_slot, node)->slot,
                      &numbers[n - 1]);
        }
    }
    pthread_mutex_unlock(&self.lock);
    return n;
}
