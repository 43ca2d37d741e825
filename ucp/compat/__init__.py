# SPDX-License-Identifier: BSD-3-Clause
"""The APIs of other libraries, ucx-py and ucxx, on top of ``ucp``."""
