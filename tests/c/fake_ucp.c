/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_ucp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

enum {
    MAX_OBJECTS  = 64,
    MAX_REQUESTS = 512,
    MAX_ARRIVALS = 256,
    MAX_BYTES    = 8192,
    MAX_STREAM   = 65536,
    MAX_IDS      = 16,
    MAX_KEYS     = 64
};

struct ucp_config {
    bool is_live;
};

struct ucp_context {
    bool is_live;
};

struct ucp_mem {
    bool   is_live;
    size_t len;
};

struct ucp_rkey {
    bool is_live;
};

/* A buffer that ucp_rkey_pack() has given. */
typedef struct packed_rkey {
    bool is_live;
} packed_rkey;

struct ucp_worker {
    bool                   is_live;
    int                    fd;
    ucp_am_handler_param_t handlers[MAX_IDS];
};

struct ucp_ep {
    bool                 is_live;
    ucp_worker_h         worker;
    ucp_err_handler_cb_t on_error;
    void                *arg;
    ucs_status_t         error; /* to report in the next progress */
};

/* The memory that an arrival's data pointer leads to. */
typedef struct descriptor {
    bool    is_live;
    bool    is_received; /* by an operation that is pending */
    size_t  len;
    uint8_t bytes[MAX_BYTES];
} descriptor;

typedef struct arrival {
    ucp_ep_h    ep;
    unsigned    id;
    uint8_t     header[64];
    size_t      header_len;
    descriptor *desc;
    bool        is_rndv;
} arrival;

typedef enum request_kind {
    KIND_SEND,
    KIND_AM_RECV,
    KIND_STREAM_RECV,
    KIND_TAG_RECV
} request_kind;

typedef struct request {
    bool                            is_live;    /* the caller has it */
    bool                            is_over;    /* the callback has run */
    bool                            is_waiting; /* nothing completes it */
    bool                            is_flush;
    request_kind                    kind;
    ucp_worker_h                    worker;
    ucp_ep_h                        ep;
    ucs_status_t                    status;
    void                           *user_data;
    ucp_send_nbx_callback_t         on_sent;
    ucp_am_recv_data_nbx_callback_t on_am_received;
    ucp_stream_recv_nbx_callback_t  on_stream_received;
    ucp_tag_recv_nbx_callback_t     on_tag_received;
    size_t                          len;
    descriptor                     *desc; /* KIND_AM_RECV, pending */
    const ucp_generic_dt_ops_t     *ops;  /* NULL: the memory is contiguous */
    void                           *to;   /* the memory, or what `ops` needs */
} request;

fake_state fake;

static struct ucp_config  configs[MAX_OBJECTS];
static struct ucp_context contexts[MAX_OBJECTS];
static struct ucp_mem     mems[MAX_OBJECTS];
static packed_rkey        packed_rkeys[MAX_OBJECTS];
static struct ucp_rkey    rkeys[MAX_OBJECTS];
static struct ucp_worker  workers[MAX_OBJECTS];
static struct ucp_ep      eps[MAX_OBJECTS];
static request            requests[MAX_REQUESTS];
static descriptor         descriptors[MAX_OBJECTS];
static arrival            arrivals[MAX_ARRIVALS];
static unsigned           num_arrivals;
static unsigned           sent[MAX_IDS];
static uint8_t            last_sent[MAX_BYTES];
static size_t             last_sent_len;
static char               keys[MAX_KEYS][48], values[MAX_KEYS][48];
static unsigned           num_keys;

/* The next element that is not in use. */
#define TAKE(array)                                         \
    __extension__({                                         \
        size_t take_i = 0;                                  \
                                                            \
        while (take_i < sizeof(array) / sizeof(*(array)) && \
               (array)[take_i].is_live) {                   \
            take_i++;                                       \
        }                                                   \
        if (take_i == sizeof(array) / sizeof(*(array))) {   \
            abort();                                        \
        }                                                   \
        memset(&(array)[take_i], 0, sizeof(*(array)));      \
        (array)[take_i].is_live = true;                     \
        fake.live++;                                        \
        &(array)[take_i];                                   \
    })

