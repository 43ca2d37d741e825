/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* IPC_INFO */
#include "host/segment_limit.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <umx/heap.h>
#include <unistd.h>

/* What IPC_INFO and SHM_INFO tell, to whom shmctl() has another type. */
typedef union any_info {
    struct shmid_ds ds;
    struct shminfo  limits;
    struct shm_info usage;
} any_info;

/* Ask the system for its limits. False: the system does not tell them. */
static bool
get_limits(struct shminfo *limits)
{
    any_info info;
    bool     is_known = shmctl(0, IPC_INFO, &info.ds) >= 0;

    if (is_known) {
        *limits = info.limits;
    }
    return is_known;
}

/* The last index in use, for SHM_STAT; -1: the system does not say. */
static int
get_usage(struct shm_info *usage)
{
    any_info info;
    int      last = shmctl(0, SHM_INFO, &info.ds);

    if (last >= 0) {
        *usage = info.usage;
    }
    return last;
}

bool
umi_segments_cannot_hold(size_t size)
{
    struct shminfo limits;

    return get_limits(&limits) && size > limits.shmmax;
}

/* The segments of a worker of UCX: a queue and a block of receive buffers. */
enum {
    NUM_SEGMENTS = 2,
    QUEUE_SIZE   = 128 * 1024,
    BLOCK_SIZE   = 2176 * 1024 /* of SYSV_RX_BUFS_GROW: config.c */
};

/* True if the limits leave no room for them. */
bool
umi_segments_are_used_up(void)
{
    unsigned long pages = (QUEUE_SIZE + BLOCK_SIZE) /
                          (unsigned long)sysconf(_SC_PAGESIZE);
    struct shminfo  limits;
    struct shm_info usage;

    return get_limits(&limits) && get_usage(&usage) >= 0 &&
           ((unsigned long)usage.used_ids + NUM_SEGMENTS > limits.shmmni ||
            limits.shmmax < BLOCK_SIZE ||
            (limits.shmall < ULONG_MAX - pages &&
             usage.shm_tot + pages > limits.shmall));
}

/* A sandbox may refuse each of the system calls. */
int
umi_segments_try(void)
{
    any_info info;
    void    *address;
    int      number, error = 0;

    if (shmctl(0, IPC_INFO, &info.ds) < 0 && errno != EINVAL) {
        return errno; /* nor could a segment be removed */
    }
    number = shmget(IPC_PRIVATE, BLOCK_SIZE, IPC_CREAT | 0600);
    if (number < 0) {
        return errno;
    }
    address = shmat(number, NULL, 0);
    if (address == (void *)-1) {
        error = errno;
    } else {
        (void)shmdt(address);
    }
    (void)shmctl(number, IPC_RMID, NULL);
    return (error == 0 && umi_segments_are_used_up()) ? ENOSPC : error;
}

/* Segments of this user, and of them those that this process has made: others'
 * are not shown to everybody. */
static void
count_own(int last, unsigned *of_user_p, unsigned *of_process_p)
{
    *of_user_p = *of_process_p = 0;
    for (int i = 0; i <= last; i++) {
        struct shmid_ds info;

        if (shmctl(i, SHM_STAT, &info) >= 0 &&
            info.shm_perm.cuid == geteuid()) {
            ++*of_user_p;
            *of_process_p += (info.shm_cpid == getpid());
        }
    }
}

size_t
umx_segment_limits(char *text, size_t size)
{
    struct shminfo  limits;
    struct shm_info usage;
    unsigned        of_user, of_process;
    char            number[64] = "";
    int             last       = get_usage(&usage), len;

    if (last < 0 || !get_limits(&limits)) {
        len = snprintf(text, size, "the system does not tell which");
        return (size_t)len;
    }
    count_own(last, &of_user, &of_process);
    if ((unsigned long)usage.used_ids >= limits.shmmni) {
        len = snprintf(text, size,
                       "kernel.shmmni is %lu, and %d are in use: %u of this "
                       "user, %u of this process",
                       limits.shmmni, usage.used_ids, of_user, of_process);
    } else {
        if ((unsigned long)usage.used_ids + 1 >= limits.shmmni) {
            snprintf(number, sizeof(number),
                     "kernel.shmmni is %lu, and %d are in use; ", limits.shmmni,
                     usage.used_ids);
        }
        len = snprintf(text, size,
                       "%skernel.shmmax is %lu bytes, kernel.shmall is %lu "
                       "pages and %lu are in use: %u segments of this user, %u "
                       "of this process",
                       number, limits.shmmax, limits.shmall, usage.shm_tot,
                       of_user, of_process);
    }
    return (size_t)len;
}
