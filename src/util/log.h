/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h: one sink for libumx's and UCX's lines; standard error by default.
 * The function that decides an error logs it, once. A line above the limit
 * costs one comparison: its text is not made. Control characters, which a peer
 * may have sent, are escaped. Thread: any. */
#ifndef UMI_LOG_H
#define UMI_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

typedef enum umi_log_level {
    UMI_LOG_ERROR,
    UMI_LOG_WARN,
    UMI_LOG_INFO,
    UMI_LOG_DEBUG
} umi_log_level;

typedef void (*umi_log_sink)(int level, const char *text, void *arg);

/* The highest level whose lines are wanted. */
extern atomic_int umi_log_limit;

/* Set where log lines go. NULL: standard error. */
void umi_log_set_sink(umi_log_sink sink, void *arg);

/* Set the highest level; -1: the usual one, which is UMI_LOG_WARN on standard
 * error, and UMI_LOG_DEBUG for a sink. */
void umi_log_set_level(int level);

/* Take the level from a text such as "info", unless umi_log_set_level() has
 * chosen one. False: it is the name
 * of none. */
bool umi_log_name_level(const char *name);

/* True if lines of the level are wanted, for those whose texts take time. */
static inline bool
umi_log_is_on(umi_log_level level)
{
    return __builtin_expect(
        (int)level <=
            atomic_load_explicit(&umi_log_limit, memory_order_relaxed),
        0);
}

#define umi_log(level, ...)                   \
    do {                                      \
        if (umi_log_is_on(level)) {           \
            umi_log_line(level, __VA_ARGS__); \
        }                                     \
    } while (0)

void umi_log_line(umi_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

#endif
