/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* syscall */
#include "util/membarrier.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NEEDED = MEMBARRIER_CMD_GLOBAL_EXPEDITED |
             MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool           is_registered;

static long
membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

bool
umi_membarrier_is_possible(void)
{
    long commands = membarrier(MEMBARRIER_CMD_QUERY);

    return commands > 0 && (commands & NEEDED) == NEEDED;
}

/* A child may not have inherited it. What it uses of its parent's would not
 * fence. */
static void
register_again(void)
{
    if (is_registered) {
        (void)membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
    }
}

static void
register_once(void)
{
    is_registered = umi_membarrier_is_possible() &&
                    pthread_atfork(NULL, NULL, register_again) == 0 &&
                    membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

bool
umi_membarrier_register(void)
{
    pthread_once(&once, register_once);
    return is_registered;
}

bool
umi_membarrier_fence(void)
{
    return membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
}
