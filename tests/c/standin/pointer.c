/* SPDX-License-Identifier: BSD-3-Clause */
/* pointer.c: what the driver says of a pointer. */
#include "standin/internal.h"

enum {
    ATTR_CONTEXT        = 1,
    ATTR_MEMORY_TYPE    = 2,
    ATTR_DEVICE_POINTER = 3,
    ATTR_HOST_POINTER   = 4,
    ATTR_SYNC_MEMOPS    = 6,
    ATTR_BUFFER_ID      = 7,
    ATTR_IS_MANAGED     = 8,
    ATTR_DEVICE         = 9,
    ATTR_LEGACY_IPC     = 10,
    ATTR_RANGE_START    = 11,
    ATTR_RANGE_SIZE     = 12,
    ATTR_IS_MAPPED      = 13,
    ATTR_HANDLE_TYPES   = 14,
    ATTR_POOL           = 17,
    TYPE_HOST           = 1,
    TYPE_DEVICE         = 2,
    NO_PREFETCH         = -2
};

/* Memory of pools is of no context. */
static cu_context *
context_of(const range *r)
{
    if (r == NULL || r->pool != NULL || r->device < 0) {
        return NULL;
    }
    return r->context != NULL ? r->context : standin_context_of(r->device);
}

static unsigned
type_of(const range *r)
{
    if (r == NULL) {
        return 0;
    }
    return standin_is_of_device(r) ? TYPE_DEVICE : TYPE_HOST;
}

/* The CPU's address of what it can touch. */
static void *
host_pointer(const range *r, cu_pointer pointer)
{
    return (r != NULL && r->at == r->real) ? (void *)(uintptr_t)pointer : NULL;
}

/* What is memory of nobody has zeros, and no device. */
static int
get(void *value, int attribute, const range *r, cu_pointer pointer)
{
    switch (attribute) {
    case ATTR_CONTEXT:
        *(cu_context **)value = context_of(r);
        break;
    case ATTR_MEMORY_TYPE:
        *(unsigned *)value = type_of(r);
        break;
    case ATTR_DEVICE_POINTER:
        *(cu_pointer *)value = (r == NULL) ? 0 : pointer;
        break;
    case ATTR_HOST_POINTER:
        *(void **)value = host_pointer(r, pointer);
        break;
    case ATTR_SYNC_MEMOPS:
        *(unsigned *)value = 0;
        break;
    case ATTR_BUFFER_ID:
        *(uint64_t *)value = (r == NULL) ? 0 : r->id;
        break;
    case ATTR_IS_MANAGED:
        *(unsigned *)value = r != NULL && r->is_managed;
        break;
    case ATTR_DEVICE:
        *(int *)value = (r == NULL) ? -2 : r->device;
        break;
    case ATTR_LEGACY_IPC:
        *(unsigned *)value = r != NULL && r->kind == KIND_DEVICE &&
                             r->pool == NULL;
        break;
    case ATTR_RANGE_START:
        *(cu_pointer *)value = (r == NULL) ? 0 : (uintptr_t)r->at;
        break;
    case ATTR_RANGE_SIZE:
        *(size_t *)value = (r == NULL) ? 0 : r->len;
        break;
    case ATTR_IS_MAPPED:
        *(unsigned *)value = r != NULL;
        break;
    case ATTR_HANDLE_TYPES:
        *(uint64_t *)value = 0;
        break;
    case ATTR_POOL:
        *(cu_pool **)value = (r == NULL) ? NULL : r->pool;
        break;
    default:
        return INVALID_VALUE;
    }
    return OK;
}

int
cuPointerGetAttribute(void *value, int attribute, cu_pointer pointer)
{
    const range *r;

    ENTER(0);
    r = standin_find(pointer);
    if (r == NULL) {
        LEAVE(INVALID_VALUE);
    }
    LEAVE(get(value, attribute, r, pointer));
}

int
cuPointerGetAttributes(unsigned count, const int *attributes, void **values,
                       cu_pointer pointer)
{
    ENTER(0);
    for (unsigned i = 0; i < count; i++) {
        int result = get(values[i], attributes[i], standin_find(pointer),
                         pointer);

        if (result != OK) {
            LEAVE(result);
        }
    }
    LEAVE(OK);
}

int
cuPointerSetAttribute(const void *value, int attribute, cu_pointer pointer)
{
    (void)value;
    ENTER(0);
    LEAVE(attribute == ATTR_SYNC_MEMOPS && standin_find(pointer) != NULL ?
              OK :
              INVALID_VALUE);
}

int
cuMemGetAddressRange_v2(cu_pointer *start_p, size_t *len_p, cu_pointer pointer)
{
    const range *r;

    ENTER(0);
    r = standin_find(pointer);
    if (r == NULL) {
        LEAVE(NOT_FOUND);
    }
    if (start_p != NULL) {
        *start_p = (uintptr_t)r->at;
    }
    if (len_p != NULL) {
        *len_p = r->len;
    }
    LEAVE(OK);
}

int
cuMemRangeGetAttribute(void *value, size_t len, int attribute,
                       cu_pointer pointer, size_t count)
{
    (void)attribute;
    (void)count;
    ENTER(0);
    if (standin_find(pointer) == NULL || len != sizeof(int)) {
        LEAVE(INVALID_VALUE);
    }
    *(int *)value = NO_PREFETCH;
    LEAVE(OK);
}
