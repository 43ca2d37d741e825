# SPDX-License-Identifier: BSD-3-Clause
"""Tables as columns, and their rows by the hash of a key."""
