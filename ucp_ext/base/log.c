/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c: lines of libumx and UCX on their way to Python.
 *
 * They come from any thread, without the GIL and with UCX's locks held, so they
 * only go into a ring; whoever next holds the GIL in a worker's callback
 * delivers them. A full ring drops the newest and says how many. */
#include "base/log.h"

#include "base/event.h"
#include "base/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    MAX_LINES = 64,
    LINE_SIZE = 512
};

typedef struct log_line {
    int  level;
    char text[LINE_SIZE];
} log_line;

static struct {
    pthread_mutex_t lock;
    log_line        lines[MAX_LINES];
    unsigned        first;
    unsigned        dropped;
    atomic_uint     count;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
log_put(int level, const char *text)
{
    pthread_mutex_lock(&ring.lock);
    if (ring.count == MAX_LINES) {
        ring.dropped++;
    } else {
        log_line *line = &ring.lines[(ring.first + ring.count) % MAX_LINES];

        line->level = level;
        strncpy(line->text, text, LINE_SIZE - 1);
        line->text[LINE_SIZE - 1] = '\0';
        ring.count++;
    }
    pthread_mutex_unlock(&ring.lock);
}

static bool
get_line(log_line *line, unsigned *dropped_p)
{
    bool is_line;

    pthread_mutex_lock(&ring.lock);
    is_line = (ring.count != 0);
    if (is_line) {
        *line      = ring.lines[ring.first];
        ring.first = (ring.first + 1) % MAX_LINES;
        ring.count--;
    }
    *dropped_p   = ring.dropped;
    ring.dropped = 0;
    pthread_mutex_unlock(&ring.lock);
    return is_line;
}

static void
call_handler(mod_state *st, int level, const char *text)
{
    PyObject *result, *handler;

    if (st->log_handler == NULL) {
        return;
    }
    handler = Py_NewRef(st->log_handler);
    /* A peer's words may be in it: not all bytes are UTF-8. */
    result = PyObject_CallFunction(
        handler, "iN", level,
        PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"));
    if (result == NULL && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        /* It is not for the handler: it comes again outside of this call. */
        PyErr_Clear();
        PyErr_SetInterrupt();
    } else if (result == NULL) {
        PyErr_WriteUnraisable(handler);
    }
    Py_XDECREF(result);
    Py_DECREF(handler);
}

void
log_deliver(mod_state *st)
{
    log_line  line;
    unsigned  dropped;
    PyObject *exc;

    if (LIKELY(atomic_load_explicit(&ring.count, memory_order_relaxed) == 0)) {
        return;
    }
    exc = PyErr_GetRaisedException();
    while (get_line(&line, &dropped)) {
        call_handler(st, line.level, line.text);
        if (dropped != 0) {
            snprintf(line.text, LINE_SIZE, "%u lines were dropped", dropped);
            call_handler(st, 1, line.text);
        }
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

PyObject *
log_set_handler(PyObject *module, PyObject *handler)
{
    mod_state *st = PyModule_GetState(module);

    if (handler == Py_None) {
        event_watch_log(false);
        Py_CLEAR(st->log_handler);
        Py_RETURN_NONE;
    }
    if (!PyCallable_Check(handler)) {
        PyErr_Format(PyExc_TypeError,
                     "the handler must be callable or None, not %.200s",
                     Py_TYPE(handler)->tp_name);
        return NULL;
    }
    Py_XSETREF(st->log_handler, Py_NewRef(handler));
    event_watch_log(true);
    Py_RETURN_NONE;
}
