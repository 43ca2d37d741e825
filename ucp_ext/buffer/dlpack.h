/* SPDX-License-Identifier: BSD-3-Clause */
/* dlpack.h: the layouts of DLPack 1.0, and of the capsules before it, which
 * have no version. */
#ifndef UCP_DLPACK_H
#define UCP_DLPACK_H

#include <stdint.h>

enum {
    DLPACK_MAJOR     = 1, /* the layout below */
    DLPACK_READ_ONLY = 1u << 0,
    DLPACK_IS_COPIED = 1u << 1
};

enum {
    DLPACK_UINT = 1 /* dlpack_tensor.code */
};

typedef enum dlpack_device {
    DLPACK_CPU          = 1,
    DLPACK_CUDA         = 2,
    DLPACK_CUDA_HOST    = 3, /* pinned */
    DLPACK_CUDA_MANAGED = 13
} dlpack_device;

typedef struct dlpack_tensor {
    void    *data;
    int32_t  device_type;
    int32_t  device_id;
    int32_t  ndim;
    uint8_t  code;
    uint8_t  bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* items; NULL: C order */
    uint64_t byte_offset;
} dlpack_tensor;

/* In a capsule "dltensor". */
typedef struct dlpack_managed {
    dlpack_tensor tensor;
    void         *context;
    void (*deleter)(struct dlpack_managed *self);
} dlpack_managed;

/* In a capsule "dltensor_versioned". */
typedef struct dlpack_versioned {
    uint32_t major;
    uint32_t minor;
    void    *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t      flags;
    dlpack_tensor tensor;
} dlpack_versioned;

#endif
