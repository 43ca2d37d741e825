/* SPDX-License-Identifier: BSD-3-Clause */
/* object_table.c: a table of Python's objects as chunks of columns. */
#include "shuffle/object_table.h"

#include "base/args.h"

enum {
    MAX_VIEWS = 6 /* of a column and its dictionary */
};

/* Hold the memory of `buffer`, which may be None: NULL. */
static int
hold(data_table *table, PyObject *buffer, const uint8_t **data_p, size_t *len_p)
{
    Py_buffer *view = &table->views[table->num_views];

    *data_p = NULL;
    *len_p  = 0;
    if (buffer == Py_None) {
        return 0;
    }
    if (PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    table->num_views++;
    *data_p = view->buf;
    *len_p  = (size_t)view->len;
    return 0;
}

/* Are there `len` bytes for `num_items` of `bits` bits each, from `offset` on?
 * -1 with an exception. */
static int
check_len(const char *what, size_t len, size_t offset, size_t num_items,
          size_t bits)
{
    unsigned __int128 needed = (unsigned __int128)offset + num_items;

    needed *= bits;
    if (needed <= (unsigned __int128)len * 8) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 "%s of %zu bytes cannot have %zu items from item %zu on", what,
                 len, num_items, offset);
    return -1;
}

static int
check_lens(const umx_column *column, size_t num_rows, size_t validity_len,
           size_t values_len)
{
    size_t bits      = (column->type == UMX_COLUMN_BOOL) ? 1 :
                                                           (size_t)column->width * 8;
    size_t num_items = num_rows + (column->type == UMX_COLUMN_STRING);

    if (num_rows == 0) {
        return 0; /* then no buffer is needed */
    }
    if (column->validity != NULL &&
        check_len("validity", validity_len, column->offset, num_rows, 1) < 0) {
        return -1;
    }
    return check_len("values", values_len, column->offset, num_items, bits);
}

/* All of a column but its dictionary, which is borrowed. */
static int
parse_buffers(data_table *table, PyObject *item, size_t num_rows,
              umx_column *column, PyObject **dictionary_p)
{
    PyObject      *validity, *values, *bytes;
    const uint8_t *data;
    Py_ssize_t     offset;
    size_t         validity_len, values_len;
    int            type;
    unsigned       width;

    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a column is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(item, "iInOOOO:column", &type, &width, &offset,
                          &validity, &values, &bytes, dictionary_p)) {
        return -1;
    }
    if (offset < 0) {
        PyErr_Format(PyExc_ValueError, "the offset is %zd", offset);
        return -1;
    }
    column->type   = (umx_column_type)type;
    column->width  = width;
    column->offset = (size_t)offset;
    if (hold(table, validity, &column->validity, &validity_len) < 0 ||
        hold(table, values, &data, &values_len) < 0 ||
        hold(table, bytes, &column->bytes, &column->num_bytes) < 0) {
        return -1;
    }
    column->values = data;
    return check_lens(column, num_rows, validity_len, values_len);
}

static int
parse_dictionary(data_table *table, PyObject *item, umx_chunk *dictionary,
                 umx_column *values)
{
    PyObject  *column, *none;
    Py_ssize_t num_rows;

    if (!PyArg_ParseTuple(item, "nO:dictionary", &num_rows, &column)) {
        return -1;
    }
    if (num_rows < 0) {
        PyErr_Format(PyExc_ValueError, "the dictionary has %zd values",
                     num_rows);
        return -1;
    }
    *dictionary = (umx_chunk){(size_t)num_rows, values};
    return parse_buffers(table, column, dictionary->num_rows, values, &none);
}