/* Giving back what is not in use is a bug of libumx. */
#define GIVE(object)               \
    do {                           \
        if (!(object)->is_live) {  \
            abort();               \
        }                          \
        (object)->is_live = false; \
        fake.live--;               \
    } while (0)

bool
fake_fails(const char *name)
{
    if (fake.is_paused || ++fake.calls != fake.fail_at) {
        return false;
    }
    fake.failed = name;
    return true;
}

#define FAIL_IF_TOLD()               \
    do {                             \
        if (fake_fails(__func__)) {  \
            return fake.fail_status; \
        }                            \
    } while (0)

/* ---- memory, where a test wraps it ---------------------------------------
 */

void *__real_malloc(size_t size) __attribute__((weak));
void *__real_calloc(size_t count, size_t size) __attribute__((weak));
char *__real_strndup(const char *text, size_t len) __attribute__((weak));
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strndup(const char *text, size_t len);

void *
__wrap_malloc(size_t size)
{
    return fake_fails("malloc") ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
    return fake_fails("calloc") ? NULL : __real_calloc(count, size);
}

char *
__wrap_strndup(const char *text, size_t len)
{
    return fake_fails("strndup") ? NULL : __real_strndup(text, len);
}

/* ---- the test's side -----------------------------------------------------
 */

void
fake_reset(void)
{
    memset(&fake, 0, sizeof(fake));
    memset(configs, 0, sizeof(configs));
    memset(contexts, 0, sizeof(contexts));
    memset(mems, 0, sizeof(mems));
    memset(packed_rkeys, 0, sizeof(packed_rkeys));
    memset(rkeys, 0, sizeof(rkeys));
    memset(workers, 0, sizeof(workers));
    memset(eps, 0, sizeof(eps));
    memset(requests, 0, sizeof(requests));
    memset(descriptors, 0, sizeof(descriptors));
    memset(sent, 0, sizeof(sent));
    num_arrivals     = 0;
    num_keys         = 0;
    last_sent_len    = 0;
    fake.fail_status = UCS_ERR_IO_ERROR;
    fake.transport   = "tcp";
}

void
fake_break(ucp_ep_h ep, ucs_status_t status)
{
    if (ep != NULL && ep->is_live) {
        ep->error = status;
    }
}

void
fake_arrive(ucp_ep_h ep, unsigned id, const void *header, size_t header_len,
            const void *data, size_t len, bool is_rndv)
{
    arrival *a;

    if (ep == NULL || !ep->is_live) {
        return;
    }
    if (num_arrivals == MAX_ARRIVALS || len > MAX_BYTES || header_len > 64) {
        abort();
    }
    a             = &arrivals[num_arrivals++];
    a->ep         = ep;
    a->id         = id;
    a->header_len = header_len;
    a->is_rndv    = is_rndv;
    a->desc       = TAKE(descriptors);
    a->desc->len  = len;
    if (header_len != 0) {
        memcpy(a->header, header, header_len);
    }
    if (len != 0) {
        memcpy(a->desc->bytes, data, len);
    }
}

unsigned
fake_sent(unsigned id)
{
    return sent[id];
}

const void *
fake_last_sent(size_t *len_p)
{
    *len_p = last_sent_len;
    return last_sent;
}

bool
fake_was_configured(const char *key)
{
    return fake_configured(key) != NULL;
}

const char *
fake_configured(const char *key)
{
    for (unsigned i = num_keys; i-- > 0;) {
        if (strcmp(keys[i], key) == 0) {
            return values[i];
        }
    }
    return NULL;
}

/* ---- contexts ------------------------------------------------------------
 */

void
ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    *major   = 1;
    *minor   = 99;
    *release = 0;
}

void
ucs_log_push_handler(ucs_log_func_t handler)
{
    (void)handler;
}

ucs_status_t
ucp_config_read(const char *prefix, const char *file, ucp_config_t **config_p)
{
    (void)prefix;
    (void)file;
    FAIL_IF_TOLD();
    *config_p = TAKE(configs);
    return UCS_OK;
}

void
ucp_config_release(ucp_config_t *config)
{
    GIVE(config);
}

