# SPDX-License-Identifier: BSD-3-Clause
"""Frames are known without a library that is being loaded."""

import sys
import types

import pyarrow as pa

from ucp._data.columns import from_table
from ucp._tables.frames import is_frame, is_polars, to_arrow


def test_a_module_that_another_thread_imports_has_no_frames_yet(monkeypatch):
    arrow = pa.table({"k": [1, 2, 3]})
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert not is_frame(arrow) and not is_polars(arrow)
    assert to_arrow(arrow, "table").num_rows == 3
    assert from_table(arrow)[0].names == ("k",)
