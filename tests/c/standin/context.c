/* SPDX-License-Identifier: BSD-3-Clause */
/* context.c: contexts, and the stack of them that each thread has. A context
 * that has ended is kept, so that whoever still names it is told so. */
#include <stdlib.h>
#include <string.h>

#include "standin/internal.h"

enum {
    MAX_DEPTH = 32
};

static cu_context *contexts; /* all that there have been */
static cu_context *primary[STANDIN_MAX_DEVICES];

static _Thread_local cu_context *stack[MAX_DEPTH];
static _Thread_local int         depth;

cu_context *
standin_context(void)
{
    return (depth == 0) ? NULL : stack[depth - 1];
}

cu_context *
standin_context_of(int device)
{
    return primary[device];
}

int
standin_current(void)
{
    return (depth == 0) ? -1 : stack[depth - 1]->device;
}

void
standin_push(cu_context *context)
{
    if (depth == MAX_DEPTH) {
        abort();
    }
    stack[depth++] = context;
}

void
standin_pop(void)
{
    depth--;
}

bool
standin_is_context(cu_context *context)
{
    const cu_context *c = contexts;

    while (c != NULL && c != context) {
        c = c->next;
    }
    return c != NULL;
}

static cu_context *
create(int device, bool is_primary)
{
    cu_context *context = calloc(1, sizeof(*context));

    if (context == NULL) {
        abort();
    }
    *context = (cu_context){
        .next = contexts, .device = device, .is_primary = is_primary};
    contexts = context;
    return context;
}

/* What is in it ends with it, and what is queued there is not done. */
static void
destroy(cu_context *context)
{
    context->is_destroyed = true;
    if (context->is_primary) {
        primary[context->device] = NULL;
    }
    standin_wake();
    standin_drain(context);
    standin_end_streams(context);
    standin_drop_of(context);
}

int
standin_make_primary(int device)
{
    if (!standin_is_device(device)) {
        return INVALID_DEVICE;
    }
    if (primary[device] == NULL) {
        primary[device] = create(device, true);
    }
    return OK;
}

/* ---- primary contexts ----------------------------------------------------
 */

int
cuDevicePrimaryCtxRetain(cu_context **context_p, int device)
{
    int result;

    ENTER(0);
    result = standin_make_primary(device);
    if (result == OK) {
        primary[device]->retained++;
        standin.retained[device]++;
        *context_p = primary[device];
    }
    LEAVE(result);
}

int
cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER(TOLERANT);
    if (!standin_is_device(device)) {
        LEAVE(INVALID_DEVICE);
    }
    if (primary[device] == NULL || primary[device]->retained == 0) {
        LEAVE(INVALID_CONTEXT);
    }
    if (--primary[device]->retained == 0) {
        destroy(primary[device]);
    }
    LEAVE(OK);
}

int
cuDevicePrimaryCtxReset_v2(int device)
{
    ENTER(TOLERANT);
    if (!standin_is_device(device)) {
        LEAVE(INVALID_DEVICE);
    }
    if (primary[device] != NULL) {
        destroy(primary[device]);
    }
    LEAVE(OK);
}

int
cuDevicePrimaryCtxGetState(int device, unsigned *flags_p, int *is_active_p)
{
    ENTER(TOLERANT);
    if (!standin_is_device(device)) {
        LEAVE(INVALID_DEVICE);
    }
    *flags_p     = 0;
    *is_active_p = primary[device] != NULL;
    LEAVE(OK);
}

/* ---- other contexts ------------------------------------------------------
 */

int
cuCtxCreate_v2(cu_context **context_p, unsigned flags, int device)
{
    (void)flags;
    ENTER(0);
    if (!standin_is_device(device)) {
        LEAVE(INVALID_DEVICE);
    }
    if (depth == MAX_DEPTH) {
        LEAVE(OUT_OF_MEMORY);
    }
    *context_p     = create(device, false);
    stack[depth++] = *context_p;
    LEAVE(OK);
}

int
cuCtxDestroy_v2(cu_context *context)
{
    ENTER(TOLERANT);
    if (!standin_is_context(context) || context->is_destroyed) {
        LEAVE(INVALID_CONTEXT);
    }
    if (standin_context() == context) {
        depth--;
    }
    destroy(context);
    LEAVE(OK);
}

/* ---- the stack -----------------------------------------------------------
 */

int
cuCtxPushCurrent_v2(cu_context *context)
{
    ENTER(TOLERANT);
    if (!standin_is_context(context)) {
        LEAVE(INVALID_CONTEXT);
    }
    if (context->is_destroyed) {
        LEAVE(CONTEXT_DESTROYED);
    }
    if (depth == MAX_DEPTH) {
        LEAVE(OUT_OF_MEMORY);
    }
    stack[depth++] = context;
    standin.pushes++;
    LEAVE(OK);
}

int
cuCtxPopCurrent_v2(cu_context **context_p)
{
    ENTER(TOLERANT);
    if (depth == 0) {
        LEAVE(INVALID_CONTEXT);
    }
    depth--;
    if (context_p != NULL) {
        *context_p = stack[depth];
    }
    standin.pops++;
    LEAVE(OK);
}

int
cuCtxGetCurrent(cu_context **context_p)
{
    ENTER(TOLERANT);
    *context_p = standin_context();
    LEAVE(OK);
}

int
cuCtxSetCurrent(cu_context *context)
{
    ENTER(TOLERANT);
    if (context == NULL) {
        depth -= (depth > 0);
        LEAVE(OK);
    }
    if (!standin_is_context(context) || context->is_destroyed) {
        LEAVE(standin_is_context(context) ? CONTEXT_DESTROYED :
                                            INVALID_CONTEXT);
    }
    depth += (depth == 0);
    stack[depth - 1] = context;
    LEAVE(OK);
}

int
cuCtxGetDevice(int *device_p)
{
    ENTER(TOLERANT);
    if (depth == 0) {
        LEAVE(INVALID_CONTEXT);
    }
    *device_p = standin_current();
    LEAVE(OK);
}

int
cuCtxGetId(cu_context *context, unsigned long long *id_p)
{
    const cu_context *c;

    ENTER(TOLERANT);
    if (context == NULL) {
        context = standin_context();
    }
    if (context == NULL || !standin_is_context(context)) {
        LEAVE(INVALID_CONTEXT);
    }
    *id_p = 0;
    for (c = context; c != NULL; c = c->next) {
        ++*id_p; /* how many there were before */
    }
    LEAVE(OK);
}

int
cuCtxSetFlags(unsigned flags)
{
    (void)flags;
    ENTER(TOLERANT | CONTEXT);
    LEAVE(OK);
}

int
cuCtxSynchronize(void)
{
    ENTER(CONTEXT | UNSAFE);
    standin_drain(standin_context());
    LEAVE(standin_sticky);
}

int
cuCtxEnablePeerAccess(cu_context *peer, unsigned flags)
{
    (void)flags;
    ENTER(CONTEXT);
    if (!standin_is_context(peer)) {
        LEAVE(INVALID_CONTEXT);
    }
    LEAVE(standin_set.has_peers ? OK : PEER_UNSUPPORTED);
}
