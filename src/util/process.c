/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t
read_rss(void)
{
    FILE              *file = fopen("/proc/self/statm", "re");
    unsigned long long pages;
    int                count;

    if (file == NULL) {
        return 0;
    }
    count = fscanf(file, "%*u %llu", &pages);
    fclose(file);
    return (count == 1) ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void
read_host(umi_memory *memory)
{
    FILE              *file = fopen("/proc/meminfo", "re");
    char               line[128];
    unsigned long long kib;

    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemTotal: %llu", &kib) == 1) {
            memory->total = kib * 1024;
        } else if (sscanf(line, "MemAvailable: %llu", &kib) == 1) {
            memory->available = kib * 1024;
        }
    }
    fclose(file);
}

void
umi_process_memory(umi_memory *memory)
{
    struct rusage usage;

    memset(memory, 0, sizeof(*memory));
    memory->rss = read_rss();
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        memory->peak = (uint64_t)usage.ru_maxrss * 1024;
    }
    if (memory->peak < memory->rss) {
        memory->peak = memory->rss; /* Linux is late with it, core by core */
    }
    read_host(memory);
}

umi_process_state
umi_process_state_of(pid_t pid)
{
    char  path[64], line[512], *name_end;
    FILE *stat;

    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    stat = fopen(path, "re");
    if (stat == NULL) {
        return (errno == ENOENT && access("/proc/self/stat", R_OK) == 0) ?
                   UMI_PROCESS_ENDED :
                   UMI_PROCESS_UNKNOWN;
    }
    if (fgets(line, sizeof(line), stat) == NULL) {
        line[0] = '\0';
    }
    (void)fclose(stat);
    name_end = strrchr(line, ')'); /* a name may have any bytes */
    if (name_end == NULL || name_end[1] != ' ') {
        return UMI_PROCESS_UNKNOWN;
    }
    switch (name_end[2]) {
    case 'R':
    case 'S':
    case 'D':
    case 'I':
        return UMI_PROCESS_RUNS;
    case 'T':
    case 't':
        return UMI_PROCESS_STOPPED;
    case 'Z':
    case 'X':
    case 'x':
        return UMI_PROCESS_ENDED;
    default:
        return UMI_PROCESS_UNKNOWN;
    }
}

bool
umi_process_is_self(pid_t pid)
{
    return pid == getpid();
}
