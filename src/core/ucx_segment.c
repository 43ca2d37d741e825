/* SPDX-License-Identifier: BSD-3-Clause */
/* After src/uct/sm/mm/posix/mm_posix.c of UCX: an id is flags and, with PROCFS,
 * a descriptor and the pid of the process that has it; else a number in the
 * name.
 */
#include "core/ucx_segment.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define POSIX_PROCFS (UINT64_C(1) << 63)
#define POSIX_SHM_OPEN (UINT64_C(1) << 62)
#define POSIX_NUMBER ((UINT64_C(1) << 60) - 1)
#define POSIX_FD_AT 30
#define POSIX_PID ((UINT64_C(1) << POSIX_FD_AT) - 1)

static const char name_begin[] = "/dev/shm/ucx_shm_posix_";

static size_t
size_of(const char *path)
{
    struct stat what;

    if (stat(path, &what) != 0 || !S_ISREG(what.st_mode) ||
        what.st_uid != geteuid()) {
        return 0;
    }
    return (size_t)what.st_size;
}

/* Does the descriptor lead to a segment of UCX's? */
static bool
leads_to_segment(const char *path)
{
    char    target[PATH_MAX];
    ssize_t len = readlink(path, target, sizeof(target) - 1);

    if (len < 0) {
        return false;
    }
    target[len] = '\0';
    return strncmp(target, name_begin, strlen(name_begin)) == 0;
}

size_t
umi_ucx_posix_size(uint64_t id)
{
    uint64_t number = id & POSIX_NUMBER;
    char     path[64];

    if (!(id & POSIX_SHM_OPEN)) {
        return SIZE_MAX; /* in a directory that only UCX knows */
    }
    if (id & POSIX_PROCFS) {
        snprintf(path, sizeof(path), "/proc/%u/fd/%u",
                 (unsigned)(number & POSIX_PID),
                 (unsigned)(number >> POSIX_FD_AT));
        return leads_to_segment(path) ? size_of(path) : 0;
    }
    snprintf(path, sizeof(path), "%s%llx", name_begin,
             (unsigned long long)number);
    return size_of(path);
}

size_t
umi_ucx_sysv_size(uint64_t id)
{
    struct shmid_ds what;

    if (id > INT_MAX || shmctl((int)id, IPC_STAT, &what) != 0 ||
        what.shm_perm.cuid != geteuid()) {
        return 0;
    }
    return what.shm_segsz;
}
