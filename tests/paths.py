# SPDX-License-Identifier: BSD-3-Clause
"""Directories of the source tree that tests read."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
EXAMPLES = ROOT / "examples"
