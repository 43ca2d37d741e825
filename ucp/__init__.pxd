# SPDX-License-Identifier: BSD-3-Clause
# cython: language_level=3
"""Declarations for Cython: ``from ucp cimport import_ucp, ucp_api, umx_tag_send``.

The functions are those of ucp_api.h, which the capsule ``ucp._C_API`` has, and those
of libumx that post operations. A module calls ``import_ucp()`` once, before it uses
``ucp_api``. The headers say what each function does; docs/c-api.md how a module is
built, and which rules hold for threads and the GIL.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint16_t, uint32_t, uint64_t


cdef extern from "umx/status.h" nogil:
    ctypedef enum umx_status:
        UMX_OK
        UMX_INPROGRESS
        UMX_ERR_NO_MESSAGE
        UMX_ERR_NO_RESOURCE
        UMX_ERR_IO_ERROR
        UMX_ERR_NO_MEMORY
        UMX_ERR_INVALID_PARAM
        UMX_ERR_UNREACHABLE
        UMX_ERR_MESSAGE_TRUNCATED
        UMX_ERR_BUFFER_TOO_SMALL
        UMX_ERR_BUSY
        UMX_ERR_CANCELED
        UMX_ERR_OUT_OF_RANGE
        UMX_ERR_TIMED_OUT
        UMX_ERR_UNSUPPORTED
        UMX_ERR_REJECTED
        UMX_ERR_NOT_CONNECTED
        UMX_ERR_CONNECTION_RESET
        UMX_ERR_ENDPOINT_TIMEOUT
        UMX_ERR_CLOSED
        UMX_ERR_PEER_CLOSED
        UMX_ERR_WRONG_THREAD
        UMX_ERR_LENGTH_MISMATCH
        UMX_ERR_FORKED
        UMX_ERR_INVALID_KEY
        UMX_ERR_STALE_KEY
        UMX_ERR_READONLY
        UMX_ERR_CHANNEL_LIMIT
        UMX_ERR_RANK_FAILED

    const char *umx_status_string(umx_status status)


cdef extern from "umx/types.h" nogil:
    ctypedef struct umx_context
    ctypedef struct umx_worker
    ctypedef struct umx_ep
    ctypedef struct umx_request
    ctypedef struct umx_message
    ctypedef struct umx_memh
    ctypedef struct umx_rkey
    ctypedef struct umx_layout

    ctypedef enum umx_memtype:
        UMX_MEMTYPE_UNKNOWN
        UMX_MEMTYPE_HOST
        UMX_MEMTYPE_CUDA
        UMX_MEMTYPE_CUDA_MANAGED

    ctypedef struct umx_buffer:
        void *data
        size_t len
        umx_memtype memtype
        umx_memh *memh
        const umx_layout *layout

    uint64_t UMX_TIMEOUT_INFINITE


cdef extern from "umx/buffer.h" nogil:
    umx_buffer umx_host_buffer(const void *data, size_t len)


cdef extern from "umx/request.h" nogil:
    ctypedef void (*umx_done_fn)(umx_request *req, umx_status status, void *arg) noexcept

    enum:
        UMX_OP_FIELD_ON_DONE
        UMX_OP_FIELD_FLAGS
        UMX_OP_FIELD_ON_LOST
        UMX_OP_FLAG_KEEP
        UMX_OP_FLAG_LEND

    ctypedef struct umx_op_params:
        uint64_t field_mask
        umx_done_fn on_done
        void *arg
        uint64_t flags
        umx_done_fn on_lost

    ctypedef struct umx_recv_info:
        uint64_t tag
        size_t length
        uint32_t seq
        bint is_untagged
        bint is_device
        uint32_t channel

    umx_status umx_request_cancel(umx_request *req)
    umx_status umx_request_status(const umx_request *req)
    const umx_recv_info *umx_request_info(const umx_request *req)
    void umx_request_release(umx_request *req)


cdef extern from "umx/worker.h" nogil:
    ctypedef void (*umx_call_fn)(umx_worker *worker, umx_status status, void *arg) noexcept

    void umx_worker_signal(umx_worker *worker)
    umx_status umx_worker_submit(umx_worker *worker, umx_call_fn fn, void *arg)
    bint umx_worker_is_owner(const umx_worker *worker)
    umx_context *umx_worker_get_context(const umx_worker *worker)


cdef extern from "umx/endpoint.h" nogil:
    ctypedef enum umx_ep_state:
        UMX_EP_CONNECTING
        UMX_EP_OPEN
        UMX_EP_DRAINING
        UMX_EP_CLOSED
        UMX_EP_FAILED

    umx_ep_state umx_ep_get_state(const umx_ep *ep)
    umx_status umx_ep_error(const umx_ep *ep)
    umx_status umx_ep_flush(umx_ep *ep, const umx_op_params *params, umx_request **req_p)


cdef extern from "umx/channel.h" nogil:
    enum:
        UMX_MATCH_UNTAGGED
        UMX_MATCH_ANY
        UMX_MATCH_EXACT

    ctypedef struct umx_match:
        uint64_t tag
        uint64_t mask
        uint32_t flags

    umx_status umx_channel_send(
        umx_ep *ep, uint16_t channel, const umx_match *match, const umx_buffer *buf,
        const umx_op_params *params, umx_request **req_p)
    umx_status umx_channel_recv(
        umx_ep *ep, uint16_t channel, const umx_match *match, const umx_buffer *buf,
        const umx_op_params *params, umx_request **req_p, umx_recv_info *info)
    umx_status umx_channel_probe(
        umx_ep *ep, uint16_t channel, const umx_match *match, umx_recv_info *info)


cdef extern from "umx/am.h" nogil:
    umx_status umx_am_send(
        umx_ep *ep, uint16_t id, const void *header, size_t header_len,
        const umx_buffer *buf, const umx_op_params *params, umx_request **req_p)


cdef extern from "umx/tag.h" nogil:
    umx_status umx_tag_send(
        umx_ep *ep, uint64_t tag, const umx_buffer *buf, const umx_op_params *params,
        umx_request **req_p)
    umx_status umx_tag_recv(
        umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask,
        const umx_buffer *buf, const umx_op_params *params, umx_request **req_p,
        umx_recv_info *info)
    umx_status umx_tag_probe(
        umx_worker *worker, uint64_t tag, uint64_t mask, umx_recv_info *info)


cdef extern from "umx/rma.h" nogil:
    ctypedef struct umx_rma_item:
        uint64_t offset
        umx_buffer buf

    const umx_buffer *umx_memh_buffer(const umx_memh *memh)
    uint64_t umx_rkey_length(const umx_rkey *rkey)
    void *umx_rkey_pointer(umx_rkey *rkey)
    umx_status umx_rma_put(
        umx_rkey *rkey, const umx_rma_item *item, const umx_op_params *params,
        umx_request **req_p)
    umx_status umx_rma_get(
        umx_rkey *rkey, const umx_rma_item *item, const umx_op_params *params,
        umx_request **req_p)
    umx_status umx_rma_put_many(
        umx_rkey *rkey, const umx_rma_item *items, size_t count,
        const umx_op_params *params, umx_request **req_p)
    umx_status umx_rma_get_many(
        umx_rkey *rkey, const umx_rma_item *items, size_t count,
        const umx_op_params *params, umx_request **req_p)


cdef extern from "umx/comm.h" nogil:
    ctypedef struct umx_comm

    ctypedef struct umx_comm_status:
        int source
        uint32_t seq
        uint64_t tag
        size_t length

    int umx_comm_rank(const umx_comm *comm)
    int umx_comm_size(const umx_comm *comm)
    umx_status umx_comm_isend(
        umx_comm *comm, int dest, uint64_t tag, const umx_buffer *buf,
        const umx_op_params *params, umx_request **req_p)
    umx_status umx_comm_irecv(
        umx_comm *comm, int source, uint64_t tag, uint64_t mask, const umx_buffer *buf,
        const umx_op_params *params, umx_request **req_p, umx_comm_status *result)


cdef extern from "ucp_api.h":
    ctypedef struct ucp_c_api:
        uint32_t version
        uint32_t size
        umx_context *(*context_get)(object context) except NULL
        umx_worker *(*worker_get)(object worker) except NULL
        umx_ep *(*endpoint_get)(object endpoint) except NULL
        umx_comm *(*communicator_get)(object comm) except NULL
        umx_memh *(*memory_get)(object memory) except NULL
        umx_rkey *(*remote_memory_get)(object memory) except NULL
        object (*request_new)(object owner, PyObject *keep, umx_op_params *params_p)
        void (*request_add)(
            PyObject *request, umx_status status, umx_request *op) noexcept nogil
        int (*request_posted)(
            object request, umx_status status, umx_request *op) except -1
        int (*request_set_result)(object request, object result) except -1
        object (*status_raise)(umx_status status, const char *what)

    const ucp_c_api *ucp_api
    int import_ucp "ucp_import_api"() except -1
