# SPDX-License-Identifier: BSD-3-Clause
"""A check of messages between all kinds of memory, for a machine with a GPU.

``make gpu-check`` runs it. Every case group has two processes of its own, which a
third one tells what to do (``tests/peer.py``): a group whose processes crash or hang
is reported, and goes on with new ones.
"""
