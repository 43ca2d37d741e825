# SPDX-License-Identifier: BSD-3-Clause
"""A directory for ``sys.path``, so that ``import ucxx`` finds ``ucxx.py`` here.

``ucp.compat.ucxx.install()`` puts it there; nothing imports it as a package.
"""
