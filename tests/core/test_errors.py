# SPDX-License-Identifier: BSD-3-Clause
# tests: ext/error ext/log ucp/exceptions
"""Errors name the peer, the cause and the system's number."""

import errno
import os
import re
import resource
import socket

import pytest
from script import run_script

import ucp

# Errors list the devices that there are.
pytestmark = pytest.mark.default_workers


async def test_a_refused_connection_names_host_port_and_errno(closed_port):
    with pytest.raises(
        ucp.UCXNotConnected,
        match=rf"^connect to 127\.0\.0\.1:{closed_port}: Connection refused "
        rf"\(errno {errno.ECONNREFUSED}\): does a process listen there\?$",
    ) as caught:
        await ucp.create_endpoint("127.0.0.1", closed_port)
    assert caught.value.errno == errno.ECONNREFUSED
    assert caught.value.peer == ("127.0.0.1", closed_port)


async def test_a_mute_server_is_named(mute_server):
    with pytest.raises(
        ucp.UCXTimeout,
        match=rf"^connect to 127\.0\.0\.1:{mute_server}: "
        "connected, but nothing was said: is its event loop busy, or is there a "
        r"firewall\?$",
    ) as caught:
        await ucp.create_endpoint("127.0.0.1", mute_server, connect_timeout=0.05)
    assert caught.value.errno is None


async def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ucp.UCXBusy,
            match=rf"^listen on 127\.0\.0\.1:{port}: Address already in use$",
        ) as caught:
            ucp.create_listener(lambda ep: None, port, host="127.0.0.1")
    assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
async def test_an_ipv6_address_is_in_brackets():
    with socket.socket(socket.AF_INET6) as sock:
        try:
            sock.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 loopback")
        port = sock.getsockname()[1]
        with pytest.raises(ucp.UCXNotConnected, match=rf"^connect to \[::1\]:{port}: "):
            await ucp.create_endpoint("::1", port)


async def test_an_address_of_another_host_is_named():
    with pytest.raises(
        ucp.UCXUnreachable, match=r"^listen on 192\.0\.2\.77:0: "
    ) as caught:
        ucp.create_listener(lambda ep: None, host="192.0.2.77")
    assert caught.value.errno == errno.EADDRNOTAVAIL


async def test_a_close_that_times_out_names_the_peer(connect_peer):
    peer, ep = await connect_peer()
    host, port = ep.peer_address[:2]
    peer.stop()
    sending = ep.send(bytes(16 << 20))
    with pytest.raises(
        ucp.UCXTimeout,
        match=rf"^close of the endpoint to {re.escape(host)}:{port}: "
        r"operation timed out: the peer has not read 16777216 bytes ",
    ):
        await ep.close(timeout=0.2)
    with pytest.raises(ucp.UCXError):
        await sending


@pytest.fixture
def no_descriptors():
    """All file descriptors that this process may have are in use."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_too_many_open_files_are_told_as_such(closed_port, request):
    ucp.current_worker()
    request.getfixturevalue("no_descriptors")
    with pytest.raises(
        ucp.UCXError, match=r"^connect to .*: Too many open files$"
    ) as caught:
        await ucp.create_endpoint("127.0.0.1", closed_port)
    assert caught.value.errno == errno.EMFILE
    with pytest.raises(
        ucp.UCXError, match=r"^listen on 0\.0\.0\.0:0: Too many open files$"
    ) as caught:
        ucp.create_listener(lambda ep: None, host="0.0.0.0")
    assert caught.value.errno == errno.EMFILE


REFUSED = """
import logging, sys
import ucp
logging.getLogger("ucp").setLevel(logging.CRITICAL)
try:
    ucp.init(eval(sys.argv[1]))
except ucp.UCXConfigError as exc:
    print(exc)
"""


@pytest.mark.parametrize(
    ("options", "environment", "text"),
    [
        (
            {"TLS": "nosuch"},
            {},
            'UCX finds no transport and device to use among TLS="nosuch"; there are',
        ),
        (
            {},
            {"UCX_TLS": "nosuch"},
            'UCX finds no transport and device to use among TLS="nosuch"; there are',
        ),
        ({"SEG_SIZE": "much"}, {}, 'UCX refuses option "SEG_SIZE" = "much"\n'),
        (
            {},
            {"UCX_SEG_SIZE": "much"},
            'UCX refuses UCX_SEG_SIZE="much", it expects memory units: ',
        ),
    ],
)
def test_what_ucx_refuses_is_named(options, environment, text):
    environment = {"UCX_TLS": "all", **environment}
    assert run_script(REFUSED, repr(options), **environment).startswith(text)


@pytest.mark.parametrize("options", [{"TLS": "rc"}, {"TLS": "tcp,rc"}])
def test_the_transports_and_devices_that_there_are_are_listed(options):
    """Whatever chose none of them: an option, or the environment."""
    text = run_script(
        REFUSED, repr({**options, "NET_DEVICES": "eth99"}), UCX_SHM_DEVICES="eth99"
    )
    listed = text.partition("; there are ")[2].strip().split("), ")
    found = {
        name: set(devices.strip(")").split(", "))
        for name, _, devices in (entry.partition(" (") for entry in listed)
    }
    assert "lo" in found["tcp"]
    assert {"self", "posix"} <= found.keys()


ERRORS = [
    kind
    for kind in vars(ucp.exceptions).values()
    if isinstance(kind, type) and issubclass(kind, ucp.UCXBaseException)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_one_clause_catches_every_error(kind):
    assert len(ERRORS) > 15
    if kind is not ucp.UCXBaseException:
        assert issubclass(kind, ucp.UCXError)
        with pytest.raises(ucp.UCXError):
            raise kind("text")


def clause_of_a_transfer(error):
    """The clauses that programs of ucx-py have around a send or a receive."""
    try:
        raise error
    except (ucp.UCXCloseError, ucp.UCXCanceled, ucp.UCXConnectionReset):
        return "end"
    except ucp.UCXMsgTruncated:
        return "length"
    except ucp.UCXError:
        return "error"


def clause_of_a_connect(error):
    """The clauses that programs of ucx-py have around create_endpoint()."""
    try:
        raise error
    except ucp.UCXNotConnected:
        return "again"
    except ucp.UCXUnreachable:
        return "elsewhere"
    except ucp.UCXError:
        return "error"


@pytest.mark.parametrize(
    ("clauses", "kind", "caught"),
    [
        (clause_of_a_transfer, ucp.UCXCanceled, "end"),
        (clause_of_a_transfer, ucp.UCXPeerClosed, "end"),
        (clause_of_a_transfer, ucp.UCXConnectionReset, "end"),
        (clause_of_a_transfer, ucp.UCXMsgTruncated, "length"),
        (clause_of_a_transfer, ucp.UCXNoMemory, "error"),
        (clause_of_a_connect, ucp.UCXNotConnected, "again"),
        (clause_of_a_connect, ucp.UCXUnreachable, "elsewhere"),
        (clause_of_a_connect, ucp.UCXTimeout, "error"),
        (clause_of_a_connect, ucp.UCXCanceled, "error"),
    ],
)
def test_clauses_of_ucx_py_catch_what_they_did(clauses, kind, caught):
    assert clauses(kind("text")) == caught
