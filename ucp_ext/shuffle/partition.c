/* SPDX-License-Identifier: BSD-3-Clause */
/* partition.c: functions of the module that partition tables, and read what
 * they have made. */
#include "shuffle/partition.h"

#include "base/args.h"
#include "base/state.h"
#include "shuffle/object_table.h"

#include <umx/partition.h>

/* ---- arguments -----------------------------------------------------------
 */

/* Numbers of columns, which the caller frees; NULL with an exception. */
static size_t *
parse_keys(PyObject *sequence, size_t *num_keys_p)
{
    PyObject *items = args_items(sequence, "keys are a sequence");
    size_t   *keys;

    if (items == NULL) {
        return NULL;
    }
    *num_keys_p = (size_t)PyTuple_GET_SIZE(items);
    keys        = PyMem_Calloc(*num_keys_p, sizeof(*keys));
    if (keys == NULL) {
        PyErr_NoMemory();
    }
    for (size_t i = 0; keys != NULL && i < *num_keys_p; i++) {
        keys[i] = PyLong_AsSize_t(PyTuple_GET_ITEM(items, (Py_ssize_t)i));
        if (keys[i] == (size_t)-1 && PyErr_Occurred()) {
            PyMem_Free(keys);
            keys = NULL;
        }
    }
    Py_DECREF(items);
    return keys;
}

/* What is wrong with a column, whose shape has been checked. */
static const char *
describe_fault(const umx_partition_params *params, size_t column,
               umx_status status)
{
    const umx_column *first = &params->chunks[0].columns[column];

    if (status == UMX_ERR_EXCEEDS_LIMIT) {
        return "one partition would have more than 2 GiB of strings, which "
               "offsets of 32 bits do not reach; cast it to large_string or "
               "large_binary";
    }
    if (status == UMX_ERR_UNSUPPORTED) {
        return "its type cannot be a key";
    }
    if (first->dictionary != NULL) {
        return "a row has a number that is not in its dictionary";
    }
    return (first->type == UMX_COLUMN_STRING) ?
               "the offsets of its strings decrease, or exceed its bytes" :
               umx_status_string(status);
}

static void
raise_status(mod_state *st, umx_status status,
             const umx_partition_params *params, size_t column, PyObject *names)
{
    PyObject *name;

    if (status == UMX_ERR_INVALID_PARAM && column == SIZE_MAX) {
        PyErr_SetString(PyExc_ValueError, "the splitters are not in order");
        return;
    }
    if (column >= params->num_columns || status == UMX_ERR_NO_MEMORY) {
        (void)errors_raise(st, status, "partition", NULL);
        return;
    }
    name = PySequence_GetItem(names, (Py_ssize_t)column);
    if (name != NULL) {
        PyErr_Format(PyExc_ValueError, "column %R: %s", name,
                     describe_fault(params, column, status));
        Py_DECREF(name);
    }
}

/* ---- partitioning --------------------------------------------------------
 */

static PyObject *
sizes_as_tuple(const size_t *sizes, size_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);

    for (size_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *size = PyLong_FromSize_t(sizes[i]);

        if (size == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, size);
        }
    }
    return tuple;
}

static int
check_out(const data_table *table, const Py_buffer *out, size_t needed)
{
    if ((size_t)out->len < needed) {
        PyErr_Format(PyExc_ValueError, "out has %zd bytes, %zu are needed",
                     out->len, needed);
        return -1;
    }
    if ((uintptr_t)out->buf % 8 != 0) {
        PyErr_SetString(PyExc_ValueError,
                        "out begins at an address that is not a multiple of 8");
        return -1;
    }
    if (data_table_overlaps(table, out->buf, needed)) {
        PyErr_SetString(PyExc_ValueError, "out has memory of the table");
        return -1;
    }
    return 0;
}

