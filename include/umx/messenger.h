/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file messenger.h  Messages with metadata, to several endpoints at once.
 *
 * A message is a small dictionary and any number of buffers. The sender packs
 * small messages together, and bounds how much is under way; the listener asks
 * the program, by the dictionary, where the buffers of each message are to go.
 * Nothing is acknowledged. Both use one channel of frames (umx/frames.h), where
 * no other message may be sent. Thread: the worker's owner.
 */
#ifndef UMX_MESSENGER_H
#define UMX_MESSENGER_H

#include <string.h>
#include <umx/frames.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UMX_METADATA_MAX       = 65535, /* bytes, encoded */
    UMX_METADATA_ITEMS_MAX = 256,
    UMX_METADATA_KEY_MAX   = 255,  /* bytes */
    UMX_MESSAGE_CHANNEL    = 65535 /* unless another is asked for */
};

/* ---- metadata ------------------------------------------------------------
 */

typedef enum umx_metadata_type {
    UMX_METADATA_STR,  /* UTF-8 */
    UMX_METADATA_INT,  /* 64 bits, signed */
    UMX_METADATA_BYTES
} umx_metadata_type;

typedef struct umx_metadata_item {
    const char       *key; /* UTF-8, no terminating zero */
    size_t            key_len;
    umx_metadata_type type;
    int64_t           number; /* INT */
    const void       *data;   /* STR and BYTES */
    size_t            len;
} umx_metadata_item;

/** A dictionary, encoded. Zeros: an empty one. */
typedef struct umx_metadata {
    const void *data;
    size_t      len; /* bytes */
} umx_metadata;

/**
 * A builder of metadata. The members are the library's but for `metadata`,
 * which is what there is so far. Thread: one at a time.
 */
typedef struct umx_metadata_builder {
    umx_metadata metadata;
    uint8_t     *memory; /* `few`, or of malloc */
    size_t       capacity;
    size_t       count;
    uint8_t      few[256];
} umx_metadata_builder;

/** Begin with an empty dictionary; umx_metadata_fini() frees its memory. */
UMX_API void umx_metadata_init(umx_metadata_builder *builder);
/** Free the memory of the dictionary. */
UMX_API void umx_metadata_fini(umx_metadata_builder *builder);

/**
 * Add a copy of `item`.
 * @return UMX_OK; UMX_ERR_ALREADY_EXISTS: it has that key;
 *         UMX_ERR_OUT_OF_RANGE: too many, or too long; UMX_ERR_INVALID_PARAM:
 *         no UTF-8, no key, no such type; UMX_ERR_NO_MEMORY. What was added
 *         before stays.
 */
UMX_API UMX_MUST_CHECK umx_status umx_metadata_add(
    umx_metadata_builder *builder, const umx_metadata_item *item);

static inline UMX_MUST_CHECK umx_status
umx_metadata_add_str(umx_metadata_builder *builder, const char *key,
                     const char *text)
{
    umx_metadata_item item = {key, strlen(key), UMX_METADATA_STR,
                              0,   text,        strlen(text)};

    return umx_metadata_add(builder, &item);
}

static inline UMX_MUST_CHECK umx_status
umx_metadata_add_int(umx_metadata_builder *builder, const char *key,
                     int64_t number)
{
    umx_metadata_item item = {key,    strlen(key), UMX_METADATA_INT,
                              number, NULL,        0};

    return umx_metadata_add(builder, &item);
}

static inline UMX_MUST_CHECK umx_status
umx_metadata_add_bytes(umx_metadata_builder *builder, const char *key,
                       const void *data, size_t len)
{
    umx_metadata_item item = {key, strlen(key), UMX_METADATA_BYTES,
                              0,   data,        len};

    return umx_metadata_add(builder, &item);
}

/**
 * True if `metadata` is well formed; what a listener or a builder gives is.
 * Thread: any.
 */
UMX_API bool umx_metadata_is_valid(const umx_metadata *metadata);

/** The item at `*pos_p`, which moves on; 0 is the first. False: there are no
 * more. `metadata` must be valid. Thread: any. */