ucs_status_t
ucp_config_modify(ucp_config_t *config, const char *name, const char *value)
{
    (void)config;
    if (strcmp(name, "UNKNOWN") == 0 || strcmp(value, "bad") == 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    FAIL_IF_TOLD();
    if (num_keys < MAX_KEYS) {
        snprintf(values[num_keys], sizeof(values[0]), "%s", value);
        snprintf(keys[num_keys++], sizeof(keys[0]), "%s", name);
    }
    return UCS_OK;
}

void
ucp_config_print(const ucp_config_t *config, FILE *stream, const char *title,
                 ucs_config_print_flags_t flags)
{
    (void)config;
    (void)title;
    (void)flags;
    fputs("# a comment\nUCX_TLS=all\nUCX_NET_DEVICES=a=b\nUCX_BARE\n", stream);
}

ucs_status_t
ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params,
                 const ucp_config_t *config, ucp_context_h *context_p)
{
    (void)major;
    (void)minor;
    (void)params;
    (void)config;
    FAIL_IF_TOLD();
    *context_p = TAKE(contexts);
    return UCS_OK;
}

void
ucp_cleanup(ucp_context_h context)
{
    GIVE(context);
}

ucs_status_t
ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    (void)context;
    if (fake_fails(__func__)) {
        return fake.fail_status;
    }
    attr->memory_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    if (fake.moves_cuda) {
        attr->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    }
    return UCS_OK;
}

void
ucp_context_print_info(const ucp_context_h context, FILE *stream)
{
    (void)context;
    fputs("context\n", stream);
}

/* ---- memory --------------------------------------------------------------
 */

ucs_status_t
ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
            ucp_mem_h *mem_p)
{
    if (!context->is_live || params->length == 0) {
        abort();
    }
    FAIL_IF_TOLD();
    *mem_p        = TAKE(mems);
    (*mem_p)->len = params->length;
    return UCS_OK;
}

ucs_status_t
ucp_mem_unmap(ucp_context_h context, ucp_mem_h mem)
{
    if (!context->is_live) {
        abort();
    }
    GIVE(mem);
    return UCS_OK;
}

ucs_status_t
ucp_rkey_pack(ucp_context_h context, ucp_mem_h mem, void **rkey_p,
              size_t *len_p)
{
    (void)context;
    if (!mem->is_live) {
        abort();
    }
    FAIL_IF_TOLD();
    *rkey_p = TAKE(packed_rkeys);
    *len_p  = (fake.rkey_len != 0) ? fake.rkey_len : sizeof(packed_rkey);
    return UCS_OK;
}

void
ucp_rkey_buffer_release(void *rkey)
{
    GIVE((packed_rkey *)rkey);
}

/* ---- workers -------------------------------------------------------------
 */

ucs_status_t
ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
                  ucp_worker_h *worker_p)
{
    (void)context;
    (void)params;
    FAIL_IF_TOLD();
    *worker_p       = TAKE(workers);
    (*worker_p)->fd = eventfd(0, EFD_NONBLOCK);
    return UCS_OK;
}

static void finish_request(request *req, ucs_status_t status);

void
ucp_worker_destroy(ucp_worker_h worker)
{
    for (int i = 0; i < MAX_REQUESTS && fake.calls_at_end; i++) {
        if (requests[i].is_live && !requests[i].is_over &&
            requests[i].worker == worker) {
            finish_request(&requests[i], UCS_ERR_CANCELED);
        }
    }
    close(worker->fd);
    for (int i = 0; i < MAX_OBJECTS; i++) { /* UCX frees what it holds */
        if (eps[i].is_live && eps[i].worker == worker) {
            GIVE(&eps[i]);
        }
    }
    for (int i = 0; i < MAX_REQUESTS; i++) {
        if (requests[i].is_live && requests[i].worker == worker) {
            if (requests[i].desc != NULL) {
                GIVE(requests[i].desc);
            }
            GIVE(&requests[i]);
        }
    }
    GIVE(worker);
}

ucs_status_t
ucp_worker_get_efd(ucp_worker_h worker, int *fd_p)
{
    FAIL_IF_TOLD();
    *fd_p = worker->fd;
    return UCS_OK;
}

ucs_status_t
ucp_worker_set_am_recv_handler(ucp_worker_h                  worker,
                               const ucp_am_handler_param_t *param)
{
    FAIL_IF_TOLD();
    worker->handlers[param->id] = *param;
    return UCS_OK;
}

