/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/config.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <umx/heap.h>

#include "host/segment_limit.h"
#include "host/transports.h"
#include "util/hash.h"
#include "util/log.h"

/* Settings of UCX that libumx changes, each only if neither the user's options
 * nor the environment has it. Unknown keys (other UCX versions, transports not
 * built) are skipped. docs/tuning.md has the measurements. */
static const umx_option umi_settings[] = {
    /* Endpoints with error handling get shared memory only with this. */
    {"MM_ERROR_HANDLING", "y"},
    {"POSIX_ERROR_HANDLING", "y"},
    {"SYSV_ERROR_HANDLING", "y"},
    /* UCX gives each worker two queues in shared memory with 512 buffers of 8
     * KiB each, 6.3 MB that are written when it is made, and 4.2 of them in
     * /dev/shm, of which a container has 64. The buffers are those of the queue
     * (`lengths`) and one more, and are doubled when all are in use. */
    {"POSIX_RX_BUFS_GROW", "66"},
    {"SYSV_RX_BUFS_GROW", "258"},
    /* A server restarts on its port at once, TIME_WAIT or not. */
    {"TCP_CM_REUSEADDR", "y"},
    /* A connect() that waits would hold up the caller. And where it succeeds
     * towards a process that is just ending, and what is sent then fails, UCX
     * (1.22) frees the endpoint that it is making, and returns it all the same
     * (uct_tcp_ep_set_failed, which takes it for one that nobody uses). */
    {"TCP_CONN_NB", "y"},
    /* 8 KiB by default, a system call each: 1 MiB over loopback takes 4 times,
     * 16 MiB 5 times as long. Costs memory only while data is in flight.
     * Larger socket buffers (TCP_SNDBUF, TCP_RCVBUF) would halve 1 MiB once
     * more, but fix what the kernel otherwise grows with the network's delay:
     * left to the user. */
    {"TCP_TX_SEG_SIZE", "256k"},
    {"TCP_RX_SEG_SIZE", "256k"},
    /* UCX would give an idle peer up after 17 s without an answer of its host,
     * whatever the program has asked for. The socket of each connection looks
     * instead: endpoint/heartbeat.c. UCX's sockets go on to send probes, since
     * firewalls forget connections that are idle, but end after hours only. */
    {"KEEPALIVE_INTERVAL", "inf"},
    {"TCP_KEEPINTVL", "75s"},
    {"TCP_KEEPCNT", "127"},
};

