/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES 1024

typedef struct log_target {
    umi_log_sink sink;
    void        *arg;
} log_target;

/* The lock keeps sink and arg together. The sink is called without it: it may
 * log, or set another sink. */
static pthread_mutex_t target_lock = PTHREAD_MUTEX_INITIALIZER;
static log_target      target;

void
umi_log_set_sink(umi_log_sink sink, void *arg)
{
    pthread_mutex_lock(&target_lock);
    target = (log_target){sink, arg};
    pthread_mutex_unlock(&target_lock);
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
    fprintf(stderr, "libumx: %s: %s\n",
            (level == UMI_LOG_ERROR) ? "error" : "warning", text);
}

void
umi_log(umi_log_level level, const char *format, ...)
{
    static const char cut[] = "...";

    int        saved_errno = errno;
    log_target to          = get_target();
    char       text[LINE_MAX_BYTES];
    va_list    args;
    int        len;

    if (to.sink == NULL && level > UMI_LOG_WARN) {
        return;
    }

    va_start(args, format);
    len = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (len < 0) {
        text[0] = '\0';
    } else if ((size_t)len >= sizeof(text)) {
        memcpy(text + sizeof(text) - sizeof(cut), cut, sizeof(cut));
    }

    if (to.sink != NULL) {
        to.sink((int)level, text, to.arg);
    } else {
        write_to_stderr(level, text);
    }
    errno = saved_errno;
}
