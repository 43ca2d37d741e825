/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about outputs of maps: see base/event.h. */
#include "outputs/event.h"

EVENT_DROP(drop_outputs, void, umx_outputs_destroy)
EVENT_DROP(drop_map_writer, umx_outputs_writer, umx_outputs_writer_destroy)
EVENT_DROP(drop_map_reader, umx_outputs_reader, umx_outputs_reader_destroy)
EVENT_DROP(drop_map_fetch, umx_outputs_fetch, umx_outputs_fetch_destroy)
