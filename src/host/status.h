/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UMI_HOST_STATUS_H
#define UMI_HOST_STATUS_H

#include <umx/status.h>

/* Translate an errno of a system call into a status; umx_take_errno() then
 * gives it. */
umx_status umi_status_from_errno(int error);

#endif
