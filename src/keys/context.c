/* SPDX-License-Identifier: BSD-3-Clause */
#include "keys/context.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/log_def.h>
#include <umx/version.h>

#include "host/config.h"
#include "host/descriptors.h"
#include "host/thread_limit.h"
#include "util/hash.h"
#include "util/log.h"

/* Lowest minor version of UCX's API that will do: asking for the header's own
 * makes UCX warn when an older library is loaded. */
enum {
    UCX_MINOR = 13
};

static const char     rdma_devices[] = "/sys/class/infiniband";
static const uint64_t ucx_features   = UCP_FEATURE_TAG | UCP_FEATURE_AM |
                                     UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP;

static pthread_once_t process_once = PTHREAD_ONCE_INIT;

/* UCX calls the end of a peer an error, in these words, wherever it meets it.
 * It also reports it, and libumx passes that on to who needs to know. */
static bool
is_about_an_end(const char *text)
{
    static const char *const words[] = {
        "failed: Connection refused",
        "failed: Connection reset by peer",
        "failed: Broken pipe",
        "UCX_TCP_MAX_CONN_RETRIES",
        "connection establishment for socket fd",
        ": UNKNOWN (", /* what its tcp could not send to the peer */
        "mm ep failed to connect to remote FIFO",
        "was not returned to mpool",
        "callback was not removed",
        "callbacks were not removed",
        "shmat(shmid=",
        ") failed: No such device", /* a network's: see umi_engine_create() */
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(text, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static ucs_log_func_rc_t
take_ucx_line(const char *file, unsigned line, const char *function,
              ucs_log_level_t                   level,
              const ucs_log_component_config_t *comp_conf, const char *message,
              va_list ap)
{
    char          text[1024];
    umi_log_level our_level;

    (void)file;
    (void)line;
    (void)function;
    (void)comp_conf;
    if (level <= UCS_LOG_LEVEL_ERROR) {
        our_level = UMI_LOG_ERROR;
    } else if (level == UCS_LOG_LEVEL_WARN) {
        our_level = UMI_LOG_WARN;
    } else if (level <= UCS_LOG_LEVEL_INFO) {
        our_level = UMI_LOG_INFO;
    } else {
        our_level = UMI_LOG_DEBUG;
    }
    if (!umi_log_is_on(our_level)) {
        return UCS_LOG_FUNC_RC_STOP;
    }
    vsnprintf(text, sizeof(text), message, ap);
    if (our_level <= UMI_LOG_WARN && is_about_an_end(text)) {
        our_level = UMI_LOG_INFO;
    } else if (umi_config_is_about_settings(text)) {
        our_level = UMI_LOG_DEBUG;
    }
    umi_log(our_level, "UCX: %s", text);
    return UCS_LOG_FUNC_RC_STOP;
}

static void
process_init(void)
{
    const char *name = getenv("UCP_LOG_LEVEL");

    if (name != NULL && name[0] != '\0' && !umi_log_name_level(name)) {
        umi_log(UMI_LOG_WARN,
                "UCP_LOG_LEVEL=%s is no level: it is error, warning, info or "
                "debug",
                name);
    }
    ucs_log_push_handler(take_ucx_line);
}

void
umx_log_set(umx_log_fn fn, void *arg)
{
    umi_log_set_sink(fn, arg);
}

void
umx_log_set_level(int level)
{
    umi_log_set_level(level);
}

void
umx_ucx_version(unsigned *major_p, unsigned *minor_p, unsigned *release_p)
{
    ucp_get_version(major_p, minor_p, release_p);
}

/* Find out what UCX, as it is here, can do. */
static umx_status
learn(umx_context *context)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    umx_status status = (umx_status)ucp_context_query(context->ucx->handle,
                                                      &attr);

    if (status == UMX_OK) {
        context->moves_cuda = (attr.memory_types &
                               UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
    }
    return status;
}

static umx_status
context_set_config(umx_context *context, const umx_context_params *params)
{
    umx_config *config = &context->config;

    if (!(params->field_mask & UMX_CONTEXT_FIELD_CONFIG)) {
        umx_config_default(config);
        return UMX_OK;
    }
    if (params->config == NULL || umx_config_check(params->config) != NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    *config = *params->config;
    if (config->token != NULL) {
        memcpy(context->token, config->token, config->token_len);
        config->token = context->token;
    }
    return UMX_OK;
}

static bool
has_rdma_device(void)
{
    DIR           *dir = opendir(rdma_devices);
    bool           has = false;
    struct dirent *entry;

    if (dir == NULL) {
        return false;
    }
    while (!has && (entry = readdir(dir)) != NULL) {
        has = entry->d_name[0] != '.';
    }
    closedir(dir);
    return has;
}

/* True if UCX's put and get are to be used: each connection gets more lanes. */
static bool
wants_rma(const umx_config *config)
{
    return config->rma_ucx == UMX_RMA_UCX_ALWAYS ||
           (config->rma_ucx == UMX_RMA_UCX_RDMA && has_rdma_device());
}

/* Make a context without configuration and UCX; NULL when out of memory. */
static umx_context *
context_new(void)
{
    umx_context *context = calloc(1, sizeof(*context));

    if (context != NULL) {
        umi_shared_refs_init(&context->refs);
        context->generation = umi_fork_generation();
        pthread_mutex_init(&context->ucx_lock, NULL);
        pthread_mutex_init(&context->memhs_lock, NULL);
        umi_slots_init(&context->memhs);
        pthread_mutex_init(&context->waiters_lock, NULL);
        umi_list_init(&context->waiters);
        pthread_mutex_init(&context->parked_lock, NULL);
        umi_list_init(&context->parked);
    }
    return context;
}

static void
context_free(umx_context *context)
{
    pthread_mutex_destroy(&context->parked_lock);
    pthread_mutex_destroy(&context->waiters_lock);
    pthread_mutex_destroy(&context->memhs_lock);
    pthread_mutex_destroy(&context->ucx_lock);
    free(context);
}

/* ---- UCX's context -------------------------------------------------------
 */

/* Tell what the process lacks. UCX starts a thread of its own, and aborts where
 * that fails: for want of a descriptor, too. With few descriptors it finds no
 * network device, and has none for as long as the context lives. */
static umx_status
check_limits(void)
{
    if (!umi_descriptors_are_left(umi_descriptors_of_engine())) {
        return UMX_ERR_DESCRIPTOR_LIMIT;
    }
    return umi_thread_is_allowed() ? UMX_OK : UMX_ERR_THREAD_LIMIT;
}

static umx_status
ucx_new(const umx_context *context, umi_ucx **ucx_p)
{
    /* Threads have workers of their own, and UCX's registrations in common. */
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                           .features = ucx_features |
                                       (context->has_rma ? UCP_FEATURE_RMA : 0),
                           .mt_workers_shared = 1};
    umi_ucx     *ucx    = calloc(1, sizeof(*ucx));
    umx_status   status;

    if (ucx == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_shared_refs_init(&ucx->refs);
    umi_routes_list(&ucx->interfaces);
    status = (umx_status)ucp_init_version(UCP_API_MAJOR, UCX_MINOR, &params,
                                          context->ucx_config, &ucx->handle);
    if (status != UMX_OK) {
        free(ucx);
        return status;
    }
    *ucx_p = ucx;
    return UMX_OK;
}

umi_ucx *
umi_context_take_ucx(umx_context *context)
{
    umi_ucx *ucx;

    pthread_mutex_lock(&context->ucx_lock);
    ucx = context->ucx;
    umi_shared_refs_get(&ucx->refs);
    pthread_mutex_unlock(&context->ucx_lock);
    return ucx;
}

void
umi_context_put_ucx(umi_ucx *ucx)
{
    if (umi_shared_refs_put(&ucx->refs)) {
        ucp_cleanup(ucx->handle);
        free(ucx);
    }
}

bool
umi_context_is_newest(umx_context *context, const umi_ucx *ucx)
{
    bool is_newest;

    pthread_mutex_lock(&context->ucx_lock);
    is_newest = context->ucx == ucx;
    pthread_mutex_unlock(&context->ucx_lock);
    return is_newest;
}

/* True if peers may have keys with which UCX reaches memory. */
static bool
has_keys(umx_context *context)
{
    bool has;

    pthread_mutex_lock(&context->memhs_lock);
    has = context->has_rma && context->memhs.count != 0;
    pthread_mutex_unlock(&context->memhs_lock);
    return has;
}

umx_status
umi_context_renew(umx_context *context, const umi_ucx *old)
{
    umi_ucx   *ucx;
    umx_status status = UMX_OK;

    pthread_mutex_lock(&context->ucx_lock);
    if (context->ucx == old) {
        status = has_keys(context) ? UMX_ERR_BUSY : check_limits();
        if (status == UMX_OK) {
            status = ucx_new(context, &ucx);
        }
        if (status == UMX_OK) {
            umi_log(UMI_LOG_INFO, "UCX looks for network devices again: others "
                                  "are up now");
            umi_context_put_ucx(context->ucx);
            context->ucx = ucx;
        }
    }
    pthread_mutex_unlock(&context->ucx_lock);
    return status;
}

/* Make the first one. */
static umx_status
open_ucx(umx_context *context)
{
    umx_status status = umi_fork_enter();

    if (status != UMX_OK) {
        return status;
    }
    context->has_rma = wants_rma(&context->config);
    status           = ucx_new(context, &context->ucx);
    if (status != UMX_OK) {
        goto leave_fork;
    }
    status = learn(context);
    if (status != UMX_OK) {
        goto put_ucx;
    }
    return UMX_OK;

put_ucx:
    umi_context_put_ucx(context->ucx);
leave_fork:
    umi_fork_leave();
    return status;
}

/* ---- life ----------------------------------------------------------------
 */

static void
read_ports(umx_context *context, const umx_context_params *params)
{
    int option;

    umi_port_range_read(&context->ports,
                        umi_config_value(params, "TCP_PORT_RANGE", &option),
                        umi_config_value(params, "TLS", &option));
    context->ports.is_everywhere = !context->has_devices;
}

umx_status
umx_context_create(const umx_context_params *params, umx_context **context_p,
                   int *bad_option_p)
{
    static const umx_context_params defaults;

    umx_context *context;
    umx_status   status;

    if (params == NULL) {
        params = &defaults;
    }
    pthread_once(&process_once, process_init);
    context = context_new();
    if (context == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (bad_option_p != NULL) {
        *bad_option_p = -1;
    }
    status = check_limits();
    if (status != UMX_OK) {
        goto free_context;
    }
    if (!umi_random_bytes(&context->id, sizeof(context->id))) {
        status = UMX_ERR_IO_ERROR;
        goto free_context;
    }
    status = umi_config_read(params, &context->ucx_config, bad_option_p);
    if (status != UMX_OK) {
        goto free_context;
    }
    context->has_devices = umi_config_has_devices(params);
    context->queues      = umi_config_queues(params);
    read_ports(context, params);
    status = context_set_config(context, params);
    if (status == UMX_OK) {
        status = open_ucx(context);
    }
    if (status != UMX_OK) {
        goto release_config;
    }
    *context_p = context;
    return UMX_OK;

release_config:
    ucp_config_release(context->ucx_config);
free_context:
    context_free(context);
    return status;
}

void
umi_context_hold(umx_context *context)
{
    umi_shared_refs_get(&context->refs);
}

void
umx_context_release(umx_context *context)
{
    if (!umi_shared_refs_put(&context->refs)) {
        return;
    }
    /* UCX's threads and descriptors did not come along into a forked child. */
    if (context->generation == umi_fork_generation()) {
        if (context->end_parked != NULL && !context->end_parked(context)) {
            return; /* UCX cannot be given up */
        }
        umi_context_put_ucx(context->ucx);
        ucp_config_release(context->ucx_config);
        umi_fork_leave();
        pthread_mutex_destroy(&context->parked_lock);
        pthread_mutex_destroy(&context->waiters_lock);
        pthread_mutex_destroy(&context->memhs_lock);
        pthread_mutex_destroy(&context->ucx_lock);
    }
    umi_slots_fini(&context->memhs);
    free(context);
}

const umx_config *
umx_context_config(const umx_context *context)
{
    return &context->config;
}

void *
umx_context_handle(const umx_context *context)
{
    void    *handle;
    umi_ucx *ucx = umi_context_take_ucx((umx_context *)context);

    handle = ucx->handle;
    umi_context_put_ucx(ucx);
    return handle;
}

umx_status
umi_print_to_text(umi_print_fn print, const void *arg, char **text_p)
{
    char  *text   = NULL;
    size_t size   = 0;
    FILE  *stream = open_memstream(&text, &size);

    if (stream == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    print(stream, arg);
    if (fclose(stream) != 0) {
        free(text);
        return UMX_ERR_NO_MEMORY;
    }
    *text_p = text;
    return UMX_OK;
}

static void
print_context(FILE *stream, const void *arg)
{
    const umi_ucx *ucx = arg;

    ucp_context_print_info(ucx->handle, stream);
}

umx_status
umx_context_info(const umx_context *context, char **text_p)
{
    umi_ucx   *ucx    = umi_context_take_ucx((umx_context *)context);
    umx_status status = umi_print_to_text(print_context, ucx, text_p);

    umi_context_put_ucx(ucx);
    return status;
}