void
umx_config_default(umx_config *config)
{
    memset(config, 0, sizeof(*config));
    /* Longer than a round trip through a busy peer, short against a
     * scheduler's slice. */
    config->spin_ns = 50 * 1000;
    /* Bounds how late a timer of the event loop fires behind a stream: by two
     * to three turns, since it waits for the end of one, and the task that it
     * wakes for the next. benchmarks/fairness.py: as much goes through as with
     * twice the time. */
    config->drain_ns = 100 * 1000;
    /* Below this length, one copy through the FIFO costs little more than the
     * rendezvous' round trip, and send() need not wait for the receiver; from
     * 64 KiB the rendezvous is faster by a sixth, and moves twice as much with
     * several messages in flight: UCX gathers the pieces of an eager message
     * before it hands them over. Without shared memory the round trip costs
     * more: 64 KiB takes 18 us eager, 43 us by rendezvous.
     *
     * From 16 KiB on the bytes follow behind their header (ops/follow.h), which
     * is faster by a quarter. So 64 and 128 KiB would take a ninth and a
     * fourteenth less than by rendezvous where the receive is posted, but a
     * fifth and a third more where it comes later.
     *
     * Between 8 and 64 KiB, memory of the sender's that the receiver has mapped
     * saves a copy, but not time: UCX's pieces are copied in and out side by
     * side. 16 KiB took 5.1 us both ways, and with 16 messages in flight 4.6 us
     * instead of 3.7. */
    config->rndv_thresh_shm = 64 * 1024;
    config->rndv_thresh_net = 256 * 1024;
    /* Never: where both sides are awake UCX's two copies, side by side on two
     * cores, are twice as fast as the one. Where both sleep between messages
     * one copy is faster from 128 KiB on, up to twice at 1 MiB, and as fast
     * from 8 MiB on; it holds the reader up for 0.2 ms a MiB. */
    config->cma_min = 128 * 1024;
    config->cma_max = 0;
    /* At least 16 messages of the largest eager size in flight. */
    config->credit_bytes    = 4 * 1024 * 1024;
    config->credit_messages = 4096;
    /* Four times what 1 Gbit/s delivers in a round trip of 100 ms, and 10
     * Gbit/s in one of 10 ms; 100 000 messages of a few bytes each second at a
     * round trip of 100 ms. */
    config->credit_bytes_max    = 64 * 1024 * 1024;
    config->credit_messages_max = 64 * 1024;
    config->credit_rndv         = 1024;
    config->channels_max        = 1024;
    config->close_timeout_ns    = 10 * UINT64_C(1000000000);
    config->connect_timeout_ns  = 5 * UINT64_C(1000000000);
    /* A server does not keep for ever what belongs to hosts that have gone.
     * Only networks that drop everything for so long end connections; a peer
     * that computes does not. As long as Dask's. */
    config->keepalive_ns      = UMX_KEEPALIVE_NS;
    config->rma_ucx           = UMX_RMA_UCX_RDMA;
    config->goodbye_bytes     = 256 * 1024 * 1024;
    config->cancel_bytes      = 256 * 1024 * 1024;
    config->cancel_timeout_ns = 10 * UINT64_C(1000000000);
    /* See src/channel/frames_send.c, and benchmarks/frames.py --sweep:
     * gathering is as fast as copying from 4 KiB on, and faster above (by a
     * tenth at 30 KiB). Frames of 16 to 48 KiB in company take 2/3 of the time
     * that they take on their own, at 96 KiB 9/10, at 192 KiB the same; but
     * only alone does a network card move them without a copy. */
    config->frames_copy_max  = 4 * 1024;
    config->frames_alone_min = 64 * 1024;
    /* These bound what a head makes the receiver allocate: 1 MiB for the
     * frames' sizes, and for their bytes what a machine may well have. */
    config->frames_max       = 64 * 1024;
    config->frames_bytes_max = UINT64_C(64) << 30;
}

const char *
umx_config_check(const umx_config *config)
{
    const struct {
        bool        is_good;
        const char *text;
    } checks[] = {
        {config->credit_bytes > 0, "credit_bytes must be 1 or more"},
        {config->credit_messages > 1, "credit_messages must be 2 or more"},
        {config->credit_rndv > 1, "credit_rndv must be 2 or more"},
        {config->channels_max > 0 && config->channels_max <= UMX_CHANNELS_MAX,
         "channels_max must be 1 to 16000"},
        {config->rndv_thresh_shm > 0, "rndv_thresh_shm must be 1 or more"},
        {config->rndv_thresh_net > 0, "rndv_thresh_net must be 1 or more"},
        {config->connect_timeout_ns > 0,
         "connect_timeout_ns must be 1 or more"},
        {config->heartbeat_ns == 0 || config->heartbeat_ns >= 1000000,
         "heartbeat_ns must be 0, or 1000000 (a millisecond) or more"},
        {config->rma_ucx <= UMX_RMA_UCX_ALWAYS, "rma_ucx must be 0, 1 or 2"},
        {config->frames_max > 0, "frames_max must be 1 or more"},
        {config->frames_bytes_max > 0, "frames_bytes_max must be 1 or more"},
        {config->token == NULL ||
             (config->token_len >= 1 && config->token_len <= UMI_TOKEN_MAX),
         "token must be 1 to 256 bytes"},
    };

    _Static_assert(UMX_CHANNELS_MAX == 16000 && UMI_TOKEN_MAX == 256,
                   "the texts have other numbers");
    for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
        if (!checks[i].is_good) {
            return checks[i].text;
        }
    }
    return NULL;
}

/* UCX_<key> of the environment; NULL: it has none. */
static const char *
env_value(const char *key)
{
    char name[128] = "UCX_";

    if (strlen(key) >= sizeof(name) - 4) {
        return NULL;
    }
    return getenv(strcat(name, key));
}

static bool
env_has(const char *key)
{
    return env_value(key) != NULL;
}

