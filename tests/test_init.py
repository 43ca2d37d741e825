# SPDX-License-Identifier: BSD-3-Clause
"""init, reset and the options in force."""

import os

import pytest
from script import run_script

import ucp
from ucp.testing import connected_pair, until

pytestmark = pytest.mark.usefixtures("fresh_ucx")


def test_a_second_init_is_refused():
    ucp.init()
    with pytest.raises(
        RuntimeError,
        match=r"^UCX is already initiated\. Call reset\(\) and init\(\) "
        r"in order to re-initate UCX with new options\.$",
    ):
        ucp.init()


def test_init_works_again_after_reset():
    ucp.init(options={"TLS": "tcp"})
    ucp.reset()
    ucp.init(options={"TLS": "posix,tcp"})
    assert ucp.get_config()["TLS"] == "posix,tcp"


def test_an_unknown_option_is_named():
    with pytest.raises(ucp.UCXConfigError, match="UNKNOWN_OPTION") as caught:
        ucp.init(options={"UNKNOWN_OPTION": "y"})
    assert isinstance(caught.value, ValueError)
    assert ucp.core._ctx is None


def test_a_refused_value_is_named():
    with pytest.raises(ucp.UCXConfigError, match="RNDV_THRESH"):
        ucp.init(options={"RNDV_THRESH": "banana"})


def test_get_config_before_init_tells_what_would_be():
    assert ucp.get_config()["TLS"] == os.environ.get("UCX_TLS", "all")
    assert ucp.core._ctx is None


def test_options_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("UCX_SEG_SIZE", "2M")
    assert ucp.get_config()["SEG_SIZE"] == "2M"
    ucp.init(options={"SEG_SIZE": "3M"})
    assert ucp.get_config()["SEG_SIZE"] == "3M"


def test_the_environment_wins_when_asked(monkeypatch):
    monkeypatch.setenv("UCX_SEG_SIZE", "2M")
    ucp.init(options={"SEG_SIZE": "3M"}, env_takes_precedence=True)
    assert ucp.get_config()["SEG_SIZE"] == "2M"


def test_config_sets_the_limits():
    ucp.init(config=ucp.Config(credit_bytes=1 << 20, spin_ns=0))
    limits = ucp.core._ctx.config
    assert limits["credit_bytes"] == 1 << 20
    assert limits["spin_ns"] == 0


def test_reset_before_init_is_fine():
    ucp.reset()
    ucp.reset()


async def test_reset_refuses_while_a_listener_is_open():
    listener = ucp.create_listener(host="127.0.0.1")
    with pytest.raises(
        ucp.UCXError,
        match=r"^Trying to reset UCX but not all Endpoints and/or Listeners "
        r"are closed\(\)\. The following objects are still referencing "
        rf"ApplicationContext: \n  {listener!r}$",
    ):
        ucp.reset()
    listener.close()
    ucp.reset()


async def test_reset_refuses_while_an_endpoint_is_open():
    async with connected_pair() as (client, server):
        server.abort()
        with pytest.raises(ucp.UCXError, match=r"\n  <ucp\.Endpoint \d+ to "):
            ucp.reset()
        client.abort()
        ucp.reset()
        assert ucp.core._ctx is None


async def test_reset_closes_what_the_callback_has_not_seen():
    seen = []
    listener = ucp.create_listener(seen.append, host="127.0.0.1")
    ep = await ucp.create_endpoint("127.0.0.1", listener.port)
    listener.close()
    ep.abort()
    if not seen:
        ucp.reset()
        await until(lambda: seen)
    assert seen[0].closed()


async def test_reset_in_a_running_loop_starts_anew():
    for _ in range(3):
        async with connected_pair() as (client, server):
            await client.send(b"x")
            assert await server.recv_obj() == b"x"
        ucp.reset()


def test_reset_frees_everything():
    run_script(
        """
        import asyncio, ucp
        from ucp.testing import connected_pair, live_objects, until

        async def main():
            async with connected_pair() as (client, server):
                await client.send(b"x")
            del client, server
            ucp.reset()
            await until(lambda: not any(live_objects().values()))

        asyncio.run(main())
        """
    )


async def test_a_dropped_endpoint_does_not_hinder_reset():
    listener = ucp.create_listener(host="127.0.0.1")
    ep = await ucp.create_endpoint("127.0.0.1", listener.port)
    listener.close()
    del ep
    ucp.reset()


def test_ucx_logs_through_logging():
    run_script(
        """
        import logging, ucp
        records = []

        class Keep(logging.Handler):
            def emit(self, record):
                records.append(record)

        logging.getLogger("ucp").addHandler(Keep())
        logging.getLogger("ucp").setLevel(logging.DEBUG)
        ucp.init(options={"TLS": "tcp,nosuchtransport"})
        ucp.get_ucp_worker()
        ucp.progress()
        assert any("nosuchtransport" in r.getMessage() for r in records), records
        """
    )
