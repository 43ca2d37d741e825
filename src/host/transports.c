/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/transports.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

bool
umi_transports_have_tcp(const char *list)
{
    if (list == NULL) {
        return true;
    }
    if (list[0] == '^') {
        return strstr(list, "tcp") == NULL;
    }
    return strstr(list, "tcp") != NULL || strstr(list, "all") != NULL;
}

/* ---- without sysv --------------------------------------------------------
 */

/* What stands for several transports (ucp_context.c of UCX), with the others
 * that UCX would not warn of: it does where one that is named is not there. */
static const struct {
    const char *name;
    const char *rest;
} aliases[] = {
    {"sysv", ""},    {"\\sysv", ""}, /* that one, and no alias */
    {"mm", "posix"}, {"sm", "posix,cma"}, {"shm", "posix,cma"},
};

enum {
    LONGEST = 16 /* bytes that stand for a word, and a comma */
};

/* Find the transports but sysv for which a word stands; NULL: the word does not
 * stand for sysv. */
static const char *
rest_of(const char *word, size_t len)
{
    for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++) {
        if (strlen(aliases[i].name) == len &&
            memcmp(aliases[i].name, word, len) == 0) {
            return aliases[i].rest;
        }
    }
    return NULL;
}

static void
add(char *to, const char *word, size_t len)
{
    if (to[0] != '\0' && len != 0) {
        strcat(to, ",");
    }
    strncat(to, word, len);
}

/* Write the list without sysv to `to`: a word that stands for several
 * transports is replaced by the others of them. False: no word stands for sysv.
 */
static bool
write_without_sysv(const char *list, char *to)
{
    bool has_sysv = false;

    while (*list != '\0') {
        size_t      len  = strcspn(list, ",");
        const char *rest = rest_of(list, len);

        has_sysv |= rest != NULL;
        add(to, (rest != NULL) ? rest : list,
            (rest != NULL) ? strlen(rest) : len);
        list += len + (list[len] == ',');
    }
    return has_sysv;
}

/* True if a word of the list is `word`. */
static bool
has_word(const char *list, const char *word)
{
    size_t size = strlen(word);

    while (*list != '\0') {
        size_t len = strcspn(list, ",");

        if (len == size && memcmp(list, word, len) == 0) {
            return true;
        }
        list += len + (list[len] == ',');
    }
    return false;
}

/* Each word of a list that is left out leaves out its transports. */
static bool
is_left_out(const char *list)
{
    for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++) {
        if (has_word(list, aliases[i].name)) {
            return true;
        }
    }
    return false;
}

char *
umi_transports_without_sysv(const char *list)
{
    char *left = calloc(strlen(list) + 1, LONGEST);

    if (left == NULL) {
        return NULL;
    }
    if (list[0] == '^') {
        strcat(strcat(left, list), ",sysv");
        if (!is_left_out(list + 1)) {
            return left;
        }
    } else if (has_word(list, "all")) {
        return strcat(left, "^sysv");
    } else if (write_without_sysv(list, left) && left[0] != '\0') {
        return left;
    }
    free(left);
    return NULL;
}