/* True if an option is for `key`: UCX takes a pattern for the name, too. */
static bool
is_for(const umx_option *option, const char *key)
{
    return fnmatch(option->key, key, 0) == 0;
}

/* True if an option counts: the environment may go first. */
static bool
is_in_force(const umx_context_params *params, const umx_option *option)
{
    bool env_first = (params->field_mask & UMX_CONTEXT_FIELD_FLAGS) &&
                     (params->flags & UMX_CONTEXT_FLAG_ENV_FIRST);

    return !(env_first && env_has(option->key));
}

/* Find the last of the program's options in force for one of two keys: its
 * index, or -1. */
static int
last_option(const umx_context_params *params, const char *special,
            const char *general)
{
    if (!(params->field_mask & UMX_CONTEXT_FIELD_OPTIONS)) {
        return -1;
    }
    for (int i = (int)params->num_options - 1; i >= 0; i--) {
        const umx_option *option = &params->options[i];

        if ((is_for(option, special) || is_for(option, general)) &&
            is_in_force(params, option)) {
            return i;
        }
    }
    return -1;
}

/* True if the environment or the program decides an option. */
static bool
is_given(const umx_context_params *params, const char *key)
{
    return env_has(key) || last_option(params, key, key) >= 0;
}

/* The transports that move messages through memory that both map. */
static const char *const shared_memory[] = {"POSIX", "SYSV", "XPMEM"};

enum {
    NUM_SHARED = sizeof(shared_memory) / sizeof(*shared_memory)
};

/* What tells the layout of a queue. */
typedef struct measure {
    const char *suffix;
    bool        is_int; /* UCX reads it as an int, and not as a size */
} measure;

static const measure measures[] = {
    {"_FIFO_SIZE", true}, {"_FIFO_ELEM_SIZE", true}, {"_SEG_SIZE", false}};

enum {
    NUM_MEASURES = sizeof(measures) / sizeof(*measures)
};

/* The measures of each transport. Messages go by System V where both are
 * possible, so POSIX has a short queue; where it is the only one, the short
 * queue is as fast. An element of a queue holds a message of up to 1024 bytes
 * with its headers (UMI_INJECT_MAX), not only one of 92 as by UCX's default:
 * what does not fit goes through a buffer, and 256 bytes take one and a half
 * times as long. The rest of an element keeps the prefetchers of the reader,
 * which run ahead of what it reads, off the element that is being written. */
static const char *const lengths[NUM_SHARED][NUM_MEASURES] = {
    {"64", "2048", "8256"}, {"256", "2048", "8256"}, {"256", "2048", "8256"}};

/* These transports inherit the MM_ settings: a user who sets the general one
 * has decided the special ones too. */
static bool
user_has(const umx_context_params *params, const char *key)
{
    char general[64];

    if (is_given(params, key)) {
        return true;
    }
    for (size_t i = 0; i < NUM_SHARED; i++) {
        size_t len = strlen(shared_memory[i]);

        if (strncmp(key, shared_memory[i], len) == 0 && key[len] == '_') {
            snprintf(general, sizeof(general), "MM%s", key + len);
            return is_given(params, general);
        }
    }
    return false;
}

/* True if the user has decided a setting, or the length of the queue that its
 * buffers are for. */
static bool
user_decides(const umx_context_params *params, const char *key)
{
    static const char buffers[] = "RX_BUFS_GROW", length[] = "FIFO_SIZE";

    const char *suffix = strstr(key, buffers);
    char        queue[32];

    if (user_has(params, key)) {
        return true;
    }
    if (suffix == NULL) {
        return false;
    }
    snprintf(queue, sizeof(queue), "%.*s%s", (int)(suffix - key), key, length);
    return user_has(params, queue);
}

static void
apply_settings(const umx_context_params *params, ucp_config_t *config)
{
    for (size_t i = 0; i < sizeof(umi_settings) / sizeof(*umi_settings); i++) {
        const umx_option *set = &umi_settings[i];

        if (user_decides(params, set->key)) {
            continue;
        }
        if (ucp_config_modify(config, set->key, set->value) != UCS_OK) {
            umi_log(UMI_LOG_DEBUG, "UCX does not take %s=%s", set->key,
                    set->value);
        }
    }
}

