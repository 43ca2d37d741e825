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
 * it goes.
 *
 * The callbacks are in files called event.c, one in a room, in which nothing
 * counts a reference, allocates an object or calls Python;
 * test_layers_ext.py keeps that. Thread: with the GIL; a callback that
 * libumx calls without it says so. */
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

/* ---- event.c ---- */

/* Have log lines given to log_put(), or to nobody. */
void event_watch_log(bool is_wanted);

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
