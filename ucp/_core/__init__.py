# SPDX-License-Identifier: BSD-3-Clause
"""The process's context, workers, endpoints, listeners and memory."""

# Layout:
#
#   checkout        a source tree that stands for the installed package
#   loader          finds UCX and loads it, before anything else of ucp
#   platforms       machines that ucp cannot run on
#   neighbours      other distributions that have a package ucp
#   startup         python -m ucp, while Python imports the package
#   log             the logger, and its level in C
#   token           the secret that peers have to know
#   context         init(), Config: the process's one context
#   alive           sets of objects, for several threads
#   callback        functions of the program    waiters    tasks that wait
#   operation       operations that consist of steps, as futures
#   closing         with and async with
#   peer            who is at the other end
#   statistics      what endpoints and workers have done, as numbers
#   arrays          arrays of devices in pickled objects
#   objects         messages of an endpoint or channel: objects and frames
#   endpoint        a connection                connect    making both ends of it
#   listener        a listening port
#   resolve         addresses of this host, and of names
#   submit          calls from other threads
#   worker          the worker of a loop        lifecycle  one per loop, and its end
#   current         functions that act on the current worker
#   worker_address  endpoints without a listener
#   stream          asyncio's streams on an endpoint
#   memory          memory that peers may reach
#   heap            small memories that share segments
#   pool            buffers of registered memory
