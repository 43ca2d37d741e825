/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h: intrusive doubly linked list. A node that is not on a list points to
 * itself, so that unlinking twice is harmless. Thread: the list's owner. */
#ifndef UMI_LIST_H
#define UMI_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct umi_node {
    struct umi_node *prev;
    struct umi_node *next;
} umi_node;

/* The list's head is a node of its own. */
typedef umi_node umi_list;

/* The formatter takes the minus for a sign: */
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
umi_node_init(umi_node *node)
{
    umi_list_init(node);
}

static inline bool
umi_list_is_empty(const umi_list *list)
{
    return list->next == list;
}

static inline bool
umi_node_is_linked(const umi_node *node)
{
    return node->next != node;
}

/* Insert `node` before `pos`; with the head as `pos`: append. */
static inline void
umi_node_insert_before(umi_node *pos, umi_node *node)
{
    node->prev      = pos->prev;
    node->next      = pos;
    pos->prev->next = node;
    pos->prev       = node;
}

static inline void
umi_list_append(umi_list *list, umi_node *node)
{
    umi_node_insert_before(list, node);
}

static inline void
umi_list_prepend(umi_list *list, umi_node *node)
{
    umi_node_insert_before(list->next, node);
}

static inline void
umi_node_remove(umi_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    umi_node_init(node);
}

/* Does `node` belong behind `other`? */
typedef bool umi_is_behind_fn(umi_node *node, umi_node *other, const void *arg);

/* Insert a node where it belongs in a list that is sorted. What is new belongs
 * at the end, where the search begins; what is put back has an older place. */
static inline void
umi_list_insert_sorted(umi_list *list, umi_node *node,
                       umi_is_behind_fn *is_behind, const void *arg)
{
    umi_node *pos = list->prev;

    while (pos != list && is_behind(pos, node, arg)) {
        pos = pos->prev;
    }
    umi_node_insert_before(pos->next, node);
}

/* The first node, taken off; NULL if empty. */
static inline umi_node *
umi_list_pop(umi_list *list)
{
    umi_node *node = list->next;

    if (node == list) {
        return NULL;
    }
    umi_node_remove(node);
    return node;
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

/* Walk; the body must not remove `node`. */
#define UMI_LIST_FOREACH(node, list) \
    for (umi_node *node = (list)->next; node != (list); node = node->next)

/* Walk; the body may remove `node`, and nothing else. */
#define UMI_LIST_FOREACH_SAFE(node, list)                          \
    for (umi_node *node = (list)->next, *node##_next = node->next; \
         node != (list); node = node##_next, node##_next = node->next)

#endif
