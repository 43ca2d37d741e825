/* SPDX-License-Identifier: BSD-3-Clause */
/* pieces.c: the pieces of a buffer that go to the ranks, or come from them. */
#include "comm/pieces.h"

#include "buffer/item.h"
#include "worker/worker.h"

int
pieces_alloc(collective_call *call)
{
    size_t  size = (size_t)call->size;
    size_t *all  = PyMem_Calloc(4 * size, sizeof(*all));

    if (all == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    call->send_counts = all;
    call->send_displs = all + size;
    call->recv_counts = all + 2 * size;
    call->recv_displs = all + 3 * size;
    return 0;
}

/* Fill `sizes` with the items of a sequence, in bytes. */
static int
parse_sizes(PyObject *sequence, const char *what, size_t item, int size,
            size_t *sizes)
{
    char      text[64];
    PyObject *items;

    snprintf(text, sizeof(text), "%s must be a sequence of ints", what);
    items = args_items(sequence, text);
    if (items == NULL) {
        return -1;
    }
    if (PyTuple_GET_SIZE(items) != size) {
        PyErr_Format(PyExc_ValueError, "%s has %zd items for %d ranks", what,
                     PyTuple_GET_SIZE(items), size);
        goto drop_items;
    }
    for (int i = 0; i < size; i++) {
        Py_ssize_t number = PyNumber_AsSsize_t(PyTuple_GET_ITEM(items, i),
                                               PyExc_OverflowError);

        if (number == -1 && PyErr_Occurred()) {
            goto drop_items;
        }
        if (number < 0 || (size_t)number > PY_SSIZE_T_MAX / item) {
            PyErr_Format(PyExc_ValueError, "%s[%d] is %zd", what, i, number);
            goto drop_items;
        }
        sizes[i] = (size_t)number * item;
    }
    Py_DECREF(items);
    return 0;

drop_items:
    Py_DECREF(items);
    return -1;
}

static int
equal_parts(const piece_args *args, int size, size_t *counts)
{
    if (args->buf->len % (size_t)size != 0) {
        PyErr_Format(PyExc_ValueError,
                     "the %s buffer of %zu bytes has no %d equal parts",
                     args->what, args->buf->len, size);
        return -1;
    }
    for (int i = 0; i < size; i++) {
        counts[i] = args->buf->len / (size_t)size;
    }
    return 0;
}

static int
check_pieces(const piece_args *args, size_t item, int size,
             const size_t *counts, const size_t *displs)
{
    for (int i = 0; i < size; i++) {
        if (displs[i] > args->buf->len ||
            counts[i] > args->buf->len - displs[i]) {
            PyErr_Format(PyExc_ValueError,
                         "the piece of rank %d, %zu items at %zu, does not lie "
                         "in the %s buffer of %zu items",
                         i, counts[i] / item, displs[i] / item, args->what,
                         args->buf->len / item);
            return -1;
        }
    }
    return 0;
}

/* The counts and displacements of all ranks, in bytes. */
int
pieces_parse(const CommObject *self, const piece_args *args, size_t *counts,
             size_t *displs)
{
    int    size = umx_comm_size(self->umx);
    size_t item = 1, next = 0;
    char   text[32];

    if (!collective_is_absent(args->counts) ||
        !collective_is_absent(args->displs)) {
        item = item_size(self->worker->st, args->obj);
        if (item == 0) {
            return -1;
        }
    }
    snprintf(text, sizeof(text), "%s counts", args->what);
    if ((collective_is_absent(args->counts) ?
             equal_parts(args, size, counts) :
             parse_sizes(args->counts, text, item, size, counts)) < 0) {
        return -1;
    }
    snprintf(text, sizeof(text), "%s displs", args->what);
    if (!collective_is_absent(args->displs)) {
        if (parse_sizes(args->displs, text, item, size, displs) < 0) {
            return -1;
        }
    } else {
        for (int i = 0; i < size; i++) {
            displs[i] = next;
            next += counts[i];
        }
    }
    return check_pieces(args, item, size, counts, displs);
}

/* Pieces that are received must not overlap: some bytes would come twice. */
int
pieces_check_no_overlap(const collective_call *call)
{
    for (int i = 0; i < call->size; i++) {
        for (int j = 0; j < i; j++) {
            size_t a = call->recv_displs[i], b = call->recv_displs[j];

            if (call->recv_counts[i] != 0 && call->recv_counts[j] != 0 &&
                a < b + call->recv_counts[j] && b < a + call->recv_counts[i]) {
                PyErr_Format(PyExc_ValueError,
                             "the pieces of the ranks %d and %d overlap in the "
                             "recv buffer",
                             j, i);
                return -1;
            }
        }
    }
    return 0;
}

umx_pieces
pieces_sent(const collective_call *call)
{
    return (umx_pieces){call->send_counts, call->send_displs};
}

umx_pieces
pieces_received(const collective_call *call)
{
    return (umx_pieces){call->recv_counts, call->recv_displs};
}
