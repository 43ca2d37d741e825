# SPDX-License-Identifier: BSD-3-Clause
"""``python -m ucp run`` and ``python -m ucp demo``."""
