# SPDX-License-Identifier: BSD-3-Clause
"""Ranks, messages between them, and collective operations."""

# Layout:
#
#   communicator  ucp.Communicator
#   bootstrap     how ranks find the root
#   environment   which rank of a job this process is, by the environment
#   meeting       what ranks tell their launcher when they wait for each other
#   agree         errors, arguments and hosts that all ranks tell each other
#   blocking      a worker that threads share, for ucp.sync
#   steps         operations that consist of several requests
#   sendrecv      a send and a receive in one
#   group         groups of processes, of which communicators are made
#   parcels       Python objects between ranks, as bytes
#   pickled       operations on Python objects
#   operations    the methods of ucp.Communicator that are such operations
#   futures       their futures, for ucp.sync
