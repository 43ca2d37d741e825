/* SPDX-License-Identifier: BSD-3-Clause */
/** @file types.h  Names shared by all headers. */
#ifndef UMX_TYPES_H
#define UMX_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <umx/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_context  umx_context;
typedef struct umx_worker   umx_worker;
typedef struct umx_listener umx_listener;
typedef struct umx_ep       umx_ep;
typedef struct umx_request  umx_request;
typedef struct umx_message  umx_message;
typedef struct umx_memh     umx_memh;
typedef struct umx_rkey     umx_rkey;

/** The kinds of memory in which a buffer's bytes live. */
typedef enum umx_memtype {
    UMX_MEMTYPE_UNKNOWN, /* UCX looks the pointer up on every call */
    UMX_MEMTYPE_HOST,
    UMX_MEMTYPE_CUDA,
    UMX_MEMTYPE_CUDA_MANAGED
} umx_memtype;

/**
 * A layout: where the items of an array with gaps lie. umx/buffer.h makes it.
 */
typedef struct umx_layout umx_layout;

/**
 * Memory lent to an operation. `data` may be NULL if `len` is 0.
 *
 * `memh` must contain the buffer, else operations return
 * UMX_ERR_INVALID_PARAM. With it UCX is spared looking for a registration, or
 * making one. An operation in progress keeps it, whatever the caller does with
 * its reference. It is not used with a layout, nor if it is another context's.
 *
 * With a layout, lent like the memory, `data` is the first item and `len` the
 * bytes of all. That is for host memory, and for messages, tags, active messages,
 * frames, put and get, and what ranks send and receive: others return
 * UMX_ERR_UNSUPPORTED.
 */
typedef struct umx_buffer {
    void             *data;
    size_t            len; /* bytes */
    umx_memtype       memtype;
    umx_memh         *memh;   /* registration of its memory, or NULL */
    const umx_layout *layout; /* NULL: contiguous */
} umx_buffer;

/** A timeout that never runs out. */
#define UMX_TIMEOUT_INFINITE UINT64_MAX

/**
 * How much the peer of one endpoint may have sent that has not been received
 * yet. Windows that are given do not grow.
 */
typedef struct umx_window {
    uint32_t messages; /* of each channel, eager, announced or empty; 0: as the
                          config says */
    uint64_t bytes;    /* as `credit_bytes`; 0: as the config says */
} umx_window;

#ifdef __cplusplus
}
#endif
#endif
