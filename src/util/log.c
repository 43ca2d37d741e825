/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "util/lines.h"

static const char *const names[] = {
    [UMI_LOG_ERROR] = "error",
    [UMI_LOG_WARN]  = "warning",
    [UMI_LOG_INFO]  = "info",
    [UMI_LOG_DEBUG] = "debug",
};

typedef struct log_target {
    umi_log_sink sink;
    void        *arg;
} log_target;

/* The lock keeps sink, arg and level together. The sink is called without it:
 * it may log, or set another sink. */
static pthread_mutex_t target_lock = PTHREAD_MUTEX_INITIALIZER;
static log_target      target;
static int             chosen = -1;

atomic_int umi_log_limit = UMI_LOG_WARN;

static void
update_limit(void)
{
    int limit = chosen;

    if (limit < 0) {
        limit = (target.sink != NULL) ? UMI_LOG_DEBUG : UMI_LOG_WARN;
    }
    atomic_store_explicit(&umi_log_limit, limit, memory_order_relaxed);
}

void
umi_log_set_sink(umi_log_sink sink, void *arg)
{
    pthread_mutex_lock(&target_lock);
    target = (log_target){sink, arg};
    update_limit();
    pthread_mutex_unlock(&target_lock);
}

void
umi_log_set_level(int level)
{
    pthread_mutex_lock(&target_lock);
    chosen = (level < UMI_LOG_DEBUG) ? level : UMI_LOG_DEBUG;
    update_limit();
    pthread_mutex_unlock(&target_lock);
}

static bool
is_chosen(void)
{
    bool is;

    pthread_mutex_lock(&target_lock);
    is = (chosen >= 0);
    pthread_mutex_unlock(&target_lock);
    return is;
}

bool
umi_log_name_level(const char *name)
{
    if (is_chosen()) {
        return true;
    }
    for (int level = UMI_LOG_ERROR; level <= UMI_LOG_DEBUG; level++) {
        if (strcasecmp(name, names[level]) == 0) {
            umi_log_set_level(level);
            return true;
        }
    }
    return false;
}

static log_target
get_target(void)
{
    log_target copy;

    pthread_mutex_lock(&target_lock);
    copy = target;
    pthread_mutex_unlock(&target_lock);
    return copy;
}

/* The default sink. One call, so that lines of threads do not mix. */
static void
write_to_stderr(umi_log_level level, const char *text)
{
    fprintf(stderr, "libumx: %s: %s\n", names[level], text);
}

void
umi_log_line(umi_log_level level, const char *format, ...)
{
    int        saved_errno = errno;
    log_target to          = get_target();
    char       text[UMI_LINES_MAX];
    va_list    args;

    va_start(args, format);
    umi_lines_format(text, sizeof(text), format, args);
    va_end(args);
    if (to.sink != NULL) {
        to.sink((int)level, text, to.arg);
    } else {
        write_to_stderr(level, text);
    }
    errno = saved_errno;
}