ucs_status_t
ucp_worker_query(ucp_worker_h worker, ucp_worker_attr_t *attr)
{
    FAIL_IF_TOLD();
    attr->address        = (ucp_address_t *)worker;
    attr->address_length = 8;
    fake.live++;
    return UCS_OK;
}

void
ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address)
{
    if ((void *)address != (void *)worker) {
        abort();
    }
    fake.live--;
}

void
ucp_worker_print_info(ucp_worker_h worker, FILE *stream)
{
    (void)worker;
    fputs("worker\n", stream);
}

ucs_status_t
ucp_worker_signal(ucp_worker_h worker)
{
    uint64_t one = 1;

    return write(worker->fd, &one, sizeof(one)) == sizeof(one) ?
               UCS_OK :
               UCS_ERR_IO_ERROR;
}

static void
step(void)
{
    if (fake.on_step != NULL) {
        fake.on_step();
    }
}

/* Write the bytes of a message from `start` to `end`. */
static void
unpack(const request *req, size_t start, size_t end)
{
    const uint8_t *bytes = req->desc->bytes;

    if (req->ops != NULL) {
        (void)req->ops->unpack(req->to, start, bytes + start, end - start);
    } else if (start != end) {
        memcpy((char *)req->to + start, bytes + start, end - start);
    }
}

/* Write the second half of the bytes of a message. */
static void
unpack_rest(request *req, ucs_status_t status)
{
    if (status == UCS_OK) {
        unpack(req, req->desc->len / 2, req->desc->len);
    }
    if (req->ops != NULL) {
        req->ops->finish(req->to);
    }
    GIVE(req->desc);
    req->desc = NULL;
}

static void
finish_request(request *req, ucs_status_t status)
{
    ucp_tag_recv_info_t info = {.length = req->len};

    step();
    if (req->desc != NULL) {
        unpack_rest(req, status);
    }
    req->is_over = true;
    req->status  = status;
    switch (req->kind) {
    case KIND_SEND:
        req->on_sent(req, status, req->user_data);
        break;
    case KIND_AM_RECV:
        req->on_am_received(req, status, req->len, req->user_data);
        break;
    case KIND_STREAM_RECV:
        req->on_stream_received(req, status, req->len, req->user_data);
        break;
    case KIND_TAG_RECV:
        req->on_tag_received(req, status, &info, req->user_data);
        break;
    }
}

/* Complete what is pending: one of them may be told to fail. */
static unsigned
run_requests(ucp_worker_h worker)
{
    unsigned events = 0;

    for (int i = 0; i < MAX_REQUESTS; i++) {
        request     *req = &requests[i];
        ucs_status_t status;

        if (!req->is_live || req->is_over || req->worker != worker ||
            req->is_waiting || fake.is_wedged) {
            continue;
        }
        status = req->status;
        if (++fake.completions == fake.fail_completion_at) {
            fake.failed = "completion";
            status      = fake.fail_status;
        }
        finish_request(req, status);
        events++;
    }
    return events;
}

static void
hand_over(ucp_worker_h worker, arrival *a)
{
    const ucp_am_handler_param_t *handler = &worker->handlers[a->id];
    ucp_am_recv_param_t           param   = {
                    .recv_attr = UCP_AM_RECV_ATTR_FIELD_REPLY_EP |
                                 (a->is_rndv ? UCP_AM_RECV_ATTR_FLAG_RNDV :
                                               UCP_AM_RECV_ATTR_FLAG_DATA),
                    .reply_ep = a->ep,
    };
    ucs_status_t status;

    step();
    status = handler->cb(handler->arg, a->header, a->header_len, a->desc->bytes,
                         a->desc->len, &param);
    if (status != UCS_INPROGRESS && a->desc->is_live && !a->desc->is_received) {
        GIVE(a->desc);
    }
}

static unsigned
run_arrivals(ucp_worker_h worker)
{
    arrival  now[MAX_ARRIVALS];
    unsigned count = num_arrivals;

    memcpy(now, arrivals, count * sizeof(*now));
    num_arrivals = 0;
    for (unsigned i = 0; i < count; i++) {
        if (now[i].ep->is_live && now[i].ep->worker == worker) {
            hand_over(worker, &now[i]);
        } else {
            GIVE(now[i].desc);
        }
    }
    return count;
}

