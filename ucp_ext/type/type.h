/* SPDX-License-Identifier: BSD-3-Clause */
/* type.h: the types of this room, which the module makes. */
#ifndef UCP_EXT_TYPE_TYPE_H
#define UCP_EXT_TYPE_TYPE_H

#include "base/compat.h"

extern PyType_Spec address_spec, array_spec, channel_spec, context_spec,
    endpoint_spec, heap_spec, listener_spec, loan_spec, memory_spec,
    message_spec, message_listener_spec, message_receiver_spec,
    message_sender_spec, pool_spec, pool_buffer_spec, remote_spec,
    tag_message_spec, thread_future_spec, worker_spec;

/* A function of the module: UCX's options. */
PyObject *context_config_options(PyObject *module, PyObject *args,
                                 PyObject *kwargs);

#endif
