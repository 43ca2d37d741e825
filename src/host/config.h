/* SPDX-License-Identifier: BSD-3-Clause */
/* config.h: the UCX settings that libumx chooses. See config.c for reasons. */
#ifndef UMI_CONFIG_H
#define UMI_CONFIG_H

#include <ucp/api/ucp.h>
#include <umx/context.h>

enum {
    UMI_TOKEN_MAX = 256
};

/* Read UCX's environment and apply, weakest first: libumx's settings, the
 * environment, `params->options` (the last two change places with
 * UMX_CONTEXT_FLAG_ENV_FIRST). The caller releases `*config_p`. */
umx_status umi_config_read(const umx_context_params *params,
                           ucp_config_t **config_p, int *bad_option_p);

/* The value that the program, or the environment, gives an option of UCX; NULL:
 * neither. `*option_p` is its index in `params->options`, or -1. */
const char *umi_config_value(const umx_context_params *params, const char *key,
                             int *option_p);

/* A number for the lengths of UCX's queues in shared memory, which have to be
 * those of the peer: another number where the lengths are others. */
uint32_t umi_config_queues(const umx_context_params *params);

/* True if a line of UCX's log refuses nothing but settings of libumx. */
bool umi_config_is_about_settings(const char *line);

/* True if the program, or the environment, says which network devices UCX may
 * use. */
bool umi_config_has_devices(const umx_context_params *params);

#endif
