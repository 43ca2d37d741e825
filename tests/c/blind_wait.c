/* SPDX-License-Identifier: BSD-3-Clause */
/* blind_wait.c: waits that do not look again once they are announced. */
#define UMI_WITHOUT_SECOND_LOOK
#include "worker/wait.c"