/* Write to memory that `allocate` gives for a number of bytes: that memory. */
static PyObject *
write_out(mod_state *st, const data_table *table,
          const umx_partition *partition, size_t needed, PyObject *allocate)
{
    PyObject  *out = PyObject_CallFunction(allocate, "n", (Py_ssize_t)needed);
    Py_buffer  view;
    umx_status status;

    if (out == NULL || PyObject_GetBuffer(out, &view, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(out);
        return NULL;
    }
    if (check_out(table, &view, needed) < 0) {
        Py_CLEAR(out);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        status = umx_partition_write(partition, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS;
        if (status != UMX_OK) {
            (void)errors_raise(st, status, "partition", NULL);
            Py_CLEAR(out);
        }
    }
    PyBuffer_Release(&view);
    return out;
}

/* Partition by `ranges`; NULL: by the hash. */
static PyObject *
partition_table(mod_state *st, const data_table *table,
                const umx_partition_params *params,
                const umx_range_params *ranges, PyObject *names,
                PyObject *allocate)
{
    umx_partition *partition;
    PyObject      *out, *offsets, *rows;
    size_t         column;
    umx_status     status;

    Py_BEGIN_ALLOW_THREADS;
    status = (ranges != NULL) ?
                 umx_range_partition(params, ranges, &column, &partition) :
                 umx_hash_partition(params, &column, &partition);
    Py_END_ALLOW_THREADS;
    if (status != UMX_OK) {
        raise_status(st, status, params, column, names);
        return NULL;
    }
    out     = write_out(st, table, partition,
                        umx_partition_offsets(partition)[params->num_partitions],
                        allocate);
    offsets = sizes_as_tuple(umx_partition_offsets(partition),
                             params->num_partitions + (size_t)1);
    rows    = sizes_as_tuple(umx_partition_rows(partition),
                             params->num_partitions);
    umx_partition_destroy(partition);
    if (out == NULL || offsets == NULL || rows == NULL) {
        Py_XDECREF(out);
        Py_XDECREF(offsets);
        Py_XDECREF(rows);
        return NULL;
    }
    return Py_BuildValue("(NNN)", out, offsets, rows);
}

PyDoc_STRVAR(
    hash_partition_doc,
    "hash_partition(chunks, names, keys, num_partitions, seed, allocate,\n"
    "               threads, /)\n"
    "--\n\n"
    "Partition a table; ucp.shuffle has the call for programs.\n\n"
    "chunks: (num_rows, columns) each; a column is (type, width, offset,\n"
    "validity, values, bytes, dictionary), a dictionary (num_rows, column).\n"
    "allocate(nbytes) gives memory to write to. Returns that, the offsets of\n"
    "the regions in it, and the rows of each.");

/* Fill in the table and the keys of `params`, and partition. */
static PyObject *
parse_and_partition(PyObject *module, umx_partition_params *params,
                    const umx_range_params *ranges, PyObject *chunks,
                    PyObject *key_numbers, PyObject *names, PyObject *allocate)
{
    PyObject  *result = NULL;
    data_table table;
    size_t    *keys = parse_keys(key_numbers, &params->num_keys);

    if (keys == NULL) {
        return NULL;
    }
    params->num_columns = (size_t)PyTuple_GET_SIZE(names);
    if (data_table_init(&table, chunks, params->num_columns) == 0) {
        params->chunks     = table.chunks;
        params->num_chunks = table.num_chunks;
        params->keys       = keys;
        result = partition_table(PyModule_GetState(module), &table, params,
                                 ranges, names, allocate);
        data_table_fini(&table);
    }
    PyMem_Free(keys);
    return result;
}

static PyObject *
module_hash_partition(PyObject *module, PyObject *args)
{
    PyObject            *chunks, *names, *keys, *allocate;
    umx_partition_params params = {0};
    unsigned long long   seed;

    if (!PyArg_ParseTuple(args, "OO!OIKOI:hash_partition", &chunks,
                          &PyTuple_Type, &names, &keys, &params.num_partitions,
                          &seed, &allocate, &params.num_threads)) {
        return NULL;
    }
    params.seed = seed;
    return parse_and_partition(module, &params, NULL, chunks, keys, names,
                               allocate);
}

PyDoc_STRVAR(
    range_partition_doc,
    "range_partition(chunks, names, keys, splitters, orders, allocate,\n"
    "                threads, /)\n"
    "--\n\n"
    "Partition a table by ranges; ucp.shuffle has the call for programs.\n\n"
    "splitters: a chunk with a column for each key; orders: UMX_ORDER_ bits\n"
    "of each. The rest and what is returned are those of hash_partition().");

/* Numbers that the caller frees, one for each of `count` keys; NULL with an
 * exception. */
static unsigned *
parse_orders(PyObject *sequence, size_t count)
{
    PyObject *items = args_items(sequence, "orders are a sequence");
    unsigned *orders;

    if (items == NULL) {
        return NULL;
    }
    orders = PyMem_Calloc(count, sizeof(*orders));
    if (orders == NULL) {
        PyErr_NoMemory();
    } else if ((size_t)PyTuple_GET_SIZE(items) != count) {
        PyErr_Format(PyExc_ValueError, "%zd orders of %zu keys",
                     PyTuple_GET_SIZE(items), count);
        PyMem_Free(orders);
        orders = NULL;
    }
    for (size_t i = 0; orders != NULL && i < count; i++) {
        orders[i] = (unsigned)PyLong_AsUnsignedLong(
            PyTuple_GET_ITEM(items, (Py_ssize_t)i));
        if (PyErr_Occurred()) {
            PyMem_Free(orders);
            orders = NULL;
        }
    }
    Py_DECREF(items);
    return orders;
}

static PyObject *
module_range_partition(PyObject *module, PyObject *args)
{
    PyObject *chunks, *names, *keys, *splitters, *orders, *allocate, *one;
    PyObject *result            = NULL;
    umx_partition_params params = {0};
    umx_range_params     ranges;
    data_table           between;
    Py_ssize_t           num_keys;
    unsigned            *bits;

    if (!PyArg_ParseTuple(args, "OO!OOOOI:range_partition", &chunks,
                          &PyTuple_Type, &names, &keys, &splitters, &orders,
                          &allocate, &params.num_threads)) {
        return NULL;
    }
    num_keys = PySequence_Size(keys);
    bits     = (num_keys < 0) ? NULL : parse_orders(orders, (size_t)num_keys);
    one      = (bits == NULL) ? NULL : PyTuple_Pack(1, splitters);
    if (one != NULL && data_table_init(&between, one, (size_t)num_keys) == 0) {
        ranges                = (umx_range_params){between.chunks, bits};
        params.num_partitions = (between.chunks->num_rows < UINT32_MAX) ?
                                    (uint32_t)between.chunks->num_rows + 1 :
                                    UINT32_MAX;
        result = parse_and_partition(module, &params, &ranges, chunks, keys,
                                     names, allocate);
        data_table_fini(&between);
    }
    Py_XDECREF(one);
    PyMem_Free(bits);
    return result;
}

/* ---- read_partition ------------------------------------------------------
 */

/* (begin, end) in the region; None if there is no such buffer. */
static PyObject *
range_in(const Py_buffer *region, const void *data, size_t len)
{
    Py_ssize_t begin;

    if (data == NULL) {
        return Py_NewRef(Py_None);
    }
    begin = (const char *)data - (const char *)region->buf;
    return Py_BuildValue("(nn)", begin, begin + (Py_ssize_t)len);
}

static PyObject *
describe_column(const Py_buffer *region, const umx_region_column *found,
                size_t num_rows)
{
    const umx_column *column = &found->column;
    size_t            bits   = (num_rows + 7) / 8;
    size_t            values = (column->type == UMX_COLUMN_BOOL) ?
                                   bits :
                               (column->type == UMX_COLUMN_STRING) ?
                                   (num_rows + 1) * column->width :
                                   num_rows * column->width;

    return Py_BuildValue("(iInNNN)", (int)column->type, column->width,
                         (Py_ssize_t)found->num_nulls,
                         range_in(region, column->validity, bits),
                         range_in(region, column->values, values),
                         range_in(region, column->bytes, column->num_bytes));
}

static PyObject *
describe_region(const Py_buffer *region, const umx_region_column *columns,
                size_t num_columns, size_t num_rows)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)num_columns);

    for (size_t i = 0; tuple != NULL && i < num_columns; i++) {
        PyObject *column = describe_column(region, &columns[i], num_rows);

        if (column == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, column);
        }
    }
    return (tuple == NULL) ? NULL :
                             Py_BuildValue("(nN)", (Py_ssize_t)num_rows, tuple);
}