UMX_API bool umx_metadata_next(const umx_metadata *metadata, size_t *pos_p,
                               umx_metadata_item *item);

/** The item of that key. False: there is none. As above. */
UMX_API bool umx_metadata_find(const umx_metadata *metadata, const char *key,
                               size_t key_len, umx_metadata_item *item);

/* ---- sending -------------------------------------------------------------
 */

typedef struct umx_message_sender umx_message_sender;

enum umx_message_sender_field {
    UMX_MESSAGE_SENDER_FIELD_MAX_BYTES = 1u << 0, /* absent: 64 MiB */
    UMX_MESSAGE_SENDER_FIELD_CHANNEL   = 1u << 1  /* absent:
                                                     UMX_MESSAGE_CHANNEL */
};

typedef struct umx_message_sender_params {
    uint64_t field_mask;
    uint64_t max_bytes; /* sent and not complete, of all endpoints together */
    uint16_t channel;
} umx_message_sender_params;

/** Create a sender for endpoints of `worker`. `params` may be NULL. */
UMX_API UMX_MUST_CHECK umx_status umx_message_sender_create(
    umx_worker *worker, const umx_message_sender_params *params,
    umx_message_sender **sender_p);

/**
 * Give a sender back. What it was given still goes out, in the background, and
 * requests complete as ever.
 */
UMX_API void umx_message_sender_destroy(umx_message_sender *sender);

typedef struct umx_message_out {
    umx_ep *const    *endpoints;
    size_t            num_endpoints;
    umx_metadata      metadata;
    const umx_buffer *buffers;
    size_t            num_buffers;
    umx_status *statuses; /* one for each endpoint, as it ends; lent like the
                             buffers' memory; or NULL */
} umx_message_out;

/**
 * Send the same message to each endpoint; without copies of its own if it is
 * longer than a small one, of 4 KiB. Arrays are read during the call only, the
 * memory of the buffers is lent until completion: when it is over for all
 * endpoints. Messages to one endpoint arrive in the order of these calls.
 *
 * A small message in host memory is copied, and complete at once. It goes out
 * with others of its endpoint when the worker next makes progress, the endpoint
 * is flushed, drained or closed, or umx_message_sender_flush() is called.
 *
 * What would have more than `max_bytes` under way waits, and with it all that
 * comes after; a message that is longer goes when nothing else is. Closing an
 * endpoint hands over what waits for it.
 *
 * Cancelling withdraws a message that waits, and from the endpoints that it has
 * not been posted to (see umx_frames_send()).
 *
 * @return UMX_OK; UMX_INPROGRESS; UMX_ERR_INVALID_PARAM: no endpoint, one of
 *         another worker, or metadata that is not valid; UMX_ERR_CLOSED: the
 *         worker is gone; UMX_ERR_NO_MEMORY; else the first failure of an
 *         endpoint, as of umx_frames_send(): to others it has been sent
 */
UMX_API UMX_MUST_CHECK umx_status umx_message_send(
    umx_message_sender *sender, const umx_message_out *message,
    const umx_op_params *params, umx_request **req_p);

/** Hand over small messages now. */
UMX_API void umx_message_sender_flush(umx_message_sender *sender);

/** Flush, and complete when all that was sent before is complete.
 * @return UMX_OK: it is; UMX_INPROGRESS; UMX_ERR_CLOSED; UMX_ERR_NO_MEMORY */
UMX_API UMX_MUST_CHECK umx_status umx_message_sender_drain(
    umx_message_sender *sender, const umx_op_params *params,
    umx_request **req_p);

typedef struct umx_message_sender_stats {
    uint64_t bytes_pending; /* under way; at most `max_bytes`, but for what is
                               said above */
    uint64_t bytes_peak;
    uint64_t num_waiting;   /* messages */
    uint64_t num_packed;    /* small messages, once for each endpoint */
    uint64_t num_packs;     /* that these went in */
} umx_message_sender_stats;

