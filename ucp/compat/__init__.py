# SPDX-License-Identifier: BSD-3-Clause
"""Names of other libraries on top of ``ucp``; nothing here is imported by it."""