static PyObject *
read_region(const Py_buffer *region)
{
    umx_region_column *columns     = NULL;
    size_t             num_columns = 0, num_rows = 0;
    PyObject          *result = NULL;
    umx_status         status;

    status = umx_partition_read(region->buf, (size_t)region->len, NULL, 0,
                                &num_columns, &num_rows);
    if (status == UMX_ERR_BUFFER_TOO_SMALL) {
        columns = PyMem_Calloc(num_columns, sizeof(*columns));
        if (columns == NULL) {
            return PyErr_NoMemory();
        }
        Py_BEGIN_ALLOW_THREADS;
        status = umx_partition_read(region->buf, (size_t)region->len, columns,
                                    num_columns, &num_columns, &num_rows);
        Py_END_ALLOW_THREADS;
    }
    if (status == UMX_OK) {
        result = describe_region(region, columns, num_columns, num_rows);
    } else {
        PyErr_SetString(PyExc_ValueError,
                        (status == UMX_ERR_INVALID_PARAM) ?
                            "the region begins at an address that is not a "
                            "multiple of 8" :
                            "not the region of a partition, or damaged");
    }
    PyMem_Free(columns);
    return result;
}

PyDoc_STRVAR(read_partition_doc,
             "read_partition(region, /)\n--\n\n"
             "The number of rows of a region, and for each column its type,\n"
             "width, number of nulls, and where its buffers begin and end.");

static PyObject *
module_read_partition(PyObject *Py_UNUSED(module), PyObject *region)
{
    Py_buffer view;
    PyObject *result;

    if (PyObject_GetBuffer(region, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    result = read_region(&view);
    PyBuffer_Release(&view);
    return result;
}

PyMethodDef partition_methods[] = {
    {"hash_partition", module_hash_partition, METH_VARARGS, hash_partition_doc},
    {"range_partition", module_range_partition, METH_VARARGS,
     range_partition_doc},
    {"read_partition", module_read_partition, METH_O, read_partition_doc},
    {NULL, NULL, 0, NULL},
};
