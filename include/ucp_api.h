/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ucp_api.h  What an extension module gets of the objects of the Python
 * package ucp: the objects of libumx that they are made of, and awaitables for
 * operations that C code posts.
 *
 * A module calls ucp_import_api() once, in its function of initialisation, and
 * then the functions of the table `ucp_api`. Each source file that includes this
 * header has a `ucp_api` of its own.
 *
 * The GIL: every function but request_add() is called with it.
 *
 * Thread: a worker, and all that is under it, belongs to the thread of its event
 * loop. In any other thread the functions raise RuntimeError. In that thread,
 * functions of libumx that post operations may be called without the GIL. Those
 * marked (P) make progress and run callbacks of ucp, which need the GIL: they are
 * left to ucp, whose event loop makes progress while Python awaits.
 *
 * Lifetime: a pointer is good as long as the Python object is alive and its
 * worker open. Only Python code of the worker's thread closes a worker. So a
 * pointer that was got stays good until the C code returns, calls Python code,
 * or drops its reference to the object.
 *
 * After fork: an object belongs to the process that made it. In a child the
 * functions raise RuntimeError.
 */
#ifndef UCP_API_H
#define UCP_API_H

#include <Python.h>
#include <umx/umx.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of the table; another number means that a field has gone or
 * changed. Fields that are added at the end change the size only. */
#define UCP_C_API_VERSION 1

/** The name of the capsule that has the table. */
#define UCP_C_API_CAPSULE "ucp._C_API"

/** The functions that ucp has for C code. */
typedef struct ucp_c_api {
    uint32_t version; /**< UCP_C_API_VERSION of the ucp that is running */
    uint32_t size;    /**< bytes of its table */

    /**
     * Get the context of a ucp.Context. Thread: any.
     * @return NULL with TypeError
     */
    umx_context *(*context_get)(PyObject *context);

    /**
     * Get the worker of a ucp.Worker, as ucp.current_worker() returns it.
     * @return NULL with TypeError; RuntimeError: it is closed, of another
     *         thread, or of the parent process
     */
    umx_worker *(*worker_get)(PyObject *worker);

    /**
     * Get the endpoint of a ucp.Endpoint. One that the peer has closed may have
     * messages that were not read; umx_ep_get_state() tells.
     * @return NULL with TypeError; UCXCloseError: this side has closed it;
     *         RuntimeError: it is of another thread, or of the parent process
     */
    umx_ep *(*endpoint_get)(PyObject *endpoint);

    /**
     * Get the communicator of a ucp.Communicator.
     * @return NULL with TypeError; UCXCloseError: it is closed; RuntimeError: it
     *         is of another thread, or of the parent process
     */
    umx_comm *(*communicator_get)(PyObject *comm);

    /**
     * Get the memory of a ucp.Memory, as umx_buffer.memh and for umx_memh_*().
     * Thread: any.
     * @return NULL with TypeError; UCXError: it is closed
     */
    umx_memh *(*memory_get)(PyObject *memory);

    /**
     * Get the key of a ucp.RemoteMemory, for umx_rma_*().
     * @return NULL with TypeError; UCXCloseError: it is closed; RuntimeError: it
     *         is of another thread, or of the parent process
     */
    umx_rkey *(*remote_memory_get)(PyObject *memory);

    /**
     * Make an awaitable that is done when the operations are that are posted with
     * `*params_p`: one or many. It is cancelled as other Requests are: the
     * operations are, and the await ends when libumx is done with the memory. A
     * receive that is cancelled after it was done has taken its message.
     *
     * After this the operations are posted, with the parameters as they are, and
     * request_add() or request_posted() is called after each post, before
     * anything else is. A request that is dropped before request_posted(), because
     * of an error, ends silently: the operations that request_add() has noted are
     * abandoned as umx_request_abandon() does, and `keep` lives until libumx is
     * done with the memory. Where no copy helps, the endpoint `owner` ends.
     * An await before request_posted() raises RuntimeError.
     *
     * @param owner     ucp.Worker, ucp.Endpoint or ucp.Communicator whose
     *                  operations they are; it is named by exceptions, and kept
     *                  alive
     * @param keep      an object that is kept alive until libumx is done with all
     *                  operations, as a memoryview of the buffer; NULL: none
     * @param params_p  filled in
     * @return a new reference; NULL with TypeError, or as the function that gets
     *         `owner`'s pointer
     */
    PyObject *(*request_new)(PyObject *owner, PyObject *keep,
                             umx_op_params *params_p);

    /**
     * Note what a posting call returned that is not the last one. It needs no
     * GIL.
     * @param status  what the call returned, in a statement of its own: C does
     *                not say which argument of a call is evaluated first
     * @param op      what the call stored, if it returned UMX_INPROGRESS
     */
    void (*request_add)(PyObject *request, umx_status status, umx_request *op);

    /**
     * Note what the last posting call returned: all are posted, and Python may
     * await the request. Whatever the status is, the await tells: it returns
     * None, or raises the exception of the first failure.
     *
     * After many posts that request_add() has noted: UMX_OK and NULL. Nothing is
     * posted with the parameters after it: such an operation is abandoned, as
     * one is that request_add() notes then.
     *
     * @return 0; -1 with TypeError; RuntimeError: it was called already;
     *         ValueError: an operation in progress was noted as NULL
     */
    int (*request_posted)(PyObject *request, umx_status status,
                          umx_request *op);

    /**
     * Have the await return `result` instead of None. It is called before
     * request_posted().
     * @return -1 with TypeError
     */
    int (*request_set_result)(PyObject *request, PyObject *result);

    /**
     * Raise the exception of a failure, as Python's operations do.
     * @param what  the name of the operation, for the exception's `op`; or NULL
     * @return NULL
     */
    PyObject *(*status_raise)(umx_status status, const char *what);
} ucp_c_api;

/** The table; NULL before ucp_import_api(). */
static const ucp_c_api *ucp_api;

/**
 * Import ucp, and set `ucp_api`.
 * @return 0; -1 with ImportError if ucp cannot be imported, or if its table is
 *         not what this module was compiled with
 */
static inline int
ucp_import_api(void)
{
    const ucp_c_api *api =
        (const ucp_c_api *)PyCapsule_Import(UCP_C_API_CAPSULE, 0);

    if (api == NULL) {
        return -1;
    }
    if (api->version != UCP_C_API_VERSION || api->size < sizeof(*api)) {
        PyErr_Format(PyExc_ImportError,
                     "this module was compiled with version %u of "
                     UCP_C_API_CAPSULE " (%u bytes), and ucp has version %u "
                     "(%u bytes): compile it with the ucp that is installed",
                     (unsigned)UCP_C_API_VERSION, (unsigned)sizeof(*api),
                     (unsigned)api->version, (unsigned)api->size);
        return -1;
    }
    ucp_api = api;
    return 0;
}

#ifdef __cplusplus
}
#endif
#endif
