/* SPDX-License-Identifier: BSD-3-Clause */
/* After src/uct/sm/mm/posix/mm_posix.c of UCX: an id is flags and, with PROCFS,
 * a descriptor and the pid of the process that has it; else a number in the
 * name. UCX leaves the transport out if the pid is of another namespace, or if
 * it cannot open the segment.
 */
#include "host/ucx_segment.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/host.h"

#define POSIX_PROCFS (UINT64_C(1) << 63)
#define POSIX_SHM_OPEN (UINT64_C(1) << 62)
#define POSIX_NUMBER ((UINT64_C(1) << 60) - 1)
#define POSIX_FD_AT 30
#define POSIX_PID ((UINT64_C(1) << POSIX_FD_AT) - 1)

#define FIRST_PID_NS 0xEFFFFFFCu /* the inode that Linux gives it */

static const char name_begin[] = "/dev/shm/ucx_shm_posix_";

static umi_ucx_segment_state
look_at_file(const char *path, size_t *size_p)
{
    struct stat what;

    if (stat(path, &what) != 0) {
        return UMI_UCX_SEGMENT_CLOSED; /* nor can UCX open it */
    }
    if (!S_ISREG(what.st_mode)) {
        return UMI_UCX_SEGMENT_NONE;
    }
    if (what.st_uid != geteuid()) {
        return UMI_UCX_SEGMENT_FOREIGN;
    }
    *size_p = (size_t)what.st_size;
    return UMI_UCX_SEGMENT_OPEN;
}

/* The link to the descriptor in an id with PROCFS. */
static void
link_path(uint64_t id, char *path, size_t size)
{
    uint64_t number = id & POSIX_NUMBER;

    snprintf(path, size, "/proc/%u/fd/%u", (unsigned)(number & POSIX_PID),
             (unsigned)(number >> POSIX_FD_AT));
}

static bool
read_link(const char *path, char target[PATH_MAX])
{
    ssize_t len = readlink(path, target, PATH_MAX - 1);

    if (len >= 0) {
        target[len] = '\0';
    }
    return len >= 0;
}

/* True if `target` is a segment in the directory of our own, if UCX was told
 * another than the usual one? */
static bool
is_beside_own(const char *target, uint64_t own_id)
{
    const char *name = strrchr(name_begin, '/');
    char        path[64], own[PATH_MAX];
    const char *end;

    if (!(own_id & POSIX_PROCFS)) {
        return false;
    }
    link_path(own_id, path, sizeof(path));
    if (!read_link(path, own)) {
        return false;
    }
    end = strrchr(own, '/');
    return end != NULL && strncmp(target, own, (size_t)(end - own)) == 0 &&
           strncmp(target + (end - own), name, strlen(name)) == 0;
}

/* True if the descriptor leads to something else than a segment of UCX's. */
static bool
leads_elsewhere(const char *path, uint64_t own_id)
{
    char target[PATH_MAX];

    if (!read_link(path, target)) {
        return false; /* it cannot be opened either */
    }
    return strncmp(target, name_begin, strlen(name_begin)) != 0 &&
           !is_beside_own(target, own_id);
}

/* True if numbers of processes in that namespace are numbers of processes here.
 */
static bool
is_own_namespace(uint32_t pid_ns)
{
    uint32_t own = umi_host_process_namespace();

    /* Look, to be safe, where the system does not say. */
    return own == 0 || own == (pid_ns != 0 ? pid_ns : FIRST_PID_NS);
}

umi_ucx_segment_state
umi_segments_look_posix(uint64_t id, uint64_t own_id, uint32_t pid_ns,
                        size_t *size_p)
{
    char path[64];

    if (!is_own_namespace(pid_ns)) {
        return UMI_UCX_SEGMENT_CLOSED;
    }
    if (id & POSIX_PROCFS) { /* whatever the other flags say */
        link_path(id, path, sizeof(path));
        return leads_elsewhere(path, own_id) ? UMI_UCX_SEGMENT_NONE :
                                               look_at_file(path, size_p);
    }
    if (!(id & POSIX_SHM_OPEN)) {
        return UMI_UCX_SEGMENT_NONE; /* in a directory that the peer names */
    }
    snprintf(path, sizeof(path), "%s%llx", name_begin,
             (unsigned long long)(id & POSIX_NUMBER));
    return look_at_file(path, size_p);
}

umi_ucx_segment_state
umi_segments_look_sysv(uint64_t id, size_t *size_p)
{
    struct shmid_ds what;

    if (id > INT_MAX) {
        return UMI_UCX_SEGMENT_NONE;
    }
    if (shmctl((int)id, IPC_STAT, &what) != 0) {
        switch (errno) {
        case EINVAL:
        case EIDRM:
            return UMI_UCX_SEGMENT_GONE;
        case EACCES: /* UCX lets its own user read them */
            return UMI_UCX_SEGMENT_FOREIGN;
        default:
            return UMI_UCX_SEGMENT_CLOSED; /* EPERM, ENOSYS: no system call */
        }
    }
    if (what.shm_perm.cuid != geteuid()) {
        return UMI_UCX_SEGMENT_FOREIGN;
    }
    *size_p = what.shm_segsz;
    return UMI_UCX_SEGMENT_OPEN;
}
