/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h: one sink for libumx's and UCX's lines; standard error by default.
 * The function that decides an error logs it, once. Thread: any. */
#ifndef UMI_LOG_H
#define UMI_LOG_H

typedef enum umi_log_level {
    UMI_LOG_ERROR,
    UMI_LOG_WARN,
    UMI_LOG_INFO,
    UMI_LOG_DEBUG
} umi_log_level;

typedef void (*umi_log_sink)(int level, const char *text, void *arg);

/* Set where log lines go. NULL: standard error, errors and warnings only. */
void umi_log_set_sink(umi_log_sink sink, void *arg);

void umi_log(umi_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