unsigned
ucp_worker_progress(ucp_worker_h worker)
{
    unsigned events;

    if (fake.queued_polls > 0) {
        fake.queued_polls--;
    }
    if (fake.idle_polls > 0) {
        fake.idle_polls--;
        return 0;
    }
    events = run_requests(worker) + run_arrivals(worker);

    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (eps[i].is_live && eps[i].worker == worker &&
            eps[i].error != UCS_OK) {
            ucs_status_t status = eps[i].error;

            eps[i].error = UCS_OK;
            events++;
            eps[i].on_error(eps[i].arg, &eps[i], status);
        }
    }
    return events;
}

ucs_status_t
ucp_worker_arm(ucp_worker_h worker)
{
    (void)worker;
    FAIL_IF_TOLD();
    return (num_arrivals != 0 || fake.is_wedged) ? UCS_ERR_BUSY : UCS_OK;
}

/* ---- endpoints -----------------------------------------------------------
 */

ucs_status_t
ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params,
              ucp_ep_h *ep_p)
{
    FAIL_IF_TOLD();
    *ep_p             = TAKE(eps);
    (*ep_p)->worker   = worker;
    (*ep_p)->on_error = params->err_handler.cb;
    (*ep_p)->arg      = params->err_handler.arg;
    return UCS_OK;
}

ucs_status_t
ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t *attr)
{
    (void)ep;
    (void)attr; /* before UCX 1.14 */
    FAIL_IF_TOLD();
#if UCP_API_VERSION >= UCP_VERSION(1, 14)
    if ((attr->field_mask & UCP_EP_ATTR_FIELD_TRANSPORTS) &&
        fake.transport != NULL) {
        attr->transports.entries[0].transport_name = fake.transport;
        attr->transports.entries[0].device_name    = "device";
        attr->transports.num_entries               = 1;
    }
#endif
    return UCS_OK;
}

void
ucp_ep_print_info(ucp_ep_h ep, FILE *stream)
{
    (void)ep;
    fputs(fake.description != NULL ? fake.description : "endpoint\n", stream);
}

/* ---- operations ----------------------------------------------------------
 */

static request *
new_request(request_kind kind, ucp_worker_h worker, ucp_ep_h ep,
            const ucp_request_param_t *param)
{
    request *req = TAKE(requests);

    req->kind      = kind;
    req->worker    = worker;
    req->ep        = ep;
    req->user_data = param->user_data;
    switch (kind) {
    case KIND_SEND:
        req->on_sent = param->cb.send;
        break;
    case KIND_AM_RECV:
        req->on_am_received = param->cb.recv_am;
        break;
    case KIND_STREAM_RECV:
        req->on_stream_received = param->cb.recv_stream;
        break;
    case KIND_TAG_RECV:
        req->on_tag_received = param->cb.recv;
        break;
    }
    return req;
}

/* Note the memory handle that UCX would use. */
static void
note_memh(const ucp_request_param_t *param)
{
    fake.memh = (param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMH) ? param->memh :
                                                                 NULL;
    if (fake.memh != NULL && !fake.memh->is_live) {
        abort();
    }
}

static ucs_status_ptr_t
post(const char *name, ucp_worker_h worker, ucp_ep_h ep,
     const ucp_request_param_t *param)
{
    note_memh(param);
    if (fake.on_post != NULL) {
        fake.on_post();
    }
    if (fake_fails(name)) {
        return UCS_STATUS_PTR(fake.fail_status);
    }
    return fake.is_pending ? new_request(KIND_SEND, worker, ep, param) : NULL;
}

ucs_status_ptr_t
ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
    ucp_worker_h worker = ep->worker;

    for (int i = 0; i < MAX_REQUESTS; i++) {
        request *req = &requests[i];

        if (req->is_live && !req->is_over && req->ep == ep) {
            fake.closed_in_flush += req->is_flush && fake.queued_polls != 0;
            req->status     = UCS_ERR_CANCELED;
            req->is_waiting = false;
        }
    }
    GIVE(ep);
    return post(__func__, worker, NULL, param);
}

