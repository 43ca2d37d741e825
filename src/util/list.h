/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h: intrusive doubly linked list. A node that is not on a list points to
 * itself, so that unlinking twice is harmless. Thread: the list's owner. */
#ifndef UMI_LIST_H
#define UMI_LIST_H

#include <assert.h>
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

/* True if the neighbours of a node know it. */
static inline bool
umi_node_is_whole(const umi_node *node)
{
    return node->prev->next == node && node->next->prev == node;
}

/* Insert `node` before `pos`; with the head as `pos`: append. */
static inline void
umi_node_insert_before(umi_node *pos, umi_node *node)
{
    assert(umi_node_is_whole(pos) && pos != node);
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
    assert(umi_node_is_whole(node));
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
    assert(to != from && umi_node_is_whole(to) && umi_node_is_whole(from));
    if (umi_list_is_empty(from)) {
        return;
    }
    from->next->prev = to->prev;
    from->prev->next = to;
    to->prev->next   = from->next;
    to->prev         = from->prev;
    umi_list_init(from);
}

static inline size_t
umi_list_count(const umi_list *list)
{
    size_t count = 0;

    for (const umi_node *node = list->next; node != list; node = node->next) {
        count++;
    }
    return count;
}

/* The first node, which goes to the end; NULL once `*left_p` nodes have had
 * their turn, or if empty. What is done with it may run UCX, call back, and
 * take any node off. Then one may get a second turn. */
static inline umi_node *
umi_list_turn(umi_list *list, size_t *left_p)
{
    umi_node *node;

    if (*left_p == 0 || umi_list_is_empty(list)) {
        return NULL;
    }
    --*left_p;
    node = umi_list_pop(list);
    umi_list_append(list, node);
    return node;
}

/* ---- walks ----------------------------------------------------------------
 *
 * What runs UCX, or calls back, moves nodes that a walk is about to visit. No
 * walk may be open then: builds with assertions count the walks of each thread
 * that are. Instead nodes are taken off one by one, get turns, or are searched
 * from the beginning again. */

#ifdef NDEBUG
#define UMI_WALK_VAR(node) umi_node *node
#define UMI_WALK_BEGIN(list) ((list)->next)
#define UMI_ASSERT_NO_WALK() ((void)0)
#else
extern _Thread_local unsigned umi_list_walks; /* open */

static inline umi_node *
umi_list_begin_walk(umi_node *first)
{
    umi_list_walks++;
    return first;
}

/* However the walk is left. */
static inline void
umi_list_end_walk(umi_node **node)
{
    (void)node;
    umi_list_walks--;
}

#define UMI_WALK_VAR(node) \
    umi_node *node __attribute__((cleanup(umi_list_end_walk)))
#define UMI_WALK_BEGIN(list) umi_list_begin_walk((list)->next)
#define UMI_ASSERT_NO_WALK() assert(umi_list_walks == 0)
#endif

/* Walk; the body must not remove `node`. */
#define UMI_LIST_FOREACH(node, list)                                \
    for (UMI_WALK_VAR(node) = UMI_WALK_BEGIN(list); node != (list); \
         node               = node->next)

/* Walk; the body may remove `node`, and nothing else. */
#define UMI_LIST_FOREACH_SAFE(node, list)                                      \
    for (UMI_WALK_VAR(node) = UMI_WALK_BEGIN(list), *node##_next = node->next; \
         node != (list); node = node##_next, node##_next = node->next)

#endif
