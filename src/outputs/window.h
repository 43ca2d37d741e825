/* SPDX-License-Identifier: BSD-3-Clause */
/* window.h: parts of this rank's files that ranks of other hosts read. */
#ifndef UMI_OUTPUTS_WINDOW_H
#define UMI_OUTPUTS_WINDOW_H

#include "outputs/outputs.h"
#include "outputs/wire.h"

umx_status umi_outputs_windows_new(umx_outputs              *outputs,
                                   const umx_outputs_params *params,
                                   umi_outputs_windows     **windows_p);

/* Unmap all, and answer nobody any more. */
void umi_outputs_windows_end(umi_outputs_windows *windows);
void umi_outputs_windows_free(umi_outputs_windows *windows);

void umi_outputs_windows_query(umi_outputs_windows *windows, size_t *now_p,
                               size_t *most_p);

/* Bytes of a window; of files that are read here, too. */
uint64_t umi_outputs_window_size(const umx_outputs *outputs);

/* Messages of other ranks. */
void umi_outputs_on_ask(umx_outputs               *outputs,
                        const umi_outputs_message *message);
void umi_outputs_on_return(umx_outputs               *outputs,
                           const umi_outputs_message *message);

#endif
