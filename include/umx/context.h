/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file context.h  A UCX context and the limits of everything under it.
 *
 * Thread: create, hold and release from any thread; one process may have many.
 */
#ifndef UMX_CONTEXT_H
#define UMX_CONTEXT_H

#include <umx/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One UCX option, key without the `UCX_` prefix. */
typedef struct umx_option {
    const char *key;
    const char *value;
} umx_option;

/** When umx_rma_put() and umx_rma_get() are UCX's own; see umx/rma.h. */
enum umx_rma_ucx {
    UMX_RMA_UCX_NEVER,
    UMX_RMA_UCX_RDMA,  /* on connections that have a network card for it */
    UMX_RMA_UCX_ALWAYS /* UCX does not check addresses: a stale key of a peer's
                          may end this process */
};

/** The time after which a peer counts as gone whose host gives no sign of life:
 * the default of umx_config.keepalive_ns, and of umx_comm_params.heartbeat_ns.
 */
#define UMX_KEEPALIVE_NS UINT64_C(30000000000)

enum {
    UMX_CHANNELS_MAX = 16000 /* all of them are named when a connection closes */
};

/**
 * Numbers that decide behaviour; umx_config_default() fills them in and says
 * in src/host/config.c why each has its value.
 */
typedef struct umx_config {
    uint64_t spin_ns;            /* longest poll inside one wait; 0 = never */
    uint64_t drain_ns;           /* longest umx_worker_drain() before it asks
                                    to be called again */
    size_t   rndv_thresh_shm;    /* bytes; sends of this size and above go by
                                    rendezvous if shared memory is in use */
    size_t   rndv_thresh_net;    /* the same without shared memory */
    size_t   cma_min;            /* bytes; over shared memory, sends from this */
    size_t   cma_max;            /* to this size are read by the receiver from
                                    the sender's memory, if the system lets it
                                    (process_vm_readv()): one copy, and the
                                    sender is not woken for it; 0 = never */
    uint64_t credit_bytes;       /* eager bytes a peer may have unread, in
                                    all, with 512 for each message; beyond it
                                    announces them */
    uint64_t credit_bytes_max;   /* what `credit_bytes` may grow to for a peer
                                    that is far away: what is read in a few
                                    round trips */
    uint32_t credit_messages;    /* eager messages, per channel */
    uint32_t credit_messages_max; /* the same for these; less than the first
                                     number: they do not grow */
    uint32_t credit_rndv;        /* rendezvous announcements, in all; each
                                    channel may have 16 more, or fewer if this
                                    is less */
    uint32_t channels_max;       /* channels that a peer may send on to one
                                    endpoint, all kinds together, besides
                                    channel 0; at most UMX_CHANNELS_MAX */
    uint64_t close_timeout_ns;   /* deadline of a close nobody waits for */
    uint64_t connect_timeout_ns; /* default for umx_ep_connect() and for the
                                    handshake of accepted endpoints */
    uint64_t heartbeat_ns;       /* a peer silent for this long, up to half as
                                    long again, is given up with
                                    UMX_ERR_ENDPOINT_TIMEOUT; 0 = never, else
                                    at least 1 ms, and longer than any peer may
                                    be busy without progress */
    uint64_t keepalive_ns;       /* a peer whose host has not answered the
                                    kernel's probes for this long, up to half
                                    as long again, is given up with
                                    UMX_ERR_ENDPOINT_TIMEOUT, however busy or
                                    stopped the peer is; in seconds, rounded
                                    up, 4 at least; 0 = never. Not shorter than
                                    heartbeat_ns, if that is to be waited for
                                  */
    size_t   goodbye_bytes;      /* unread rendezvous data pulled in when the
                                    peer closes */
    size_t   cancel_bytes;       /* that all copies of cancelled operations of a
                                    worker may have; what is beyond ends when
                                    the operation does */
    uint64_t cancel_timeout_ns;  /* a peer without a sign of life for so long,
                                    while a cancelled operation waits for it, is
                                    given up: UMX_ERR_ENDPOINT_TIMEOUT; 0 = never
                                  */
    uint32_t rma_ucx;            /* umx_rma_ucx */
    size_t   frames_copy_max;    /* bytes; small frames are copied together up
                                    to here, else UCX gathers them */
    size_t   frames_alone_min;   /* bytes; frames of this size and above go on
                                    their own */
    uint32_t frames_max;         /* frames of one message, sent or received */
    uint64_t frames_bytes_max;   /* bytes of all of them; a peer that announces
                                    more is dropped */
    const uint8_t *token;        /* shared secret, copied; NULL = none asked */
    size_t         token_len;    /* bytes, 1 to 256 */
} umx_config;

