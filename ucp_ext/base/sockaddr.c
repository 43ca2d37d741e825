/* SPDX-License-Identifier: BSD-3-Clause */
/* sockaddr.c: socket addresses as Python has them. */
#include "base/sockaddr.h"

#include <arpa/inet.h>
#include <string.h>

int
sockaddr_parse_port(PyObject *tuple, in_port_t *port_p)
{
    long port = PyLong_AsLong(PyTuple_GET_ITEM(tuple, 1));

    if (port == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (port < 0 || port > 65535) {
        PyErr_Format(PyExc_OverflowError, "port must be 0-65535, not %ld",
                     port);
        return -1;
    }
    *port_p = htons((uint16_t)port);
    return 0;
}

static int
parse_scope(PyObject *tuple, struct sockaddr_in6 *addr)
{
    unsigned long flow, scope;

    if (PyTuple_GET_SIZE(tuple) != 4) {
        return 0;
    }
    flow  = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(tuple, 2));
    scope = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(tuple, 3));
    if (PyErr_Occurred()) {
        return -1;
    }
    addr->sin6_flowinfo = htonl((uint32_t)flow);
    addr->sin6_scope_id = (uint32_t)scope;
    return 0;
}

int
sockaddr_parse(PyObject *tuple, struct sockaddr_storage *addr, size_t *len_p)
{
    struct sockaddr_in  *in4 = (struct sockaddr_in *)addr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
    const char          *host;

    memset(addr, 0, sizeof(*addr));
    if (!PyTuple_Check(tuple) ||
        (PyTuple_GET_SIZE(tuple) != 2 && PyTuple_GET_SIZE(tuple) != 4) ||
        !PyUnicode_Check(PyTuple_GET_ITEM(tuple, 0))) {
        PyErr_Format(PyExc_TypeError,
                     "expected an address (host, port[, flowinfo, scope]), "
                     "got %R",
                     tuple);
        return -1;
    }
    host = PyUnicode_AsUTF8(PyTuple_GET_ITEM(tuple, 0));
    if (host == NULL) {
        return -1;
    }
    if (inet_pton(AF_INET, host, &in4->sin_addr) == 1) {
        in4->sin_family = AF_INET;
        *len_p          = sizeof(*in4);
        return sockaddr_parse_port(tuple, &in4->sin_port);
    }
    if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        *len_p           = sizeof(*in6);
        return (sockaddr_parse_port(tuple, &in6->sin6_port) < 0) ?
                   -1 :
                   parse_scope(tuple, in6);
    }
    PyErr_Format(PyExc_ValueError, "not a numeric address: %R",
                 PyTuple_GET_ITEM(tuple, 0));
    return -1;
}

PyObject *
sockaddr_build(const struct sockaddr_storage *addr)
{
    const struct sockaddr_in  *in4 = (const struct sockaddr_in *)addr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
    char                       host[INET6_ADDRSTRLEN] = "";

    if (addr->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        return Py_BuildValue("(siII)", host, (int)ntohs(in6->sin6_port),
                             ntohl(in6->sin6_flowinfo), in6->sin6_scope_id);
    }
    inet_ntop(AF_INET, &in4->sin_addr, host, sizeof(host));
    return Py_BuildValue("(si)", host, (int)ntohs(in4->sin_port));
}
