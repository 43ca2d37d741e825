/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about proxies. */
#ifndef UCP_EXT_PROXY_EVENT_H
#define UCP_EXT_PROXY_EVENT_H

#include "request/event.h"

#include <umx/proxy.h>

bool event_drop_proxy(WorkerObject *worker, void *umx);

#endif
