/* SPDX-License-Identifier: BSD-3-Clause */
/* topology.c: where the devices of a host are. A topology does not change, so
 * threads share it without a lock. */
#include "topology/topology.h"

#include "base/errors.h"

#include <string.h>
#include <umx/topology.h>

typedef struct TopologyObject {
    PyObject_HEAD umx_topology *umx;
} TopologyObject;

/* ---- hwloc ---------------------------------------------------------------
 */

PyDoc_STRVAR(load_hwloc_doc,
             "load_hwloc(path=None, /)\n--\n\n"
             "Open hwloc from a file, or where the dynamic linker finds it,\n"
             "unless it is open. Raises ImportError.");

static PyObject *
load_hwloc(PyObject *Py_UNUSED(module), PyObject *args)
{
    char       text[512] = "";
    PyObject  *path = NULL, *bytes = NULL;
    umx_status status;

    if (!PyArg_ParseTuple(args, "|O:load_hwloc", &path)) {
        return NULL;
    }
    if (path != NULL && path != Py_None &&
        !PyUnicode_FSConverter(path, &bytes)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = umx_hwloc_load(
        (bytes == NULL) ? NULL : PyBytes_AS_STRING(bytes), text, sizeof(text));
    Py_END_ALLOW_THREADS Py_XDECREF(bytes);
    if (status != UMX_OK) {
        PyObject *said = PyUnicode_DecodeFSDefault(text);

        if (said != NULL) {
            PyErr_SetObject(PyExc_ImportError, said);
            Py_DECREF(said);
        }
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef topology_methods[] = {
    {"load_hwloc", load_hwloc, METH_VARARGS, load_hwloc_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- life ----------------------------------------------------------------
 */

static PyObject *
raise_status(mod_state *st, umx_status status)
{
    switch (status) {
    case UMX_ERR_INVALID_PARAM:
        PyErr_SetString(PyExc_ValueError,
                        "hwloc cannot read this XML of a topology");
        return NULL;
    case UMX_ERR_TIMED_OUT:
        PyErr_SetString(PyExc_ValueError,
                        "hwloc takes too long to read this XML of a topology");
        return NULL;
    case UMX_ERR_NO_RESOURCE:
        PyErr_SetString(PyExc_OSError,
                        "the system refuses a child process for the XML");
        return NULL;
    case UMX_ERR_EXCEEDS_LIMIT:
        PyErr_SetString(PyExc_ValueError, "the topology is too large");
        return NULL;
    case UMX_ERR_UNSUPPORTED:
        PyErr_SetString(PyExc_ImportError, "hwloc is not installed");
        return NULL;
    case UMX_ERR_IO_ERROR:
        PyErr_SetString(PyExc_OSError,
                        "hwloc cannot find the topology of this host");
        return NULL;
    default:
        return errors_raise(st, status, "Topology", NULL);
    }
}

static umx_status
create(const Py_buffer *xml, umx_topology **topology_p)
{
    umx_topology_params params = {.field_mask = UMX_TOPOLOGY_FIELD_XML,
                                  .xml        = xml->buf,
                                  .xml_len    = (size_t)xml->len};
    umx_status          status;

    Py_BEGIN_ALLOW_THREADS status = umx_topology_create(
        (xml->obj == NULL) ? NULL : &params, topology_p);
    Py_END_ALLOW_THREADS return status;
}

/* The topology is made first: other threads run meanwhile, and would find an
 * object without one by way of the collector. */
static PyObject *
topology_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"xml", NULL};

    mod_state      *st     = state_of_type(type);
    Py_buffer       xml    = {.obj = NULL};
    PyObject       *source = Py_None;
    umx_topology   *umx    = NULL;
    TopologyObject *self;
    umx_status      status;

    if (st == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Topology",
                                                   keywords, &source)) {
        return NULL;
    }
    if (source != Py_None &&
        PyObject_GetBuffer(source, &xml, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    status = create(&xml, &umx);
    PyBuffer_Release(&xml);
    if (status != UMX_OK) {
        return raise_status(st, status);
    }
    self = (TopologyObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        umx_topology_destroy(umx);
        return NULL;
    }
    self->umx = umx;
    return (PyObject *)self;
}

static int
topology_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static void
topology_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    umx_topology_destroy(((TopologyObject *)op)->umx);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- objects -------------------------------------------------------------
 */

/* A new tuple of what an object is; see the docstring of objects(). */
static PyObject *
object_tuple(const umx_topology_object *object)
{
    PyObject *parent, *name;

    parent = (object->parent == UMX_TOPOLOGY_NO_PARENT) ?
                 Py_NewRef(Py_None) :
                 PyLong_FromSize_t(object->parent);
    if (parent == NULL) {
        return NULL;
    }
    name = PyUnicode_DecodeUTF8(object->name, (Py_ssize_t)strlen(object->name),
                                "replace");
    if (name == NULL) {
        Py_DECREF(parent);
        return NULL;
    }
    return Py_BuildValue(
        "(NIii(IBBB)(HHH)N)", parent, object->depth, (int)object->kind,
        (int)object->type, object->pci.domain, object->pci.bus,
        object->pci.device, object->pci.function, object->class_id,
        object->vendor_id, object->device_id, name);
}

PyDoc_STRVAR(objects_doc,
             "objects($self, /)\n--\n\n"
             "List the objects: (parent or None, depth, kind, type,\n"
             "(domain, bus, device, function), (class_id, vendor_id,\n"
             "device_id), name), as in umx/topology.h.");

static PyObject *
topology_objects(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    umx_topology *umx   = ((TopologyObject *)op)->umx;
    size_t        count = umx_topology_num_objects(umx);
    PyObject     *list  = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = object_tuple(umx_topology_get_object(umx, i));

        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

/* ---- distances -----------------------------------------------------------
 */

static PyObject *
list_distances(const umx_topology_distance *distances, size_t num)
{
    PyObject *list = PyList_New((Py_ssize_t)num);

    for (size_t i = 0; list != NULL && i < num; i++) {
        PyObject *item = Py_BuildValue("(In)", distances[i].distance,
                                       (Py_ssize_t)distances[i].object);

        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *
no_object(Py_ssize_t object)
{
    return PyErr_Format(PyExc_IndexError, "there is no object %zd", object);
}

PyDoc_STRVAR(distances_doc,
             "distances($self, object, type, /)\n--\n\n"
             "List (distance, object) of the objects of a type, the closest\n"
             "first.");

static PyObject *
topology_distances(PyObject *op, PyObject *args)
{
    umx_topology          *umx = ((TopologyObject *)op)->umx;
    umx_topology_distance *distances;
    Py_ssize_t             object;
    int                    type;
    size_t                 num;
    PyObject              *list = NULL;

    if (!PyArg_ParseTuple(args, "ni:distances", &object, &type)) {
        return NULL;
    }
    distances = PyMem_New(umx_topology_distance, umx_topology_num_objects(umx));
    if (distances == NULL) {
        return PyErr_NoMemory();
    }
    if (umx_topology_distances(umx, (size_t)object, (umx_device_type)type,
                               distances, &num) == UMX_OK) {
        list = list_distances(distances, num);
    } else {
        (void)no_object(object);
    }
    PyMem_Free(distances);
    return list;
}

static int
add_cpu(PyObject *set, int cpu)
{
    PyObject *number = PyLong_FromLong(cpu);
    int       rc     = (number == NULL) ? -1 : PySet_Add(set, number);

    Py_XDECREF(number);
    return rc;
}

PyDoc_STRVAR(cpus_doc,
             "cpus($self, object, /)\n--\n\n"
             "The numbers of the CPUs that are closest to an object.");

static PyObject *
topology_cpus(PyObject *op, PyObject *number)
{
    Py_ssize_t      object = PyNumber_AsSsize_t(number, PyExc_IndexError);
    const uint64_t *words;
    PyObject       *set;

    if (object == -1 && PyErr_Occurred()) {
        return NULL;
    }
    words = umx_topology_get_cpus(((TopologyObject *)op)->umx, (size_t)object);
    if (words == NULL) {
        return no_object(object);
    }
    set = PyFrozenSet_New(NULL);
    for (int cpu = 0; set != NULL && cpu < UMX_TOPOLOGY_CPUS_MAX; cpu++) {
        if ((words[cpu / 64] >> (cpu % 64) & 1) && add_cpu(set, cpu) < 0) {
            Py_CLEAR(set);
        }
    }
    return set;
}

static PyMethodDef methods[] = {
    {"objects", topology_objects, METH_NOARGS, objects_doc},
    {"distances", topology_distances, METH_VARARGS, distances_doc},
    {"cpus", topology_cpus, METH_O, cpus_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(topology_doc,
             "Topology(xml=None)\n--\n\n"
             "The devices of this host, or of the one that an XML of hwloc's\n"
             "describes.");

static PyType_Slot topology_slots[] = {
    {Py_tp_doc, (void *)topology_doc}, {Py_tp_new, topology_new},
    {Py_tp_dealloc, topology_dealloc}, {Py_tp_traverse, topology_traverse},
    {Py_tp_methods, methods},          {0, NULL},
};

PyType_Spec topology_spec = {
    .name      = "ucp._ext.Topology",
    .basicsize = sizeof(TopologyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = topology_slots,
};
