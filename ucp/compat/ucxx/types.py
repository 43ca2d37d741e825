# SPDX-License-Identifier: BSD-3-Clause
"""Tags as ucxx has them: integers of 64 bits."""

from __future__ import annotations


class Tag(int):
    """A raw tag, for ``force_tag=True``."""

    @property
    def value(self) -> int:
        """As a plain int."""
        return int(self)


class TagMask(Tag):
    """Which bits of a tag count."""


TagMaskFull = TagMask(2**64 - 1)
