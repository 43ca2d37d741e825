/* SPDX-License-Identifier: BSD-3-Clause */
/* capsule.c: the table of functions for C code of the program, ucp_api.h. */
#include "capi/capsule.h"

#include <ucp_api.h>

#include "base/state.h"
#include "capi/objects.h"
#include "capi/posted.h"

/* ---- errors --------------------------------------------------------------
 */

static PyObject *
raise_status(umx_status status, const char *what)
{
    PyObject *module;

    if (status >= 0) {
        return PyErr_Format(PyExc_ValueError, "the status %d is no failure",
                            (int)status);
    }
    module = PyImport_ImportModule("ucp._ext");
    if (module != NULL) {
        (void)errors_raise(PyModule_GetState(module), status, what, NULL);
        Py_DECREF(module);
    }
    return NULL;
}

/* ---- the capsule ---------------------------------------------------------
 */

static const ucp_c_api table = {
    .version            = UCP_C_API_VERSION,
    .size               = sizeof(ucp_c_api),
    .context_get        = objects_context,
    .worker_get         = objects_worker,
    .endpoint_get       = objects_endpoint,
    .communicator_get   = objects_communicator,
    .memory_get         = objects_memory,
    .remote_memory_get  = objects_remote_memory,
    .request_new        = posted_new,
    .request_add        = posted_add,
    .request_posted     = posted_done,
    .request_set_result = posted_set_result,
    .status_raise       = raise_status,
};

int
capsule_init(PyObject *module)
{
    PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&table,
                                      UCP_C_API_CAPSULE, NULL);
    int       rc;

    if (capsule == NULL) {
        return -1;
    }
    rc = PyModule_AddObjectRef(module, "_C_API", capsule);
    Py_DECREF(capsule);
    return rc;
}
