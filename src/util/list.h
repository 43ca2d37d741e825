/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h: intrusive doubly linked list. A link that is not on a list points to
 * itself, so that unlinking twice is harmless. Thread: the list's owner. */
#ifndef UMI_LIST_H
#define UMI_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct umi_link {
    struct umi_link *prev;
    struct umi_link *next;
} umi_link;

/* The list's head is a link of its own. */
typedef umi_link umi_list;

/* It takes the minus for a sign: */
/* clang-format off */
#define umi_container_of(ptr, type, member) \
    ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
/* clang-format on */

static inline void
umi_list_init(umi_list *list)
{
    list->prev = list;
    list->next = list;
}

static inline void
umi_link_init(umi_link *link)
{
    umi_list_init(link);
}

static inline bool
umi_list_is_empty(const umi_list *list)
{
    return list->next == list;
}

static inline bool
umi_link_is_linked(const umi_link *link)
{
    return link->next != link;
}

/* Insert `link` before `pos`; with the head as `pos`: append. */
static inline void
umi_link_insert_before(umi_link *pos, umi_link *link)
{
    link->prev      = pos->prev;
    link->next      = pos;
    pos->prev->next = link;
    pos->prev       = link;
}

static inline void
umi_list_append(umi_list *list, umi_link *link)
{
    umi_link_insert_before(list, link);
}

static inline void
umi_list_prepend(umi_list *list, umi_link *link)
{
    umi_link_insert_before(list->next, link);
}

static inline void
umi_link_remove(umi_link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    umi_link_init(link);
}

/* The first link, taken off; NULL if empty. */
static inline umi_link *
umi_list_pop(umi_list *list)
{
    umi_link *link = list->next;

    if (link == list) {
        return NULL;
    }
    umi_link_remove(link);
    return link;
}

/* Move all of `from` to the end of `to`. */
static inline void
umi_list_splice(umi_list *to, umi_list *from)
{
    if (umi_list_is_empty(from)) {
        return;
    }
    from->next->prev = to->prev;
    from->prev->next = to;
    to->prev->next   = from->next;
    to->prev         = from->prev;
    umi_list_init(from);
}

/* Walk; the body must not remove `link`. */
#define UMI_LIST_FOREACH(link, list) \
    for (umi_link *link = (list)->next; link != (list); link = link->next)

/* Walk; the body may remove `link`, and nothing else. */
#define UMI_LIST_FOREACH_SAFE(link, list)                          \
    for (umi_link *link = (list)->next, *link##_next = link->next; \
         link != (list); link = link##_next, link##_next = link->next)

#endif
