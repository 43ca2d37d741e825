/* SPDX-License-Identifier: BSD-3-Clause */
/* fail.c: what each call begins with: it is counted, and may fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin/internal.h"

enum {
    MAX_RULES = 16,
    MAX_NAMES = 192,
    MAX_NAME  = 48
};

typedef struct rule {
    char     name[MAX_NAME]; /* "": none */
    int      result;
    unsigned at; /* calls from now on; 0: each */
} rule;

typedef struct called {
    char     name[MAX_NAME];
    unsigned count;
} called;

int           standin_sticky;
bool          standin_is_initialized;
standin_state standin;

static rule   rules[MAX_RULES];
static called names[MAX_NAMES];
static bool   is_forked; /* a child of a process that had initialized it */

/* ---- errors --------------------------------------------------------------
 */

static const struct {
    int         result;
    const char *name, *text;
} errors[] = {
#define ERROR(number, name, text)        \
    {                                    \
        number, "CUDA_ERROR_" name, text \
    }
    {0, "CUDA_SUCCESS", "no error"},
    ERROR(1, "INVALID_VALUE", "invalid argument"),
    ERROR(2, "OUT_OF_MEMORY", "out of memory"),
    ERROR(3, "NOT_INITIALIZED", "initialization error"),
    ERROR(4, "DEINITIALIZED", "driver shutting down"),
    ERROR(100, "NO_DEVICE", "no CUDA-capable device is detected"),
    ERROR(101, "INVALID_DEVICE", "invalid device ordinal"),
    ERROR(201, "INVALID_CONTEXT", "invalid device context"),
    ERROR(205, "MAP_FAILED", "mapping of buffer object failed"),
    ERROR(217, "PEER_ACCESS_UNSUPPORTED",
          "peer access is not supported between these two devices"),
    ERROR(304, "OPERATING_SYSTEM", "OS call failed or operation not supported"),
    ERROR(400, "INVALID_HANDLE", "invalid resource handle"),
    ERROR(401, "ILLEGAL_STATE",
          "the operation cannot be performed in the present state"),
    ERROR(500, "NOT_FOUND", "named symbol not found"),
    ERROR(600, "NOT_READY", "device not ready"),
    ERROR(700, "ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    ERROR(702, "LAUNCH_TIMEOUT", "the launch timed out and was terminated"),
    ERROR(709, "CONTEXT_IS_DESTROYED", "context is destroyed"),
    ERROR(710, "ASSERT", "device-side assert triggered"),
    ERROR(712, "HOST_MEMORY_ALREADY_REGISTERED",
          "part or all of the requested memory range is already mapped"),
    ERROR(713, "HOST_MEMORY_NOT_REGISTERED",
          "pointer does not correspond to a registered memory region"),
    ERROR(719, "LAUNCH_FAILED", "unspecified launch failure"),
    ERROR(801, "NOT_SUPPORTED", "operation not supported"),
    ERROR(900, "STREAM_CAPTURE_UNSUPPORTED",
          "operation not permitted when stream is capturing"),
    ERROR(901, "STREAM_CAPTURE_INVALIDATED",
          "operation failed due to a previous error during capture"),
    ERROR(906, "STREAM_CAPTURE_IMPLICIT",
          "operation would make the legacy stream depend on a capturing "
          "blocking stream"),
    ERROR(999, "UNKNOWN", "unknown error"),
#undef ERROR
};

static int
find_error(int result, const char **name_p, const char **text_p)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        if (errors[i].result == result) {
            *name_p = errors[i].name;
            *text_p = errors[i].text;
            return OK;
        }
    }
    *name_p = *text_p = NULL;
    return INVALID_VALUE;
}

int
cuGetErrorName(int result, const char **name_p)
{
    const char *text;

    return find_error(result, name_p, &text);
}

int
cuGetErrorString(int result, const char **text_p)
{
    const char *name;

    return find_error(result, &name, text_p);
}

/* Errors after which a process has to end: "the context cannot be used". */
static bool
stays(int result)
{
    return result == 700 || result == 702 || result == 710 ||
           (result >= 714 && result <= 719);
}

/* ---- calls ---------------------------------------------------------------
 */

static void
count(const char *name)
{
    int i = 0;

    while (names[i].name[0] != '\0' && strcmp(names[i].name, name) != 0) {
        if (++i == MAX_NAMES) {
            abort();
        }
    }
    if (names[i].count++ == 0) {
        snprintf(names[i].name, MAX_NAME, "%s", name);
    }
}

