/* SPDX-License-Identifier: BSD-3-Clause */
/* moe_rows.c: rows of tokens and where they go, as functions of the module. */
#include "moe/moe_rows.h"

#include <umx/moe.h>

PyDoc_STRVAR(
    size_doc,
    "moe_memory_size(num_experts, max_tokens, max_topk, hidden, dtype,\n"
    "                num_ranks, /)\n--\n\n"
    "Bytes of memory of a MoeBuffer; 0: a number makes no sense.");

static PyObject *
memory_size(PyObject *module, PyObject *args)
{
    umx_moe_params params = {.field_mask = 0};
    unsigned       dtype;
    int            num_ranks;

    (void)module;
    if (!PyArg_ParseTuple(args, "IIIIIi:moe_memory_size", &params.num_experts,
                          &params.max_tokens, &params.max_topk, &params.hidden,
                          &dtype, &num_ranks)) {
        return NULL;
    }
    params.dtype = (umx_moe_dtype)dtype;
    return PyLong_FromSize_t(umx_moe_memory_size(&params, num_ranks));
}

PyDoc_STRVAR(
    layout_doc,
    "moe_layout(topk_idx, num_topk, num_experts, num_ranks, per_rank,\n"
    "           per_expert, is_in_rank, /)\n--\n\n"
    "Count tokens: see umx_moe_layout(). Return False if a token has an\n"
    "expert twice.");

static PyObject *
layout(PyObject *module, PyObject *args)
{
    umx_moe_routing routing = {.num_topk = 0};
    Py_buffer       idx, per_rank, per_expert, is_in_rank;
    Py_ssize_t      num_topk;
    umx_status      status = UMX_ERR_OUT_OF_RANGE;
    size_t          n;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*nIiw*w*w*:moe_layout", &idx, &num_topk,
                          &routing.num_experts, &routing.num_ranks, &per_rank,
                          &per_expert, &is_in_rank)) {
        return NULL;
    }
    n = (size_t)routing.num_ranks;
    if (num_topk > 0 && routing.num_ranks > 0) {
        routing.topk_idx   = idx.buf;
        routing.num_topk   = (size_t)num_topk;
        routing.num_tokens = (size_t)idx.len / sizeof(int64_t) /
                             routing.num_topk;
    }
    if (num_topk > 0 && routing.num_ranks > 0 &&
        (size_t)per_rank.len == n * sizeof(uint32_t) &&
        (size_t)per_expert.len == routing.num_experts * sizeof(uint32_t) &&
        (size_t)is_in_rank.len == routing.num_tokens * n) {
        Py_BEGIN_ALLOW_THREADS;
        status = umx_moe_layout(&routing, per_rank.buf, per_expert.buf,
                                is_in_rank.buf);
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&idx);
    PyBuffer_Release(&per_rank);
    PyBuffer_Release(&per_expert);
    PyBuffer_Release(&is_in_rank);
    if (status == UMX_ERR_OUT_OF_RANGE) {
        PyErr_SetString(PyExc_ValueError, "an expert, or a length, is wrong");
        return NULL;
    }
    return PyBool_FromLong(status == UMX_OK);
}

/* Cast rows, in either direction. */
static PyObject *
cast(PyObject *args, bool is_to_fp8)
{
    Py_buffer  fp8, scales, floats;
    Py_ssize_t hidden, num_rows;
    unsigned   dtype;
    bool       is_right;

    if (!PyArg_ParseTuple(
            args, is_to_fp8 ? "w*w*y*In:moe_to_fp8" : "y*y*w*In:moe_from_fp8",
            &fp8, &scales, &floats, &dtype, &hidden)) {
        return NULL;
    }
    num_rows = (hidden > 0) ? fp8.len / hidden : 0;
    is_right = dtype < UMX_MOE_FP8 && hidden > 0 &&
               hidden % UMX_MOE_BLOCK == 0 && num_rows * hidden == fp8.len &&
               scales.len ==
                   fp8.len / UMX_MOE_BLOCK * (Py_ssize_t)sizeof(float) &&
               floats.len == fp8.len * (Py_ssize_t)umx_moe_dtype_size(
                                           (umx_moe_dtype)dtype);
    if (is_right) {
        Py_BEGIN_ALLOW_THREADS;
        if (is_to_fp8) {
            umx_moe_to_fp8(fp8.buf, scales.buf, floats.buf,
                           (umx_moe_dtype)dtype, (size_t)num_rows,
                           (size_t)hidden);
        } else {
            umx_moe_from_fp8(floats.buf, (umx_moe_dtype)dtype, fp8.buf,
                             scales.buf, (size_t)num_rows, (size_t)hidden);
        }
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&fp8);
    PyBuffer_Release(&scales);
    PyBuffer_Release(&floats);
    if (!is_right) {
        PyErr_SetString(PyExc_ValueError, "the lengths do not belong together");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
to_fp8(PyObject *module, PyObject *args)
{
    (void)module;
    return cast(args, true);
}

static PyObject *
from_fp8(PyObject *module, PyObject *args)
{
    (void)module;
    return cast(args, false);
}

PyMethodDef moe_methods[] = {
    {"moe_memory_size", memory_size, METH_VARARGS, size_doc},
    {"moe_layout", layout, METH_VARARGS, layout_doc},
    {"moe_to_fp8", to_fp8, METH_VARARGS,
     "moe_to_fp8(fp8, scales, floats, dtype, hidden, /)\n--\n\n"
     "Cast rows to fp8."},
    {"moe_from_fp8", from_fp8, METH_VARARGS,
     "moe_from_fp8(fp8, scales, floats, dtype, hidden, /)\n--\n\n"
     "Cast rows back."},
    {NULL, NULL, 0, NULL},
};
