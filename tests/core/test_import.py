# SPDX-License-Identifier: BSD-3-Clause
"""Importing loads and does nothing else."""

from script import run_script

import ucp


def test_import_leaves_the_environment_alone():
    run_script(
        """
        import os
        before = dict(os.environ)
        import ucp
        ucp.init()
        assert dict(os.environ) == before
        """
    )


def test_import_creates_nothing():
    run_script(
        """
        import ucp, threading
        from ucp.testing import live_objects
        assert not any(live_objects().values()), live_objects()
        assert ucp.core._ctx is None
        assert threading.active_count() == 1
        """
    )


def test_import_needs_no_numpy():
    run_script(
        """
        import sys
        sys.modules["numpy"] = None
        import asyncio, ucp
        from ucp.testing import connected_pair

        async def main():
            async with connected_pair() as (client, server):
                await client.send(b"x")
                assert await server.recv_obj() == b"x"

        asyncio.run(main())
        """
    )


def test_everything_in_all_exists():
    assert [name for name in ucp.__all__ if not hasattr(ucp, name)] == []


def test_versions_are_texts_and_numbers():
    major, minor, patch = ucp.get_ucx_version()
    assert ucp.__ucx_version__ == f"{major}.{minor}.{patch}"
    assert ucp.which_ucx().version == ucp.__ucx_version__
    assert ucp.__version__
