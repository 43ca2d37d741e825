# SPDX-License-Identifier: BSD-3-Clause
"""The objects of the extension that are alive."""

import gc

from ucp.testing import live_objects


def kept_objects():
    """Count the objects that something keeps.

    What earlier tests have left in reference cycles is no longer among them, so
    the collector cannot change the count during a test.
    """
    gc.collect()
    return live_objects()