ucs_status_ptr_t
ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
    ucs_status_ptr_t result = post(__func__, ep->worker, ep, param);

    fake.flushes++;
    if (UCS_PTR_IS_PTR(result)) {
        ((request *)result)->is_flush = true;
    }
    return result;
}

ucs_status_t
ucp_ep_rkey_unpack(ucp_ep_h ep, const void *packed, ucp_rkey_h *rkey_p)
{
    (void)packed;
    if (!ep->is_live) {
        abort();
    }
    FAIL_IF_TOLD();
    *rkey_p = TAKE(rkeys);
    return UCS_OK;
}

void
ucp_rkey_destroy(ucp_rkey_h rkey)
{
    GIVE(rkey);
}

/* Memory of this process, too: it is reached at once. */
ucs_status_ptr_t
ucp_put_nbx(ucp_ep_h ep, const void *buffer, size_t count, uint64_t address,
            ucp_rkey_h rkey, const ucp_request_param_t *param)
{
    ucs_status_ptr_t result = post(__func__, ep->worker, ep, param);

    if (!rkey->is_live) {
        abort();
    }
    if (!UCS_PTR_IS_ERR(result)) {
        fake.puts++;
        memcpy((void *)(uintptr_t)address, buffer, count);
    }
    return result;
}

ucs_status_ptr_t
ucp_get_nbx(ucp_ep_h ep, void *buffer, size_t count, uint64_t address,
            ucp_rkey_h rkey, const ucp_request_param_t *param)
{
    ucs_status_ptr_t result = post(__func__, ep->worker, ep, param);

    if (!rkey->is_live) {
        abort();
    }
    if (!UCS_PTR_IS_ERR(result)) {
        memcpy(buffer, (void *)(uintptr_t)address, count);
    }
    return result;
}

ucs_status_t
ucp_dt_create_generic(const ucp_generic_dt_ops_t *ops, void *context,
                      ucp_datatype_t *datatype_p)
{
    (void)context;
    if (fake_fails(__func__)) {
        return fake.fail_status;
    }
    fake.live++;
    *datatype_p = (ucp_datatype_t)(uintptr_t)ops;
    return UCS_OK;
}

void
ucp_dt_destroy(ucp_datatype_t datatype)
{
    (void)datatype;
    fake.live--;
}

/* The first MAX_BYTES of what is sent. */
static size_t
pack(void *to, const void *buffer, size_t count,
     const ucp_request_param_t *param)
{
    const ucp_generic_dt_ops_t *ops;

    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) {
        ops = (const void *)(uintptr_t)param->datatype;
        return ops->pack(ops->start_pack(NULL, buffer, count), 0, to,
                         MAX_BYTES);
    }
    count = (count < MAX_BYTES) ? count : MAX_BYTES;
    if (count != 0) {
        memcpy(to, buffer, count);
    }
    return count;
}

ucs_status_ptr_t
ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
                size_t header_length, const void *buffer, size_t count,
                const ucp_request_param_t *param)
{
    ucs_status_ptr_t result;

    (void)header;
    (void)header_length;
    if (fake.is_pending &&
        (param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)) {
        return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    }
    result = post(__func__, ep->worker, ep, param);
    if (!UCS_PTR_IS_ERR(result)) {
        sent[id]++;
        last_sent_len = pack(last_sent, buffer, count, param);
    }
    return result;
}

static descriptor *
descriptor_of(const void *data)
{
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (data == descriptors[i].bytes && descriptors[i].is_live) {
            return &descriptors[i];
        }
    }
    abort();
}

ucs_status_ptr_t
ucp_am_recv_data_nbx(ucp_worker_h worker, void *data_desc, void *buffer,
                     size_t count, const ucp_request_param_t *param)
{
    request  own = {.desc = descriptor_of(data_desc), .to = buffer};
    request *req;

    note_memh(param);
    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) {
        own.ops = (const void *)(uintptr_t)param->datatype;
        own.to  = own.ops->start_unpack(NULL, buffer, count);
    }
    unpack(&own, 0, own.desc->len / 2);
    if (fake_fails(__func__)) {
        unpack_rest(&own, fake.fail_status);
        return UCS_STATUS_PTR(fake.fail_status);
    }
    if (!fake.is_pending) {
        unpack_rest(&own, UCS_OK);
        return NULL;
    }
    req                   = new_request(KIND_AM_RECV, worker, NULL, param);
    req->len              = own.desc->len;
    req->desc             = own.desc;
    own.desc->is_received = true;
    req->ops              = own.ops;
    req->to               = own.to;
    return req;
}

