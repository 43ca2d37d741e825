# SPDX-License-Identifier: BSD-3-Clause
"""get_address."""

import socket

import pytest

import ucp


def test_the_loopback_interface_has_its_address():
    assert ucp.get_address("lo") == "127.0.0.1"
    assert ucp.get_address(ifname="lo") == "127.0.0.1"


def test_the_environment_names_an_interface(monkeypatch):
    monkeypatch.setenv("UCXPY_IFNAME", "lo")
    assert ucp.get_address() == "127.0.0.1"


def test_the_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("UCXPY_IFNAME", "nosuch0")
    assert ucp.get_address("lo") == "127.0.0.1"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("name", ["nosuch0", "a-name-that-is-too-long", ""])
def test_a_bad_name_is_an_oserror(name, family):
    with pytest.raises(OSError):
        ucp.get_address(name, family=family)


def test_prefixes_are_tried_in_order(monkeypatch):
    names = [(1, "lo"), (2, "en0"), (3, "eth1"), (4, "eth0"), (5, "wl0")]
    monkeypatch.setattr(socket, "if_nameindex", lambda: names)
    monkeypatch.delenv("UCXPY_IFNAME", raising=False)
    addresses = {"eth1": "10.0.0.1", "en0": "10.0.0.2"}

    def look_up(name):
        if name not in addresses:
            raise OSError(name)
        return addresses[name]

    monkeypatch.setitem(ucp._core.resolve._LOOK_UP, socket.AF_INET, look_up)
    assert ucp.get_address() == "10.0.0.1"


def test_no_fitting_interface_says_what_to_do(monkeypatch):
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo")])
    monkeypatch.delenv("UCXPY_IFNAME", raising=False)
    with pytest.raises(RuntimeError, match="UCXPY_IFNAME"):
        ucp.get_address()


def test_ipv6_is_asked_for_by_family():
    with open("/proc/net/if_inet6") as table:
        if not any(line.split()[-1] == "lo" for line in table):
            pytest.skip("no IPv6 here")
    assert ucp.get_address("lo", family=socket.AF_INET6) == "::1"


def test_another_family_is_refused():
    with pytest.raises(
        ValueError, match=r"^expected AF_INET or AF_INET6, got family 1$"
    ):
        ucp.get_address("lo", family=socket.AF_UNIX)
