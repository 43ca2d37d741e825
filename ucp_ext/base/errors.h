/* SPDX-License-Identifier: BSD-3-Clause */
/* errors.h: status, exception class and text of what goes wrong. */
#ifndef UCP_EXT_BASE_ERRORS_H
#define UCP_EXT_BASE_ERRORS_H

#include "base/compat.h"

#include <umx/umx.h>

typedef struct mod_state mod_state;

/* class, bases (space separated), docstring; a base comes before what derives
 * from it. */
#define EXCEPTION_TABLE(X)                                                     \
    X(UCXBaseException, "Exception", "Base of all errors of ucp.")             \
    X(UCXError, "UCXBaseException", "An operation failed.")                    \
    X(UCXConfigError, "UCXError ValueError", "A setting is not valid.")        \
    X(UCXCloseError, "UCXError", "The endpoint is closed.")                    \
    X(UCXCanceled, "UCXError", "The operation was cancelled.")                 \
    X(UCXPeerClosed, "UCXCloseError UCXCanceled",                              \
      "The endpoint was closed while the operation was pending.")              \
    X(UCXConnectionReset, "UCXError ConnectionResetError",                     \
      "The peer went away.")                                                   \
    X(UCXMsgTruncated, "UCXError ValueError",                                  \
      "The lengths of message and buffer differ.")                             \
    X(UCXNotConnected, "UCXError ConnectionRefusedError",                      \
      "Nobody listens at the address.")                                        \
    X(UCXUnreachable, "UCXError OSError", "No transport reaches the address.") \
    X(UCXTimeout, "UCXError TimeoutError", "The time ran out.")                \
    X(UCXRejected, "UCXError ConnectionRefusedError",                          \
      "The peer refused the connection.")                                      \
    X(UCXProtocolError, "UCXError", "The peer broke the protocol.")            \
    X(UCXVersionError, "UCXProtocolError",                                     \
      "The peer speaks another version of the protocol.")                      \
    X(UCXAuthError, "UCXRejected", "The tokens of the two sides differ.")      \
    X(UCXNoMemory, "UCXError MemoryError", "Out of memory.")                   \
    X(UCXBusy, "UCXError OSError", "What is asked for is in use.")             \
    X(UCXInvalidKey, "UCXError ValueError",                                    \
      "The key is damaged, of another process, or its memory is closed.")      \
    X(UCXWorkerGone, "UCXNotConnected UCXCanceled",                            \
      "Nobody is at the worker address.")                                      \
    X(UCXRankFailed, "UCXError", "A rank of the communicator has failed.")     \
    X(UCXWarning, "UserWarning", "Warnings of ucp.")

typedef enum exception_index {
#define EXCEPTION_INDEX(name, bases, doc) EXC_##name,
    EXCEPTION_TABLE(EXCEPTION_INDEX)
#undef EXCEPTION_INDEX
    NUM_EXCEPTIONS
} exception_index;

int errors_init(PyObject *module, mod_state *st);

/* A new exception for `status`; `op` and `detail` may be NULL. */
PyObject *errors_new(mod_state *st, umx_status status, const char *op,
                     const char *detail);

/* errors_new() with the whole text. */
PyObject *errors_new_text(mod_state *st, umx_status status, const char *op,
                          const char *text);

/* Where something failed: "connect to 192.0.2.1:80". */
typedef struct errors_place {
    const char *preposition;
    PyObject   *address; /* borrowed; a socket address */
    int         error;   /* the system's number, or 0 */
} errors_place;

/* A new exception that names the place; its `errno` and `peer` are set. */
PyObject *errors_new_at(mod_state *st, umx_status status, const char *op,
                        const errors_place *place, const char *detail);

/* `exc`, whose `errno` is set if it is not 0; NULL with an exception, as `exc`
 * may be. */
PyObject *errors_with_errno(PyObject *exc, int error);

/* Raise an exception that was made, and drop it; returns NULL. */
PyObject *errors_set(PyObject *exc);

/* Raise it; returns NULL. */
PyObject *errors_raise(mod_state *st, umx_status status, const char *op,
                       const char *detail);

/* The text that a call has allocated, which is freed, or the exception of its
 * status: NULL. */
PyObject *errors_or_text(mod_state *st, umx_status status, char **text,
                         const char *op);

#endif