void
ucp_am_data_release(ucp_worker_h worker, void *data)
{
    if (!worker->is_live) {
        abort();
    }
    GIVE(descriptor_of(data));
}

ucs_status_ptr_t
ucp_stream_send_nbx(ucp_ep_h ep, const void *buffer, size_t count,
                    const ucp_request_param_t *param)
{
    (void)buffer;
    (void)count;
    return post(__func__, ep->worker, ep, param);
}

/* Streams have zeros: as many as a receive asks for, unless that is too much.
 */
ucs_status_ptr_t
ucp_stream_recv_nbx(ucp_ep_h ep, void *buffer, size_t count, size_t *length,
                    const ucp_request_param_t *param)
{
    static const char           zeros[MAX_STREAM];
    const ucp_generic_dt_ops_t *ops = NULL;
    void                       *to  = buffer;
    request                    *req;

    note_memh(param);
    if (fake_fails(__func__)) {
        return UCS_STATUS_PTR(fake.fail_status);
    }
    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) {
        ops   = (const void *)(uintptr_t)param->datatype;
        to    = ops->start_unpack(NULL, buffer, count);
        count = ops->packed_size(to);
    }
    if (count <= MAX_STREAM && ops != NULL) {
        (void)ops->unpack(to, 0, zeros, count);
        ops->finish(to);
    } else if (count <= MAX_STREAM) {
        memset(buffer, 0, count);
    }
    *length = count;
    if (!fake.is_pending && count <= MAX_STREAM) {
        return NULL;
    }
    req             = new_request(KIND_STREAM_RECV, ep->worker, ep, param);
    req->len        = count;
    req->is_waiting = count > MAX_STREAM;
    return req;
}

ucs_status_ptr_t
ucp_tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                 const ucp_request_param_t *param)
{
    (void)buffer;
    (void)count;
    (void)tag;
    return post(__func__, ep->worker, ep, param);
}

ucs_status_ptr_t
ucp_tag_send_sync_nbx(ucp_ep_h ep, const void *buffer, size_t count,
                      ucp_tag_t tag, const ucp_request_param_t *param)
{
    return ucp_tag_send_nbx(ep, buffer, count, tag, param);
}

ucp_tag_message_h
ucp_tag_probe_nb(ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t tag_mask,
                 int remove, ucp_tag_recv_info_t *info)
{
    (void)worker;
    (void)tag;
    (void)tag_mask;
    (void)remove;
    (void)info;
    return NULL; /* nothing ever comes */
}

ucs_status_ptr_t
ucp_tag_msg_recv_nbx(ucp_worker_h worker, void *buffer, size_t count,
                     ucp_tag_message_h          message,
                     const ucp_request_param_t *param)
{
    (void)worker;
    (void)buffer;
    (void)count;
    (void)message;
    (void)param;
    abort(); /* no message exists */
}

/* Post a receive that nothing ever matches: the receive waits until it is
 * cancelled. */
ucs_status_ptr_t
ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
                 ucp_tag_t tag_mask, const ucp_request_param_t *param)
{
    request *req;

    (void)buffer;
    (void)count;
    (void)tag;
    (void)tag_mask;
    note_memh(param);
    if (fake_fails(__func__)) {
        return UCS_STATUS_PTR(fake.fail_status);
    }
    req             = new_request(KIND_TAG_RECV, worker, NULL, param);
    req->is_waiting = true;
    return req;
}

void
ucp_request_cancel(ucp_worker_h worker, void *handle)
{
    request *req = handle;

    (void)worker;
    if (!req->is_live || req->is_over) {
        return;
    }
    if (fake.is_wedged) {
        req->is_waiting = false;
        req->status     = UCS_ERR_CANCELED;
    } else {
        finish_request(req, UCS_ERR_CANCELED);
    }
}

void
ucp_request_free(void *handle)
{
    request *req = handle;

    if (!req->is_over) {
        abort();
    }
    GIVE(req);
}
