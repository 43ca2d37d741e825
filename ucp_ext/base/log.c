/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c: lines of libumx and UCX on their way to Python.
 *
 * They come from any thread, without the GIL and with UCX's locks held, so they
 * only go into a ring; whoever next holds the GIL where the program's code may
 * run delivers them: a worker's callback, which a call schedules that leaves
 * lines, a blocking call, and the end of the interpreter. A full ring drops the
 * newest and says how many.
 *
 * libumx makes lines up to the level of the logger only, which Python may
 * change at any time: so the level is asked for at each worker's callback,
 * though not more often than every 50 ms or so, and in log_catch_up(). */
#include "base/log.h"

#include "base/event.h"
#include "base/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    RING_SIZE = 1 << 20, /* bytes: memory is used for lines that wait */
    LINE_SIZE = 1024,
};

/* About 50 ms in units of coarse_now(): processors count 2 to 4 cycles in a
 * nanosecond. */
#ifdef __x86_64__
#define LOOK_TICKS (UINT64_C(1) << 27)
#else
#define LOOK_TICKS 50
#endif

typedef struct line_head {
    uint16_t len;
    uint16_t level;
} line_head;

static struct {
    pthread_mutex_t lock;
    size_t          first; /* both count bytes, and only grow */
    size_t          end;
    unsigned        dropped;
    char            bytes[RING_SIZE];
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

atomic_uint log_num_lines; /* in the ring */

/* ---- the ring -----------------------------------------------------------
 */

static void
copy_in(const void *data, size_t len)
{
    size_t at    = ring.end % RING_SIZE;
    size_t first = (len < RING_SIZE - at) ? len : RING_SIZE - at;

    memcpy(ring.bytes + at, data, first);
    memcpy(ring.bytes, (const char *)data + first, len - first);
    ring.end += len;
}

static void
copy_out(void *data, size_t len)
{
    size_t at    = ring.first % RING_SIZE;
    size_t first = (len < RING_SIZE - at) ? len : RING_SIZE - at;

    memcpy(data, ring.bytes + at, first);
    memcpy((char *)data + first, ring.bytes, len - first);
    ring.first += len;
}

void
log_put(int level, const char *text)
{
    line_head head = {.len   = (uint16_t)strnlen(text, LINE_SIZE - 1),
                      .level = (uint16_t)level};

    pthread_mutex_lock(&ring.lock);
    if (ring.end - ring.first + sizeof(head) + head.len > RING_SIZE) {
        ring.dropped++;
    } else {
        copy_in(&head, sizeof(head));
        copy_in(text, head.len);
        log_num_lines++;
    }
    pthread_mutex_unlock(&ring.lock);
}

static bool
get_line(int *level_p, char *text, unsigned *dropped_p)
{
    line_head head;
    bool      is_line;

    pthread_mutex_lock(&ring.lock);
    is_line = (log_num_lines != 0);
    if (is_line) {
        copy_out(&head, sizeof(head));
        copy_out(text, head.len);
        text[head.len] = '\0';
        *level_p       = head.level;
        log_num_lines--;
    }
    *dropped_p   = ring.dropped;
    ring.dropped = 0;
    pthread_mutex_unlock(&ring.lock);
    return is_line;
}

/* ---- fork() -------------------------------------------------------------
 *
 * The parent delivers the lines that it has; another thread of it may have been
 * in log_put(). */

static void
before_fork(void)
{
    pthread_mutex_lock(&ring.lock);
}

static void
after_fork(void)
{
    pthread_mutex_unlock(&ring.lock);
}

static void
after_fork_in_child(void)
{
    ring.first    = ring.end;
    log_num_lines = 0;
    ring.dropped  = 0;
    pthread_mutex_unlock(&ring.lock);
}

static void
watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- the program's functions -------------------------------------------
 */

/* A function of the program has raised, which the caller has not asked for. */
static void
get_over(PyObject *function)
{
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        /* It is not for the function: it comes again outside of this call. */
        PyErr_Clear();
        PyErr_SetInterrupt();
    } else {
        PyErr_WriteUnraisable(function);
    }
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
    if (result == NULL) {
        get_over(handler);
    }
    Py_XDECREF(result);
    Py_DECREF(handler);
}

