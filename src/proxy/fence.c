/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.c: a fence that one thread makes for all threads of the process, by the
 * system call membarrier(). The proxy makes one before it sleeps, so producers
 * need none after each command. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proxy/proxy.h"

static long
membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

bool
umi_proxy_can_fence(void)
{
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

void
umi_proxy_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}
