# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/context ucp/context ucp/token
"""init, reset and the options in force."""

import ast
import asyncio
import dataclasses
import inspect
import os

import pytest
from script import run_script

import ucp
from ucp._core.token import token_of_environment
from ucp.testing import connected_pair

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
    ucp.init(config=ucp.Config(credit_bytes=1 << 20, spin=0, drain=1.5e-4))
    limits = ucp.core._ctx.config
    assert limits["credit_bytes"] == 1 << 20
    assert limits["spin_ns"] == 0
    assert limits["drain_ns"] == 150_000


TIMES = ["spin", "drain", "close_timeout", "connect_timeout", "heartbeat", "keepalive"]


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("nanoseconds", [1_000_000, 3_600_000_000_001])
def test_a_time_may_be_given_in_nanoseconds(name, nanoseconds):
    config = ucp.Config(**{f"{name}_ns": nanoseconds})
    assert config == ucp.Config(**{name: nanoseconds / 1e9})
    ucp.init(config=dataclasses.replace(config, token=b"x"))
    assert ucp.core._ctx.config[f"{name}_ns"] == nanoseconds


@pytest.mark.parametrize("name", TIMES)
def test_a_time_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match=rf"^both {name} and {name}_ns are given$"):
        ucp.Config(**{name: 1, f"{name}_ns": 1})
    for given in (name, f"{name}_ns"):
        with pytest.raises(TypeError, match=rf"^{given} must be a number, not str$"):
            ucp.Config(**{given: "1s"})
        with pytest.raises(ValueError, match=rf"^{given} must be finite, not inf$"):
            ucp.Config(**{given: float("inf")})


def test_a_time_below_zero_is_refused():
    with pytest.raises(OverflowError, match=r"^spin_ns = -1 is out of range$"):
        ucp.init(config=ucp.Config(spin=-1e-9))


def test_every_field_of_config_is_described():
    tree = ast.parse(inspect.getsource(ucp.Config))
    lines = iter(tree.body[0].body)
    described = [
        line.target.id
        for line in lines
        if isinstance(line, ast.AnnAssign)
        and not line.target.id.endswith("_ns")
        and isinstance(next(lines), ast.Expr)
    ]
    assert described == [field.name for field in dataclasses.fields(ucp.Config)]


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
    ep.abort()
    listener.close()  # refuses connections not accepted yet
    ucp.reset()
    for _ in range(10):
        await asyncio.sleep(0)
    assert all(ep.closed() for ep in seen)


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


@pytest.mark.parametrize("key", ["POSIX_SEG_SIZE", "SYSV_SEG_SIZE", "MM_SEG_SIZE"])
def test_segments_of_64k_are_refused_by_name(key, monkeypatch):
    """UCX counts what is in them in 16 bits."""
    message = rf'^option "{key}" = "64k": a segment .* must be less than 64k '
    with pytest.raises(ucp.UCXConfigError, match=message):
        ucp.init({key: "64k"})
    monkeypatch.setenv(f"UCX_{key}", "64k")
    with pytest.raises(ucp.UCXConfigError, match=rf"UCX_{key}.* in 16 bits"):
        ucp.init()


# ---- the token ---------------------------------------------------------------

TOKEN = b"a shared secret"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(TOKEN + b"\n")
    path.chmod(0o600)
    return path


async def check_has_token(start_peer, token=TOKEN):
    """A peer with that token connects, one without is refused."""
    listener = ucp.create_listener(lambda ep: ep.close(), host="127.0.0.1")
    here = f"await ucp.create_endpoint('127.0.0.1', {listener.port})"
    friend, stranger = start_peer(), start_peer()
    await friend.do("listener.close(); ucp.reset()")
    await friend.do(f"ucp.init(token={token!r})")
    await friend.do(f"ep = {here}")
    with pytest.raises(Exception, match="the listener asks for a token"):
        await stranger.do(f"ep = {here}")


@pytest.mark.parametrize("token", [TOKEN, TOKEN.decode()], ids=["bytes", "str"])
async def test_init_takes_a_token(start_peer, token):
    ucp.init(token=token)
    await check_has_token(start_peer)


async def test_init_takes_a_file_with_the_token(start_peer, token_file):
    ucp.init(token=token_file)
    await check_has_token(start_peer)


async def test_the_environment_has_a_token(start_peer, monkeypatch):
    with monkeypatch.context() as environment:
        environment.setenv("UCP_TOKEN", TOKEN.decode())
        ucp.init()
    await check_has_token(start_peer)


async def test_the_environment_names_a_file_with_the_token(
    start_peer, monkeypatch, token_file
):
    with monkeypatch.context() as environment:
        environment.setenv("UCP_TOKEN_FILE", str(token_file))
        ucp.current_worker()  # by no init()
    await check_has_token(start_peer)


async def test_a_given_token_is_stronger_than_the_environment(start_peer, monkeypatch):
    with monkeypatch.context() as environment:
        environment.setenv("UCP_TOKEN", "another")
        ucp.init(config=ucp.Config(token=TOKEN))
    await check_has_token(start_peer)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o622, 0o666])
def test_a_token_file_that_is_open_to_others_is_refused(token_file, mode):
    token_file.chmod(mode)
    with pytest.raises(
        ucp.UCXConfigError, match=rf"'{token_file}' is open to others \(mode {mode:04o}"
    ):
        ucp.init(token=token_file)


def test_a_token_file_of_another_user_is_refused(token_file, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ucp.UCXConfigError, match=rf"belongs to user {owner}, not to"):
        ucp.init(token=token_file)


def test_a_token_file_that_is_none_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ucp.UCXConfigError, match="is not a regular file"):
            ucp.init(token=path)
    with pytest.raises(FileNotFoundError):
        ucp.init(token=tmp_path / "nothing")


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 257])
def test_a_token_file_of_a_wrong_size_is_refused(token_file, content):
    token_file.write_bytes(content)
    with pytest.raises(ucp.UCXConfigError, match="must hold 1 to 256 bytes"):
        ucp.init(token=token_file)


@pytest.mark.parametrize("name", ["UCP_TOKEN", "UCP_TOKEN_FILE"])
def test_an_empty_variable_is_no_missing_token(monkeypatch, name):
    monkeypatch.setenv(name, "")
    with pytest.raises(ucp.UCXConfigError, match=f"^{name} is set, but empty$"):
        ucp.current_worker()


def test_a_token_of_the_environment_is_any_bytes(monkeypatch):
    monkeypatch.setenv("UCP_TOKEN", os.fsdecode(b"\xff\x80"))
    assert token_of_environment() == b"\xff\x80"


def test_two_tokens_are_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"^both token and config\.token are given$"):
        ucp.init(token=b"a", config=ucp.Config(token=b"b"))
    monkeypatch.setenv("UCP_TOKEN", "a")
    monkeypatch.setenv("UCP_TOKEN_FILE", "b")
    with pytest.raises(ucp.UCXConfigError, match="both UCP_TOKEN and UCP_TOKEN_FILE"):
        ucp.init()


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("credit_rndv", 1, "2 or more"),
        ("channels_max", 16001, "1 to 16000"),
        ("heartbeat_ns", 5, "1000000 (a millisecond) or more"),
    ],
)
def test_a_setting_out_of_range_is_named(field, value, limit):
    with pytest.raises(ucp.UCXConfigError) as caught:
        ucp.init(config=ucp.Config(**{field: value}))
    text = str(caught.value)
    assert field in text
    assert limit in text
    assert text.endswith(f", not {value}")