/* True if `word` is KEY=VALUE of a measure, which tell_queues() tells UCX. */
static bool
is_measure(const char *word)
{
    char key[32];

    for (size_t i = 0; i < NUM_SHARED * NUM_MEASURES; i++) {
        int len = snprintf(key, sizeof(key),
                           "%s%s=", shared_memory[i / NUM_MEASURES],
                           measures[i % NUM_MEASURES].suffix);

        if (strncmp(word, key, (size_t)len) == 0) {
            return true;
        }
    }
    return false;
}

static bool
is_setting(const char *word)
{
    for (size_t i = 0; i < sizeof(umi_settings) / sizeof(*umi_settings); i++) {
        const umx_option *set = &umi_settings[i];
        size_t            len = strlen(set->key);

        if (strncmp(word, set->key, len) == 0 && word[len] == '=' &&
            strcmp(word + len + 1, set->value) == 0) {
            return true;
        }
    }
    return is_measure(word);
}

/* UCX 1.13 warns of each setting of a transport that it has not opened yet. */
bool
umi_config_is_about_settings(const char *line)
{
    static const char start[] = "invalid configuration";

    char        list[1024], *save = NULL;
    const char *colon = strchr(line, ':');

    if (strncmp(line, start, sizeof(start) - 1) != 0 || colon == NULL) {
        return false;
    }
    snprintf(list, sizeof(list), "%s", colon + 1);
    for (char *word = strtok_r(list, " ,", &save); word != NULL;
         word       = strtok_r(NULL, " ,", &save)) {
        if (!is_setting(word)) {
            return false;
        }
    }
    return true;
}

typedef struct known_key {
    const char *wanted;
    bool        is_found;
} known_key;

static void
match_key(const char *key, const char *value, void *arg)
{
    known_key *known = arg;

    (void)value;
    if (strcmp(key, known->wanted) == 0) {
        known->is_found = true;
    }
}

/* Call `fn` for each UCX_KEY=VALUE line of the printed configuration. */
static umx_status
walk_config(const ucp_config_t *config, umx_option_fn fn, void *arg)
{
    char  *text = NULL, *save = NULL;
    size_t size   = 0;
    FILE  *stream = open_memstream(&text, &size);

    if (stream == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    ucp_config_print(config, stream, NULL, UCS_CONFIG_PRINT_CONFIG);
    if (fclose(stream) != 0) {
        free(text);
        return UMX_ERR_NO_MEMORY;
    }
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line       = strtok_r(NULL, "\n", &save)) {
        char *equals = strchr(line, '=');

        if (strncmp(line, "UCX_", 4) == 0 && equals != NULL) {
            *equals = '\0';
            fn(line + 4, equals + 1, arg);
        }
    }
    free(text);
    return UMX_OK;
}

/* ucp_config_modify() answers INVALID_PARAM both for a key it does not know
 * and for a value it refuses. */
static umx_status
refused_option(const ucp_config_t *config, const char *key)
{
    known_key  known = {key, false};
    umx_status status;

    status = walk_config(config, match_key, &known);
    if (status != UMX_OK) {
        return status;
    }
    return known.is_found ? UMX_ERR_INVALID_PARAM : UMX_ERR_UNKNOWN_OPTION;
}

static umx_status
apply_options(const umx_context_params *params, ucp_config_t *config,
              int *bad_option_p)
{
    if (!(params->field_mask & UMX_CONTEXT_FIELD_OPTIONS)) {
        return UMX_OK;
    }
    for (size_t i = 0; i < params->num_options; i++) {
        const umx_option *option = &params->options[i];

        if (!is_in_force(params, option)) {
            continue;
        }
        if (ucp_config_modify(config, option->key, option->value) != UCS_OK) {
            if (bad_option_p != NULL) {
                *bad_option_p = (int)i;
            }
            return refused_option(config, option->key);
        }
    }
    return UMX_OK;
}

/* ---- segments of shared memory -------------------------------------------
 *
 * An element of UCX's queues in shared memory has 16 bits for the number of
 * bytes of its message (uct_mm_fifo_element_t), and UCX does not compare the
 * size of its segments with that: with 64 KiB a message of 65536 bytes arrives
 * as one of 0, and what is made of it is not what was sent. */

enum {
    SEG_SIZE_MAX = UINT16_MAX
};

