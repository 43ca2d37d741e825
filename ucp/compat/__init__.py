# SPDX-License-Identifier: BSD-3-Clause
"""Names of other libraries on top of ``ucp``: those of ucx-py and of ucxx."""
