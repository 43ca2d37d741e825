# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/core ucp/observe ucp/ucp
"""Importing loads and does nothing else."""

import importlib

import pytest
from script import run_script

import ucp

pytestmark = pytest.mark.real_start


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


def test_shuffles_and_joins_are_imported_when_they_are_used():
    run_script(
        """
        import sys, ucp
        assert not {"ucp.shuffle", "ucp.join"} & sys.modules.keys()
        assert ucp.shuffle.Shuffler is sys.modules["ucp.shuffle"].Shuffler
        assert "ucp.join" not in sys.modules
        assert ucp.join.inner is sys.modules["ucp.join"].inner
        """
    )


def test_what_few_programs_use_is_imported_when_it_is_used():
    run_script(
        """
        import sys, ucp
        late = {"_communicator", "_observe", "_topology", "message", "shmem", "sync"}
        loaded = {name.split(".")[1] for name in sys.modules if name[:4] == "ucp."}
        assert not late & loaded, late & loaded
        public = {name for name in late if not name.startswith("_")}
        assert set(dir(ucp)) >= {*public, *ucp.__all__}
        assert sys.modules["ucp"].sync is sys.modules["ucp.sync"]
        assert "_observe" not in {name.split(".")[-1] for name in sys.modules}
        """
    )


def test_names_that_are_imported_late_stay_the_same():
    run_script(
        """
        import pickle, ucp
        first = {name: getattr(ucp, name) for name in ucp.__all__}
        assert {name: getattr(ucp, name) for name in ucp.__all__} == first
        names = {}
        exec("from ucp import *", names)
        assert all(names[name] is first[name] for name in first)
        assert isinstance(ucp.trace, type) and ucp.trace.__name__ == "Trace"
        assert ucp.METRICS_CONTENT_TYPE == ucp._observe.metrics.CONTENT_TYPE
        assert pickle.loads(pickle.dumps(ucp.Communicator)) is ucp.Communicator
        assert pickle.loads(pickle.dumps(ucp.Group)) is ucp.Group
        """
    )


def test_a_signal_for_dumps_is_heard_from_the_import_on():
    run_script(
        """
        import signal, sys, ucp
        assert signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
        """,
        UCP_DUMP_SIGNAL="SIGUSR1",
    )


def test_joins_say_that_they_need_numpy():
    run_script(
        """
        import sys
        sys.modules["numpy"] = None
        import ucp
        assert ucp.shuffle.Shuffler
        try:
            ucp.join
        except ImportError as exc:
            assert "numpy" in str(exc), exc
        else:
            raise AssertionError("joins work without NumPy")
        """
    )


def test_what_ucp_does_not_have_is_named():
    with pytest.raises(AttributeError, match=r"^module 'ucp' has no attribute 'no'$"):
        ucp.no  # noqa: B018


def test_everything_in_all_exists():
    assert [name for name in ucp.__all__ if not hasattr(ucp, name)] == []


def test_versions_are_texts_and_numbers():
    major, minor, patch = ucp.get_ucx_version()
    assert ucp.__ucx_version__ == f"{major}.{minor}.{patch}"
    assert ucp.which_ucx().version == ucp.__ucx_version__
    assert ucp.__version__


ROOMS = ("join", "moe", "proxy", "shmem", "shuffle", "sync", "table", "dask", "cuda")
ROOMS += ("compat.ucxx", "exceptions", "message", "testing", "core", "utils", "comm")


@pytest.mark.parametrize("room", ROOMS)
def test_dir_has_what_is_public(room):
    module = importlib.import_module(f"ucp.{room}")
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_dir_of_the_package_has_public_names_and_modules_that_are_imported():
    run_script(
        """
        import ucp, ucp.testing, ucp.compat
        assert {"sync", "shmem", "testing", "compat"} <= set(dir(ucp))
        assert not [name for name in dir(ucp) if name[0] == "_" and name[:2] != "__"]
        assert "importlib" not in dir(ucp)
        """
    )