/* Deliver what has come so far: the handler may cause more. */
static void
deliver(mod_state *st)
{
    unsigned num_lines = log_num_lines, dropped;
    int      level;
    char     text[LINE_SIZE];

    while (num_lines-- > 0 && get_line(&level, text, &dropped)) {
        call_handler(st, level, text);
        if (dropped != 0) {
            snprintf(text, sizeof(text), "%u lines were dropped", dropped);
            call_handler(st, 1, text);
        }
    }
}

void
log_deliver(mod_state *st)
{
    PyObject *exc;

    if (LIKELY(!log_is_due()) || st->log_handler == NULL) {
        return;
    }
    exc = PyErr_GetRaisedException();
    deliver(st);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* ---- the level ----------------------------------------------------------
 */

static void
look(mod_state *st)
{
    PyObject *get    = Py_NewRef(st->log_get_level);
    PyObject *result = PyObject_CallNoArgs(get);
    long      level  = (result != NULL) ? PyLong_AsLong(result) : -1;

    if (PyErr_Occurred()) {
        get_over(get);
    } else {
        umx_log_set_level((int)level);
    }
    Py_XDECREF(result);
    Py_DECREF(get);
}

/* Give a time that costs little: cycles, or milliseconds. */
static inline uint64_t
coarse_now(void)
{
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
#endif
}

static NOINLINE void
look_again(mod_state *st)
{
    PyObject *exc = PyErr_GetRaisedException();

    if (st->log_get_level != NULL) {
        look(st);
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

void
log_follow(mod_state *st)
{
    uint64_t now = coarse_now();

    if (UNLIKELY(now - st->log_looked >= LOOK_TICKS)) {
        st->log_looked = now;
        look_again(st);
    }
}

/* ---- functions of the module --------------------------------------------
 */

const char log_set_handler_doc[] =
    "set_log_handler(handler, get_level=None, /)\n--\n\n"
    "Call handler(level, text) for each line that libumx and UCX\n"
    "log; levels: 0 error, 1 warning, 2 info, 3 debug. get_level()\n"
    "gives the highest level that is wanted, and is asked now and\n"
    "then; None: all. A handler of None: lines go to standard error.";

PyObject *
log_set_handler(PyObject *module, PyObject *args)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    mod_state *st = PyModule_GetState(module);
    PyObject  *handler, *get_level = Py_None;

    if (!PyArg_ParseTuple(args, "O|O:set_log_handler", &handler, &get_level)) {
        return NULL;
    }
    if (handler == Py_None) {
        event_watch_log(false);
        log_deliver(st);
        Py_CLEAR(st->log_handler);
        Py_CLEAR(st->log_get_level);
        Py_RETURN_NONE;
    }
    if (!PyCallable_Check(handler)) {
        PyErr_Format(PyExc_TypeError,
                     "the handler must be callable or None, not %.200s",
                     Py_TYPE(handler)->tp_name);
        return NULL;
    }
    pthread_once(&once, watch_forks);
    Py_XSETREF(st->log_handler, Py_NewRef(handler));
    Py_XSETREF(st->log_get_level,
               (get_level == Py_None) ? NULL : Py_NewRef(get_level));
    event_watch_log(true);
    if (st->log_get_level != NULL) {
        look(st);
    }
    Py_RETURN_NONE;
}

const char log_catch_up_doc[] =
    "log_catch_up()\n--\n\n"
    "Read the level of the logger, and deliver the lines that wait.";

PyObject *
log_catch_up(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    mod_state *st = PyModule_GetState(module);

    if (st->log_get_level != NULL) {
        look(st);
    }
    log_deliver(st);
    Py_RETURN_NONE;
}