static int
parse_column(data_table *table, PyObject *item, size_t num_rows, size_t n)
{
    umx_column *column = &table->columns[n];
    PyObject   *dictionary;

    if (parse_buffers(table, item, num_rows, column, &dictionary) < 0) {
        return -1;
    }
    if (dictionary == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(dictionary)) {
        PyErr_SetString(PyExc_TypeError, "a dictionary is a tuple or None");
        return -1;
    }
    column->dictionary = &table->dictionaries[n];
    return parse_dictionary(table, dictionary, &table->dictionaries[n],
                            &table->values[n]);
}

static int
parse_columns(data_table *table, PyObject *sequence, umx_chunk *chunk)
{
    size_t    first   = (size_t)(chunk->columns - table->columns);
    PyObject *columns = args_items(sequence, "columns are a sequence");
    int       result  = 0;

    if (columns == NULL) {
        return -1;
    }
    if ((size_t)PyTuple_GET_SIZE(columns) != table->num_columns) {
        PyErr_Format(PyExc_ValueError, "a chunk has %zd columns, not %zu",
                     PyTuple_GET_SIZE(columns), table->num_columns);
        result = -1;
    }
    for (size_t i = 0; result == 0 && i < table->num_columns; i++) {
        result = parse_column(table, PyTuple_GET_ITEM(columns, (Py_ssize_t)i),
                              chunk->num_rows, first + i);
    }
    Py_DECREF(columns);
    return result;
}

static int
parse_chunk(data_table *table, PyObject *item, size_t n)
{
    PyObject  *columns;
    Py_ssize_t num_rows;

    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a chunk is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(item, "nO:chunk", &num_rows, &columns)) {
        return -1;
    }
    if (num_rows < 0) {
        PyErr_Format(PyExc_ValueError, "a chunk has %zd rows", num_rows);
        return -1;
    }
    table->chunks[n] = (umx_chunk){(size_t)num_rows,
                                   table->columns + n * table->num_columns};
    return parse_columns(table, columns, &table->chunks[n]);
}

static int
allocate(data_table *table)
{
    size_t columns = table->num_chunks * table->num_columns;

    table->chunks       = PyMem_Calloc(table->num_chunks, sizeof(umx_chunk));
    table->columns      = PyMem_Calloc(columns, sizeof(umx_column));
    table->dictionaries = PyMem_Calloc(columns, sizeof(umx_chunk));
    table->values       = PyMem_Calloc(columns, sizeof(umx_column));
    table->views        = PyMem_Calloc(columns, MAX_VIEWS * sizeof(Py_buffer));
    if (table->chunks == NULL || table->columns == NULL ||
        table->dictionaries == NULL || table->values == NULL ||
        table->views == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

int
data_table_init(data_table *table, PyObject *chunks, size_t num_columns)
{
    PyObject *items = args_items(chunks, "chunks are a sequence");
    int       result;

    *table = (data_table){.num_columns = num_columns};
    if (items == NULL) {
        return -1;
    }
    table->num_chunks = (size_t)PyTuple_GET_SIZE(items);
    result            = allocate(table);
    for (size_t i = 0; result == 0 && i < table->num_chunks; i++) {
        result = parse_chunk(table, PyTuple_GET_ITEM(items, (Py_ssize_t)i), i);
    }
    Py_DECREF(items);
    if (result < 0) {
        data_table_fini(table);
    }
    return result;
}

void
data_table_fini(data_table *table)
{
    for (size_t i = 0; i < table->num_views; i++) {
        PyBuffer_Release(&table->views[i]);
    }
    PyMem_Free(table->views);
    PyMem_Free(table->values);
    PyMem_Free(table->dictionaries);
    PyMem_Free(table->columns);
    PyMem_Free(table->chunks);
}

bool
data_table_overlaps(const data_table *table, const void *data, size_t len)
{
    uintptr_t begin = (uintptr_t)data;

    for (size_t i = 0; i < table->num_views; i++) {
        uintptr_t at  = (uintptr_t)table->views[i].buf;
        size_t    own = (size_t)table->views[i].len;

        if (own != 0 && at < begin + len && begin < at + own) {
            return true;
        }
    }
    return false;
}
