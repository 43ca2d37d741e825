/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* sched_getaffinity() */
#include "util/cpu.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Count the processors of the affinity mask. 0: the mask does not tell. */
static unsigned
count_mask(void)
{
    cpu_set_t set;
    int       count;

    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 0; /* more processors than the set has room for */
    }
    count = CPU_COUNT(&set);
    return (count > 1) ? (unsigned)count : 0;
}

/* Read how many processors' time a control group has; UINT_MAX: no limit. */
static unsigned
read_quota(const char *path)
{
    unsigned long long quota, period;
    unsigned           count = UINT_MAX;
    FILE              *file  = fopen(path, "re");

    if (file == NULL) {
        return UINT_MAX;
    }
    /* "max 100000" has no number in front. */
    if (fscanf(file, "%llu %llu", &quota, &period) == 2 && period != 0 &&
        quota / period < UINT_MAX) {
        count = (unsigned)(quota / period);
    }
    fclose(file);
    return count;
}

/* Find the control group of this process in the hierarchy of version 2: the
 * line "0::/path". False: the process has none, or its path is too long. */
static bool
find_group(const char *path, char *group, int size)
{
    FILE *file = fopen(path, "re");
    char  line[PATH_MAX];
    bool  is_found = false;

    if (file == NULL) {
        return false;
    }
    while (!is_found && fgets(line, sizeof(line), file) != NULL) {
        char *end = strchr(line, '\n');

        if (strncmp(line, "0::/", 4) == 0 && end != NULL) {
            *end     = '\0';
            is_found = snprintf(group, (size_t)size, "%s", line + 3) < size;
        }
    }
    fclose(file);
    return is_found;
}

/* The least quota of the control group of this process, and of those above it.
 */
static unsigned
least_quota(const char *self, const char *root)
{
    char     group[PATH_MAX] = "";
    char     path[2 * PATH_MAX];
    unsigned least = UINT_MAX;
    char    *slash;

    if (!find_group(self, group, sizeof(group))) {
        return UINT_MAX;
    }
    do {
        unsigned quota;

        (void)snprintf(path, sizeof(path), "%s%s/cpu.max", root, group);
        quota = read_quota(path);
        least = (quota < least) ? quota : least;
        slash = strrchr(group, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    } while (slash != NULL);
    return least;
}

unsigned
umi_cpu_count(void)
{
    unsigned count = count_mask();
    unsigned quota = least_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    long     online;

    if (count == 0) {
        online = sysconf(_SC_NPROCESSORS_ONLN);
        count  = (online > 0) ? (unsigned)online : 1;
    }
    count = (quota < count) ? quota : count;
    return (count > 0) ? count : 1;
}