/** Fill in what the sender has counted so far. */
UMX_API void umx_message_sender_query(const umx_message_sender *sender,
                                      umx_message_sender_stats *stats);

/* ---- receiving -----------------------------------------------------------
 */

typedef struct umx_message_listener umx_message_listener;

/** The receiver of one message: where it goes. */
typedef struct umx_message_receiver {
    /* Fill `buffers`, one for each of `info->count` and at least as long;
     * `info->header` is the metadata. A failure is finish()'s. */
    umx_status (*alloc)(const umx_frames_info *info, umx_buffer *buffers,
                        void *arg);
    /* The end, once. UMX_OK: they are filled. None, if there was no memory. */
    void (*finish)(const umx_buffer *buffers, size_t count, umx_status status,
                   void *arg);
    void *arg;
} umx_message_receiver;

/** Fill `receiver` for a message of this metadata, valid during the call. False:
 * nobody wants it; its bytes are dropped, where they are if they are long. */
typedef bool (*umx_message_route_fn)(const umx_metadata   *metadata,
                                     umx_message_receiver *receiver, void *arg);

/**
 * Hear, once, that the listener is over: UMX_ERR_PROTOCOL: the peer sent what
 * is no message, and the endpoint was aborted; UMX_ERR_CANCELED: stopped; else
 * why the endpoint ended.
 */
typedef void (*umx_message_end_fn)(umx_message_listener *listener,
                                   umx_status status, void *arg);
typedef void (*umx_message_ready_fn)(umx_message_listener *listener, void *arg);

enum umx_message_listener_field {
    UMX_MESSAGE_LISTENER_FIELD_CHANNEL  = 1u << 0, /* absent:
                                                      UMX_MESSAGE_CHANNEL */
    UMX_MESSAGE_LISTENER_FIELD_ON_END   = 1u << 1, /* absent: nobody is told */
    UMX_MESSAGE_LISTENER_FIELD_ON_READY = 1u << 2  /* absent: it runs by itself
                                                    */
};

typedef struct umx_message_listener_params {
    uint64_t             field_mask;
    umx_message_route_fn route;
    void                *arg; /* of route, on_end and on_ready */
    uint16_t             channel;
    umx_message_end_fn   on_end;
    /* Hear that there is something to do for umx_message_listener_run(), which
     * the program calls when it likes; the other callbacks run inside that call
     * only. */
    umx_message_ready_fn on_ready;
} umx_message_listener_params;

/**
 * Hand out the messages that senders of the peer send to `ep`, one after the
 * other, in their order. Callbacks run in (P) calls, and may call anything but
 * these.
 * @return UMX_OK; UMX_ERR_INVALID_PARAM: no route; UMX_ERR_CLOSED: the worker is
 *         gone; UMX_ERR_NO_MEMORY. Whatever the endpoint's state: on_end tells.
 */
UMX_API UMX_MUST_CHECK umx_status umx_message_listener_create(
    umx_ep *ep, const umx_message_listener_params *params,
    umx_message_listener **listener_p);

/**
 * Hand out at most `max` messages that are at hand; for listeners with
 * `on_ready`. Not from a callback.
 * @return UMX_OK: no more are, on_ready will tell; UMX_INPROGRESS: some may be
 */
UMX_API umx_status umx_message_listener_run(umx_message_listener *listener,
                                            unsigned              max);

/** Hand out no more; what has been received and not handed out returns to its
 * queue, but the rest of a pack of small ones, which is lost. on_end follows, in
 * this call or later. */
UMX_API void umx_message_listener_stop(umx_message_listener *listener);

/**
 * Stop a listener and give it back. on_end is not called any more; finish() of
 * a message whose bytes are coming is, with UMX_ERR_CANCELED, in a (P) call.
 */
UMX_API void umx_message_listener_destroy(umx_message_listener *listener);

/** Tell what was wrong with what the peer sent; NULL: nothing. */
UMX_API const char *
umx_message_listener_reason(const umx_message_listener *listener);

#ifdef __cplusplus
}
#endif
#endif
