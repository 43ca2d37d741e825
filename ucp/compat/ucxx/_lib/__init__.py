# SPDX-License-Identifier: BSD-3-Clause
"""``ucxx._lib``: what is above ucxx's C++ objects, which there are none of."""
