/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx has told, and what is to be done about it.
 *
 * Nothing of Python runs inside a callback of libumx: to count a reference down
 * or to allocate an object may run the collector, and with it code of the
 * program's that frees what the callback is about. A callback stores plain
 * fields of the object that it was registered for and links that object's event
 * into the worker's list `told`, once. After libumx has returned the lists are
 * emptied, one event at a time, so that Python in it may call libumx, close the
 * worker, or empty them further:
 *
 *   callback --> told --settle()--> wakes or calls --call()--> the program
 *
 * An event on a list holds no reference: an object takes its event off before
 * it goes. Thread: with the GIL. */
#ifndef UCP_EXT_BASE_EVENT_H
#define UCP_EXT_BASE_EVENT_H

#include "base/compat.h"

#include <umx/umx.h>

typedef struct event event;

typedef struct event_type {
    /* Wherever libumx has been called; appends it to the worker's `wakes` or
     * `calls` where a call is due. */
    void (*settle)(event *self);
    /* In the worker's thread. `is_direct`: by the event loop, no task is
     * running; else Python is called by call_soon(). */
    void (*call)(event *self, bool is_direct);
} event_type;

struct event {
    event            *prev;
    event            *next; /* NULL: on no list */
    const event_type *type;
};

/* A list of events: the head is an event without a type. */
typedef event event_list;

static inline void
event_list_init(event_list *list)
{
    list->prev = list;
    list->next = list;
}

static inline bool
event_list_is_empty(const event_list *list)
{
    return list->next == list;
}

static inline bool
event_is_listed(const event *self)
{
    return self->next != NULL;
}

static inline void
event_append(event_list *list, event *self)
{
    self->prev       = list->prev;
    self->next       = list;
    list->prev->next = self;
    list->prev       = self;
}

static inline void
event_unlink(event *self)
{
    if (event_is_listed(self)) {
        self->prev->next = self->next;
        self->next->prev = self->prev;
        self->next       = NULL;
    }
}

/* Take the first event off; NULL if there is none. */
static inline event *
event_pop(event_list *list)
{
    event *first = list->next;

    if (first == list) {
        return NULL;
    }
    event_unlink(first);
    return first;
}

#define EVENT_OF(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct RequestObject;
struct WorkerObject;
struct EndpointObject;
struct ListenerObject;
struct MessageListenerObject;
struct many_item;
struct am_handler;
struct call;
struct memory_loan;
struct sockaddr;

/* ---- registering with libumx (event.c) ------------------------------------
 */

umx_op_params event_op_params(struct RequestObject *req);
umx_op_params event_item_params(struct many_item *item);

/* Store that the operation of `req` is over, in plain fields. */
void event_mark_done(struct RequestObject *req, umx_status status);
void event_mark_message(struct RequestObject *req, umx_message *message);

/* Store what a receive of a communicator has got. */
void event_mark_comm_status(struct RequestObject  *req,
                            const umx_comm_status *got);

/* Have the new endpoint tell a request to connect of its states. */
void event_watch_connect(umx_connect_params *params, struct RequestObject *req);

/* Have `ep` tell its object of its states; NULL: nobody any more. */
void event_watch_endpoint(umx_ep *ep, struct EndpointObject *endpoint);

/* Have the new listener tell its object; of a peer's close if `is_closable`. */
void event_watch_listener(umx_listener_params *params, struct ListenerObject *o,
                          bool is_closable);

void event_forget_listener(umx_listener *umx);

/* Have the worker tell `handler` of messages of `id`; NULL: they wait for
 * receives. */
umx_status event_watch_am(struct WorkerObject *worker, uint16_t id,
                          struct am_handler *handler);
umx_status event_watch_addressed(struct WorkerObject *worker);
void       event_watch_messages(umx_message_listener_params  *params,
                                struct MessageListenerObject *listener);
void       event_watch_log(bool is_wanted);

/* Lend the memory of `loan` until event_take_freed() returns the loan. */
void event_watch_memory(umx_memh_params *params, struct memory_loan *loan);
struct memory_loan *event_take_freed(void);
bool                event_has_freed(void);

/* Fill `receiver` with the functions of `listener`. */
void event_receive_message(umx_message_receiver         *receiver,
                           struct MessageListenerObject *listener);

/* The owner's thread tells it, of a worker that is open; false: it will not.
 * The call or request is held until then. Any thread. */
bool event_submit_call(struct WorkerObject *worker, struct call *call);
bool event_submit_request(struct WorkerObject  *worker,
                          struct RequestObject *req);

/* Have the owner's thread drop or return an object of libumx; false: the object
 * is leaked. Any thread. */
bool event_drop_message(struct WorkerObject *worker, umx_message *message);
bool event_return_message(struct WorkerObject *worker, umx_message *message);
bool event_return_tag_message(struct WorkerObject *worker,
                              umx_tag_message     *message);
bool event_drop_sender(struct WorkerObject *worker, umx_message_sender *sender);
bool event_drop_comm(struct WorkerObject *worker, umx_comm *comm);
bool event_drop_shuffler(struct WorkerObject *worker, umx_shuffler *shuffler);
bool event_return_comm_message(struct WorkerObject *worker,
                               umx_comm_message    *message);
bool event_drop_listener(struct WorkerObject  *worker,
                         umx_message_listener *listener);

/* Pairs of texts that libumx lists. */
typedef struct text_pairs {
    size_t count;
    size_t len;    /* of `texts` */
    char  *texts;  /* each ends with a zero; of malloc */
    bool   is_cut; /* there was no memory for all */
} text_pairs;

umx_status event_list_transports(const umx_ep *ep, text_pairs *pairs);
umx_status event_list_options(const umx_context_params *params,
                              text_pairs *pairs, int *bad_option_p);

#endif