static const char *const seg_size_keys[] = {"MM_SEG_SIZE", "POSIX_SEG_SIZE",
                                            "SYSV_SEG_SIZE", "XPMEM_SEG_SIZE"};

/* Read a size as UCX does: "inf", or a number and b, k, m, g or t. 0: UCX
 * refuses it. */
static uint64_t
read_size(const char *text)
{
    static const char units[] = "bkmgt";

    char              *end;
    unsigned long long value = strtoull(text, &end, 10);
    const char        *unit;

    if (strcasecmp(text, "inf") == 0) {
        return UINT64_MAX;
    }
    unit = (*end == '\0') ? units : strchr(units, tolower((unsigned char)*end));
    if (end == text || unit == NULL) {
        return 0;
    }
    return (value > UINT64_MAX >> (10 * (unit - units))) ?
               UINT64_MAX :
               (uint64_t)value << (10 * (unit - units));
}

const char *
umi_config_value(const umx_context_params *params, const char *key,
                 int *option_p)
{
    *option_p = last_option(params, key, key);
    return (*option_p >= 0) ? params->options[*option_p].value : env_value(key);
}

/* Check an option of a segment size. */
static umx_status
check_seg_size(const umx_context_params *params, const char *key,
               int *bad_option_p)
{
    int         bad;
    const char *value = umi_config_value(params, key, &bad);

    if (value == NULL || read_size(value) <= SEG_SIZE_MAX) {
        return UMX_OK;
    }
    umi_log(UMI_LOG_ERROR,
            "UCX_%s=%s is refused: UCX counts the bytes of a message in a "
            "segment in 16 bits, the largest size is %d",
            key, value, SEG_SIZE_MAX);
    if (bad_option_p != NULL) {
        *bad_option_p = bad;
    }
    return UMX_ERR_SEG_SIZE;
}

static umx_status
check_seg_sizes(const umx_context_params *params, int *bad_option_p)
{
    umx_status status = UMX_OK;

    for (size_t i = 0;
         i < sizeof(seg_size_keys) / sizeof(*seg_size_keys) && status == UMX_OK;
         i++) {
        status = check_seg_size(params, seg_size_keys[i], bad_option_p);
    }
    return status;
}

/* ---- queues in shared memory ---------------------------------------------
 *
 * A process writes into the queue of another by its own idea of how long the
 * queue and its elements and segments are (uct_mm_ep.c). What that idea is has
 * to be known here: UCX is told each of these numbers, so that neither its
 * files (ucx.conf) nor what becomes of the environment later changes one. */

/* Find measure `j` of transport `i`, in the order in which UCX is told: the
 * last wins. */
static const char *
find_measure(const umx_context_params *params, size_t i, size_t j)
{
    char        special[32], general[32];
    const char *value;
    int         option;

    snprintf(special, sizeof(special), "%s%s", shared_memory[i],
             measures[j].suffix);
    snprintf(general, sizeof(general), "MM%s", measures[j].suffix);
    option = last_option(params, special, general);
    if (option >= 0) {
        return params->options[option].value;
    }
    value = env_value(special);
    if (value == NULL) {
        value = env_value(general);
    }
    return (value != NULL) ? value : lengths[i][j];
}

/* Read a number as UCX does: what follows the digits means nothing to it where
 * an int is due, and it keeps 32 bits. */
static uint64_t
read_measure(const char *text, const measure *it)
{
    if (!it->is_int) {
        return read_size(text);
    }
    return (strcasecmp(text, "inf") == 0) ? UINT32_MAX :
                                            (uint32_t)strtoul(text, NULL, 10);
}

uint32_t
umi_config_queues(const umx_context_params *params)
{
    uint64_t found[NUM_SHARED][NUM_MEASURES];

    for (size_t i = 0; i < NUM_SHARED; i++) {
        for (size_t j = 0; j < NUM_MEASURES; j++) {
            found[i][j] = read_measure(find_measure(params, i, j),
                                       &measures[j]);
        }
    }
    return (uint32_t)umi_siphash(found, sizeof(found));
}

