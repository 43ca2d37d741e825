/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about proxies: see base/event.h. */
#include "proxy/event.h"

EVENT_DROP(drop_proxy, void, umx_proxy_destroy)
