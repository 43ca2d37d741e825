/* SPDX-License-Identifier: BSD-3-Clause */
/* memh.h: memory that is registered. */
#ifndef UCP_EXT_BUFFER_MEMH_H
#define UCP_EXT_BUFFER_MEMH_H

#include "buffer/buffer.h"

/* Memory of the program's that is registered. */
typedef struct memory_loan {
    struct memory_loan
               *next; /* on the list of memory that libumx has given back */
    buffer_hold hold;
} memory_loan;

/* Release the memory that libumx has given back. */
void memory_release_freed(void);

struct MemoryObject {
    PyObject_HEAD mod_state *st;
    ContextObject           *context;
    umx_memh                *umx;  /* NULL once closed and out of use */
    struct memory_loan      *loan; /* of a registered buffer; libumx's */
    Py_ssize_t               exports;
    bool                     is_readonly;      /* for this process, too */
    bool                     is_peer_readonly; /* for peers */
    bool                     is_closed;
    PyObject                *weakrefs;
};

/* Check that the memory is not closed; -1 with UCXError. */
int memory_check_open(PyObject *op);

/* Count an export of the memory, which keeps it when it is closed. */
void memory_begin_export(PyObject *op);
void memory_end_export(PyObject *op);

/* Is it a Memory? */
bool memory_check(PyObject *exporter);

/* End the access; the memory stays while it is looked at or moved. */
void memory_shut(MemoryObject *self);

/* Slots of the type. */
int  memory_traverse(PyObject *op, visitproc visit, void *arg);
int  memory_clear(PyObject *op);
void memory_dealloc(PyObject *op);
int  memory_getbuffer(PyObject *op, Py_buffer *view, int flags);
void memory_releasebuffer(PyObject *op, Py_buffer *view);

#endif
