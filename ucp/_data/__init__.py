# SPDX-License-Identifier: BSD-3-Clause
"""Tables as columns, and their rows by the hash of a key.

``columns`` has tables as columns of memory, ``partition`` their rows by a key.
"""
