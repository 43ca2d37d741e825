/* SPDX-License-Identifier: BSD-3-Clause */
/* symbols.c: the functions by name; what is only there to be linked with. */
#include <stdio.h>
#include <string.h>

#include "standin/internal.h"
#include "standin/symbols.h"

#define LACK(name)            \
    int name(void)            \
    {                         \
        ENTER(0);             \
        LEAVE(NOT_SUPPORTED); \
    }
STANDIN_LACKING_FUNCTIONS(LACK)
#undef LACK

void *
standin_symbol(const char *name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } table[] = {
#define ROW(name, args) {#name, (void (*)(void))name},
        STANDIN_DEVICE_FUNCTIONS(ROW) STANDIN_MEMORY_FUNCTIONS(ROW)
            STANDIN_STREAM_FUNCTIONS(ROW) STANDIN_COPY_FUNCTIONS(ROW)
                STANDIN_KERNEL_FUNCTIONS(ROW)
#undef ROW
#define ROW(name) {#name, (void (*)(void))name},
                    STANDIN_LACKING_FUNCTIONS(ROW)
#undef ROW
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (strcmp(name, table[i].name) == 0) {
            return *(void **)(uintptr_t)&table[i].function;
        }
    }
    return NULL;
}

/* `name` is that of the newest version. */
int
cuGetProcAddress_v2(const char *name, void **function_p, int version,
                    uint64_t flags, int *status_p)
{
    char versioned[80];

    (void)version;
    (void)flags;
    ENTER(EARLY | TOLERANT);
    snprintf(versioned, sizeof(versioned), "%s_v2", name);
    *function_p = standin_symbol(versioned);
    if (*function_p == NULL) {
        *function_p = standin_symbol(name);
    }
    if (status_p != NULL) {
        *status_p = (*function_p == NULL);
    }
    LEAVE(*function_p == NULL ? NOT_FOUND : OK);
}