/** Fill in the settings that a context has without others. */
UMX_API void umx_config_default(umx_config *config);

/**
 * Check `config`. Returns NULL if umx_context_create() takes it, or else what
 * is wrong: the name of the first field that is out of range, and its limits.
 * Static.
 */
UMX_API const char *umx_config_check(const umx_config *config);

enum umx_context_field {
    UMX_CONTEXT_FIELD_OPTIONS = 1u << 0, /* absent: UCX's environment only */
    UMX_CONTEXT_FIELD_CONFIG  = 1u << 1, /* absent: umx_config_default() */
    UMX_CONTEXT_FIELD_FLAGS   = 1u << 2  /* absent: 0 */
};

enum umx_context_flags {
    /* The environment's UCX_* wins over `options` (ucx-py's
     * env_takes_precedence). Without it `options` win. Both win over the
     * settings libumx chooses. */
    UMX_CONTEXT_FLAG_ENV_FIRST = 1u << 0
};

typedef struct umx_context_params {
    uint64_t          field_mask;
    const umx_option *options;
    size_t            num_options;
    const umx_config *config;
    uint64_t          flags;
} umx_context_params;

/**
 * Create a context. The environment is read, never written.
 *
 * Ownership: the caller's reference; workers hold their own.
 * @param[out] bad_option_p  may be NULL; on UMX_ERR_UNKNOWN_OPTION and on
 *                 UMX_ERR_INVALID_PARAM the index of the option refused, else
 *                 -1
 * @return UMX_OK; UMX_ERR_UNKNOWN_OPTION for a key UCX does not know;
 *         UMX_ERR_INVALID_PARAM for a value it refuses; UMX_ERR_SEG_SIZE for
 *         one that UCX takes and should not, of an option or the environment
 *         (then `*bad_option_p` is -1, and a message tells which); it would
 *         damage messages; UMX_ERR_DESCRIPTOR_LIMIT, UMX_ERR_THREAD_LIMIT: UCX
 *         would abort the process; UMX_ERR_NO_MEMORY; what UCX says
 */
UMX_API UMX_MUST_CHECK umx_status
umx_context_create(const umx_context_params *params, umx_context **context_p,
                   int *bad_option_p);

/** Give the reference back; the last one (workers count) frees it. */
UMX_API void umx_context_release(umx_context *context);

/** The limits in force. */
UMX_API const umx_config *umx_context_config(const umx_context *context);

/** Called once per UCX option; `key` without prefix. */
typedef void (*umx_option_fn)(const char *key, const char *value, void *arg);

/**
 * Walk the UCX options that umx_context_create() would use with `params`.
 * Thread: any. Nothing is initialised.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_context_options(const umx_context_params *params, umx_option_fn fn,
                    void *arg, int *bad_option_p);

/** UCX's own description of the context; free() the text. */
UMX_API UMX_MUST_CHECK umx_status
umx_context_info(const umx_context *context, char **text_p);

/**
 * UCX's `ucp_context_h`, for code that also calls UCX. There is another one
 * after networks of the host have come up or gone: this one stays valid as long
 * as workers or registered memory of its time are there.
 */
UMX_API void *umx_context_handle(const umx_context *context);

/** Take a log line. `level`: 0 error, 1 warning, 2 info, 3 debug. */
typedef void (*umx_log_fn)(int level, const char *text, void *arg);

/**
 * Send the lines of libumx and of UCX to `fn` (NULL: standard error). UCX
 * writes to standard output otherwise. `fn` is called from any thread, with
 * UCX's locks held: it must not call libumx. Lines tell of listeners,
 * connections and their ends, of ranks that are waited for or lost, and of what
 * the library has chosen; none of a single message. Control characters are
 * escaped, and lines have at most 1023 bytes. Thread: any.
 */
UMX_API void umx_log_set(umx_log_fn fn, void *arg);

/**
 * Set the highest level of the lines that are made; others cost one comparison.
 * -1: the usual one, which is 3 with a function, and 1 on standard error. Before
 * the first context is created this wins over the variable UCP_LOG_LEVEL of the
 * environment (error, warning, info or debug), which is read then. Thread: any.
 */
UMX_API void umx_log_set_level(int level);

#ifdef __cplusplus
}
#endif
#endif
