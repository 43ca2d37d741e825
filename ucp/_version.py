# SPDX-License-Identifier: BSD-3-Clause
"""The version of the package; setuptools reads it without importing."""

__version__ = "0.1.0"
