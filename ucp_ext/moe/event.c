/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about groups of experts: see base/event.h. */
#include "moe/event.h"

EVENT_DROP(drop_moe, void, umx_moe_destroy)
EVENT_DROP(drop_moe_call, umx_moe_call, umx_moe_call_destroy)
