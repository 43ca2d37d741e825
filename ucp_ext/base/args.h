/* SPDX-License-Identifier: BSD-3-Clause */
/* args.h: the arguments of functions, in CPython's wording of errors. */
#ifndef UCP_EXT_BASE_ARGS_H
#define UCP_EXT_BASE_ARGS_H

#include "base/compat.h"

#include <umx/umx.h>

typedef struct mod_state mod_state;

/* Fill `values[n]` from FASTCALL arguments, in CPython's wording of errors;
 * borrowed, NULL where absent. The first `required` must be there; from
 * `num_positional` on keyword-only. */
int args_parse(const char *name, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames, const char *const *keywords, int n,
               int num_positional, int required, PyObject **values);

/* Check that a constructor, which programs do not call themselves, is given an
 * instance of `type`; `how` tells of the function to call instead. */
int args_check_made(PyObject *args, PyTypeObject *type, const char *how);

/* The items of a sequence, as a tuple of references: looking at one item may
 * run code of the program's that changes the sequence. `expected` is the error
 * for what cannot be iterated over. */
PyObject *args_items(PyObject *sequence, const char *expected);

/* None, ANY, or what is hashable, as a match. */
int args_tag(mod_state *st, PyObject *tag, umx_match *match);

/* An int of 64 bits, or what has __index__. */
int args_mask(PyObject *mask, uint64_t *value_p);

/* An int of 64 bits, or what has __index__; `name` is for errors. */
int args_raw_tag(PyObject *tag, const char *name, uint64_t *value_p);

/* A str that says why, or None or NULL, as bytes with what is no text replaced;
 * `*bytes_p` is NULL for None. */
int args_reason(PyObject *reason, PyObject **bytes_p);

/* 32 or 64, as bytes; NULL is 64. */
int args_bits(PyObject *bits, unsigned *size_p);

/* Seconds or None (`fallback_ns`) as nanoseconds. */
int args_timeout(PyObject *seconds, uint64_t fallback_ns, uint64_t *ns_p);

/* Check an allocator of bytes. NULL for None and bytearray, which is what
 * receives make by themselves. */
int args_allocator(PyObject **allocator_p);

/* (messages, bytes), each 0 for the config's; or None. */
int args_window(PyObject *window, umx_window *window_p);

#endif