int
standin_next(const char *name)
{
    int result = OK;

    for (int i = 0; i < MAX_RULES; i++) {
        rule *r = &rules[i];

        if (strcmp(r->name, name) != 0) {
            continue;
        }
        if (r->at == 0) {
            result = r->result;
        } else if (--r->at == 0) {
            result     = r->result;
            r->name[0] = '\0';
        }
    }
    return result;
}

static int
begin(const char *name, unsigned what)
{
    int result;

    count(name);
    if (standin_set.is_logging) {
        fprintf(stderr, "standin %d: %s\n", getpid(), name);
    }
    if (standin_sticky != OK && !(what & TOLERANT)) {
        return standin_sticky;
    }
    result = standin_next(name);
    if (stays(result)) {
        standin_sticky = result;
        standin_wake();
    }
    if (result != OK) {
        return result;
    }
    if (!standin_is_initialized && !(what & EARLY)) {
        return NOT_INITIALIZED;
    }
    if (what & CONTEXT) {
        cu_context *context = standin_context();

        if (context == NULL || context->is_destroyed) {
            return context == NULL ? INVALID_CONTEXT : CONTEXT_DESTROYED;
        }
    }
    return (what & UNSAFE) ? standin_check_capture() : OK;
}

int
standin_enter(const char *name, unsigned what)
{
    int result;

    if (is_forked) {
        return NOT_INITIALIZED;
    }
    standin_acquire();
    result = begin(name, what);
    if (result != OK) {
        standin_release_lock();
    }
    return result;
}

int
standin_leave(int result)
{
    standin_release_lock();
    return result;
}

static void
on_fork(void)
{
    is_forked = is_forked || standin_is_initialized;
}

/* ---- for tests -----------------------------------------------------------
 */

void
standin_fail(const char *name, int result, unsigned at)
{
    int free_rule = -1;

    standin_acquire();
    for (int i = 0; i < MAX_RULES; i++) {
        if (name == NULL ||
            (result == OK && strcmp(rules[i].name, name) == 0)) {
            rules[i].name[0] = '\0';
        }
        if (rules[i].name[0] == '\0') {
            free_rule = i;
        }
    }
    if (name != NULL && result != OK) {
        if (free_rule < 0) {
            abort();
        }
        snprintf(rules[free_rule].name, MAX_NAME, "%s", name);
        rules[free_rule].result = result;
        rules[free_rule].at     = at;
    }
    standin_release_lock();
}

unsigned
standin_num_calls(const char *name)
{
    unsigned found = 0;

    standin_acquire();
    for (int i = 0; i < MAX_NAMES && names[i].name[0] != '\0'; i++) {
        if (strcmp(names[i].name, name) == 0) {
            found = names[i].count;
        }
    }
    standin_release_lock();
    return found;
}

const char *
standin_called(unsigned i, unsigned *count_p)
{
    const char *name = NULL;

    standin_acquire();
    if (i < MAX_NAMES && names[i].name[0] != '\0') {
        name     = names[i].name;
        *count_p = names[i].count;
    }
    standin_release_lock();
    return name;
}

/* "F:E:K,F:E:K". */
static void
read_rules(const char *text)
{
    char     name[MAX_NAME];
    int      result, len;
    unsigned at;

    while (sscanf(text, "%47[^:]:%d:%u%n", name, &result, &at, &len) == 3) {
        standin_fail(name, result, at);
        text += len;
        text += (*text == ',');
    }
}

__attribute__((constructor)) static void
load(void)
{
    const char *text = getenv("STANDIN_FAIL");

    if (text != NULL) {
        read_rules(text);
    }
    standin_set.is_logging = getenv("STANDIN_LOG") != NULL;
    pthread_atfork(NULL, NULL, on_fork);
}

static void
forget_added(void)
{
    const range *r = standin_ranges();

    while (r != NULL) {
        const range *next = r->next;

        if (r->kind == KIND_ADDED) {
            standin_drop(r->at, KIND_ADDED);
        }
        r = next;
    }
}

void
standin_reset(void)
{
    standin_fail(NULL, OK, 0);
    standin_set_speed(0, 0);
    standin_hold(false);
    standin_acquire();
    standin_sticky = OK;
    standin_forget_copying();
    memset(names, 0, sizeof(names));
    forget_added();
    standin = (standin_state){0};
    standin_release_lock();
}