/* Tell UCX what umi_config_queues() goes by. */
static void
tell_queues(const umx_context_params *params, ucp_config_t *config)
{
    char key[32];

    for (size_t i = 0; i < NUM_SHARED; i++) {
        for (size_t j = 0; j < NUM_MEASURES; j++) {
            snprintf(key, sizeof(key), "%s%s", shared_memory[i],
                     measures[j].suffix);
            /* UCX refuses those of a transport that it does not have. */
            (void)!ucp_config_modify(config, key, find_measure(params, i, j));
        }
    }
}

bool
umi_config_has_devices(const umx_context_params *params)
{
    return user_has(params, "NET_DEVICES");
}

/* ---- without System V's segments -----------------------------------------
 *
 * UCX makes no worker where its transport sysv gets no segments, though there
 * are other transports. */

static void
find_transports(const char *key, const char *value, void *arg)
{
    char **list = arg;

    if (strcmp(key, "TLS") == 0 && *list == NULL) {
        *list = strdup(value);
    }
}

/* Tell it once a process. */
static void
warn_of_no_segments(int error)
{
    static atomic_bool is_told;
    char               limits[512];

    if (atomic_exchange(&is_told, true)) {
        return;
    }
    if (error == EPERM || error == EACCES || error == ENOSYS) {
        umi_log(UMI_LOG_WARN,
                "the system has no shared memory segments for this process "
                "(System V: %s): UCX goes without its transport sysv",
                strerror(error));
        return;
    }
    (void)umx_segment_limits(limits, sizeof(limits));
    umi_log(UMI_LOG_WARN,
            "there is no room for shared memory segments (System V: %s): UCX "
            "goes without its transport sysv: %s",
            strerror(error), limits);
}

/* Leave sysv out if the system has no segments for it: `*error_p` is why, or 0
 * if it stays. */
static umx_status
leave_sysv_out(ucp_config_t *config, int *error_p)
{
    int        error = umi_segments_try();
    char      *list  = NULL, *others;
    umx_status status;

    *error_p = 0;
    if (error == 0) {
        return UMX_OK;
    }
    status = walk_config(config, find_transports, &list);
    if (status != UMX_OK || list == NULL) {
        free(list);
        return status;
    }
    others = umi_transports_without_sysv(list);
    if (others != NULL && ucp_config_modify(config, "TLS", others) == UCS_OK) {
        *error_p = error;
    }
    free(others);
    free(list);
    return UMX_OK;
}

static umx_status
read_config(const umx_context_params *params, ucp_config_t **config_p,
            int *bad_option_p, int *segment_error_p)
{
    ucp_config_t *config;
    umx_status    status;
    ucs_status_t  ucs_status;

    if (bad_option_p != NULL) {
        *bad_option_p = -1;
    }
    status = check_seg_sizes(params, bad_option_p);
    if (status != UMX_OK) {
        return status;
    }
    ucs_status = ucp_config_read(NULL, NULL, &config);
    if (ucs_status != UCS_OK) {
        return (umx_status)ucs_status;
    }
    apply_settings(params, config);
    status = apply_options(params, config, bad_option_p);
    tell_queues(params, config);
    if (status == UMX_OK) {
        status = leave_sysv_out(config, segment_error_p);
    }
    if (status != UMX_OK) {
        ucp_config_release(config);
        return status;
    }
    /* The user may not choose this: the mutex is not recursive, and UCX 1.22
     * takes the context's twice, in ucp_memh_put(). */
    (void)ucp_config_modify(config, "USE_MT_MUTEX", "n");
    *config_p = config;
    return UMX_OK;
}

umx_status
umi_config_read(const umx_context_params *params, ucp_config_t **config_p,
                int *bad_option_p)
{
    int        error;
    umx_status status = read_config(params, config_p, bad_option_p, &error);

    if (status == UMX_OK && error != 0) {
        warn_of_no_segments(error);
    }
    return status;
}

umx_status
umx_context_options(const umx_context_params *params, umx_option_fn fn,
                    void *arg, int *bad_option_p)
{
    static const umx_context_params none;

    ucp_config_t *config;
    umx_status    status;
    int           error;

    status = read_config(params != NULL ? params : &none, &config, bad_option_p,
                         &error);
    if (status != UMX_OK) {
        return status;
    }
    status = walk_config(config, fn, arg);
    ucp_config_release(config);
    return status;
}
