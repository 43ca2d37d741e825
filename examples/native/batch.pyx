# SPDX-License-Identifier: BSD-3-Clause
# cython: language_level=3, boundscheck=False, wraparound=False
"""Messages that C code posts, and Python awaits, on an endpoint that Python made.

``send`` and ``recv`` post one message; ``send_rows`` and ``recv_rows`` post one for
each row of an array, in a loop that does not have the GIL, and return one awaitable
for all. batch_demo.py uses this module; README.md says how it is built.
"""

from cpython.object cimport PyObject
from libc.stdint cimport UINT64_MAX, uint64_t

from ucp cimport (
    UMX_OK,
    import_ucp,
    ucp_api,
    umx_buffer,
    umx_ep,
    umx_host_buffer,
    umx_op_params,
    umx_recv_info,
    umx_request,
    umx_status,
    umx_tag_recv,
    umx_tag_send,
    umx_worker,
)

import_ucp()


def send(endpoint, const unsigned char[::1] data, uint64_t tag):
    """Send ``data``, any buffer of bytes; awaitable."""
    cdef umx_ep *ep = ucp_api.endpoint_get(endpoint)
    cdef umx_op_params params
    cdef umx_request *op = NULL
    cdef umx_buffer buf = umx_host_buffer(&data[0] if len(data) else NULL, len(data))
    keep = memoryview(data)  # the exporter must not move or free the bytes
    request = ucp_api.request_new(endpoint, <PyObject *>keep, &params)
    cdef umx_status status = umx_tag_send(ep, tag, &buf, &params, &op)
    ucp_api.request_posted(request, status, op)
    return request


def recv(worker, unsigned char[::1] data, uint64_t tag):
    """Receive a message of at most ``len(data)`` bytes, from any peer; awaitable."""
    cdef umx_worker *umx = ucp_api.worker_get(worker)
    cdef umx_op_params params
    cdef umx_request *op = NULL
    cdef umx_recv_info info
    cdef umx_buffer buf = umx_host_buffer(&data[0] if len(data) else NULL, len(data))
    keep = memoryview(data)
    request = ucp_api.request_new(worker, <PyObject *>keep, &params)
    cdef umx_status status = umx_tag_recv(
        umx, NULL, tag, UINT64_MAX, &buf, &params, &op, &info)
    ucp_api.request_posted(request, status, op)
    return request


def send_rows(endpoint, const double[:, ::1] rows, uint64_t tag):
    """Send a message for each row, with the tags from ``tag`` on; one awaitable."""
    cdef umx_ep *ep = ucp_api.endpoint_get(endpoint)
    cdef umx_op_params params
    cdef umx_request *op
    cdef umx_buffer buf
    cdef umx_status status
    cdef Py_ssize_t i
    cdef size_t length = rows.shape[1] * sizeof(double)
    keep = memoryview(rows)
    request = ucp_api.request_new(endpoint, <PyObject *>keep, &params)
    cdef PyObject *noted = <PyObject *>request
    if length != 0:
        with nogil:
            for i in range(rows.shape[0]):
                op = NULL
                buf = umx_host_buffer(&rows[i, 0], length)
                status = umx_tag_send(ep, tag + <uint64_t>i, &buf, &params, &op)
                ucp_api.request_add(noted, status, op)
    ucp_api.request_posted(request, UMX_OK, NULL)
    return request


def recv_rows(worker, double[:, ::1] rows, uint64_t tag):
    """Receive a message into each row, as ``send_rows`` sends them."""
    cdef umx_worker *umx = ucp_api.worker_get(worker)
    cdef umx_op_params params
    cdef umx_request *op
    cdef umx_recv_info info
    cdef umx_buffer buf
    cdef umx_status status
    cdef Py_ssize_t i
    cdef size_t length = rows.shape[1] * sizeof(double)
    keep = memoryview(rows)
    request = ucp_api.request_new(worker, <PyObject *>keep, &params)
    cdef PyObject *noted = <PyObject *>request
    if length != 0:
        with nogil:
            for i in range(rows.shape[0]):
                op = NULL
                buf = umx_host_buffer(&rows[i, 0], length)
                status = umx_tag_recv(
                    umx, NULL, tag + <uint64_t>i, UINT64_MAX, &buf, &params, &op, &info)
                ucp_api.request_add(noted, status, op)
    ucp_api.request_set_result(request, rows.shape[0])
    ucp_api.request_posted(request, UMX_OK, NULL)
    return request
