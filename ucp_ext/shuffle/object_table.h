/* SPDX-License-Identifier: BSD-3-Clause */
/* object_table.h: a table of Python's objects as chunks of columns. */
#ifndef UCP_EXT_SHUFFLE_TABLE_H
#define UCP_EXT_SHUFFLE_TABLE_H

#include "base/compat.h"

#include <umx/column.h>

/* Chunks, and the memory of their columns, which is held. */
typedef struct data_table {
    umx_chunk  *chunks;
    size_t      num_chunks;
    size_t      num_columns;
    umx_column *columns;      /* of all chunks */
    umx_chunk  *dictionaries; /* one for each column */
    umx_column *values;       /* of the dictionaries */
    Py_buffer  *views;
    size_t      num_views;
} data_table;

/* From a sequence of chunks (num_rows, columns); a column is (type, width,
 * offset, validity, values, bytes, dictionary) with buffers or None, and a
 * dictionary None or (num_rows, column). The buffers are as long as their rows
 * need. -1 with an exception; then nothing is held. */
int  data_table_init(data_table *table, PyObject *chunks, size_t num_columns);
void data_table_fini(data_table *table);

/* Has the table some of those bytes? */
bool data_table_overlaps(const data_table *table, const void *data, size_t len);

#endif
