/* SPDX-License-Identifier: BSD-3-Clause */
/* transports.h: lists of transports, as UCX's option TLS has them. Bytes only.
 * Thread: any. */
#ifndef UMI_TRANSPORTS_H
#define UMI_TRANSPORTS_H

#include <stdbool.h>

/* True if the list has tcp in it: "all", "tcp,self", "^shm"; NULL is all. */
bool umi_transports_have_tcp(const char *list);

/* Make the list without sysv, for the caller to free. NULL: sysv is not in it,
 * or nothing else is, or out of memory. */
char *umi_transports_without_sysv(const char *list);

#endif
