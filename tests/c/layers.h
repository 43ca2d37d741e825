/* SPDX-License-Identifier: BSD-3-Clause */
/* layers.h: what all ranks of a world make together, of each kind. */
#ifndef LAYERS_H
#define LAYERS_H

#include "world.h"

/* What a layer makes, of any kind. */
typedef struct layer {
    const char *name;
    /* Make what it is made of; or NULL. */
    void (*prepare)(world *w, int rank);
    umx_status (*create)(world *w, int rank, const umx_op_params *how,
                         void **object_p, umx_request **req_p);
    umx_joint *(*joint)(void *object);
    void (*destroy)(void *object);
    /* Close it without giving it back. */
    umx_status (*close)(void *object, const umx_op_params *how,
                        umx_request **req_p);
} layer;

/* The last has no name. */
extern const layer layers[];

#define FOR_LAYERS(it) for (const layer *it = layers; it->name != NULL; it++)

typedef struct objects {
    world       *w;
    const layer *layer;
    void        *objects[MAX_RANKS];
    job          jobs[MAX_RANKS];
} objects;

/* Make what it is made of, on all ranks; else layer_create() does. */
void layer_prepare(objects *o);

/* Begin to make it on a rank; on all, and wait until all have. */
void layer_create(objects *o, int rank);
void layer_open_all(objects *o);

/* What has been made there. */
umx_joint *layer_joint(const objects *o, int rank);

/* It has ended on `rank`, for which `failed` is to blame. */
void layer_expect_failure(objects *o, int rank, int failed, const char *text);

/* Give back what the ranks have made. */
void layer_give_back(objects *o);

#endif
