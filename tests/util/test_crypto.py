# SPDX-License-Identifier: BSD-3-Clause
# tests: util/hash util/x25519
"""X25519, SHA-256, HMAC and SipHash of libumx, compared with other people's.

The two sources are compiled into a library of their own: their functions are none
of libumx's public ones.
"""

import ctypes
import os
import random
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from paths import ROOT

pytest.importorskip("cryptography", reason="cryptography is missing")

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
)

P = 2**255 - 19
SIZES = [*range(300), 511, 512, 4095, 4096, 100_003]


@pytest.fixture(scope="module")
def crypto(tmp_path_factory):
    """The functions of src/util/x25519.c and src/util/hash.c."""
    library = tmp_path_factory.mktemp("crypto") / "crypto.so"
    subprocess.run(
        [
            *os.environ.get("CC", "cc").split(),
            *("-std=gnu11", "-O2", "-shared", "-fPIC"),
            f"-I{ROOT / 'src'}",
            *("-o", library),
            *(ROOT / "src/util" / name for name in ("x25519.c", "hash.c")),
        ],
        check=True,
    )
    crypto = ctypes.CDLL(library)
    crypto.umi_x25519_shared.restype = ctypes.c_bool
    crypto.umi_siphash.restype = ctypes.c_uint64
    return crypto


def public(crypto, secret):
    key = ctypes.create_string_buffer(32)
    crypto.umi_x25519_public(secret, key)
    return key.raw


def shared(crypto, secret, key):
    """What both sides share; None where it would be the same for every secret."""
    out = ctypes.create_string_buffer(32)
    return out.raw if crypto.umi_x25519_shared(secret, key, out) else None


def sha256(crypto, data):
    digest = ctypes.create_string_buffer(32)
    crypto.umi_sha256(data, ctypes.c_size_t(len(data)), digest)
    return digest.raw


def hmac_sha256(crypto, key, data):
    mac = ctypes.create_string_buffer(32)
    crypto.umi_hmac_sha256(
        key, ctypes.c_size_t(len(key)), data, ctypes.c_size_t(len(data)), mac
    )
    return mac.raw


def their_shared(secret, key):
    try:
        return X25519PrivateKey.from_private_bytes(secret).exchange(
            X25519PublicKey.from_public_bytes(key)
        )
    except ValueError:  # it would be zero
        return None


def their_sha256(data):
    digest = hashes.Hash(hashes.SHA256())
    digest.update(data)
    return digest.finalize()


def their_hmac(key, data):
    mac = hmac.HMAC(key, hashes.SHA256())
    mac.update(data)
    return mac.finalize()


# ---- X25519 ------------------------------------------------------------------

numbers = st.binary(min_size=32, max_size=32)


@given(secret=numbers)
@example(secret=bytes(32))
@example(secret=b"\xff" * 32)
def test_public_keys_are_those_of_cryptography(crypto, secret):
    theirs = X25519PrivateKey.from_private_bytes(secret).public_key()
    assert public(crypto, secret) == theirs.public_bytes(Encoding.Raw, PublicFormat.Raw)


@given(secret=numbers, key=numbers)
@example(secret=b"\xff" * 32, key=b"\xff" * 32)
def test_shared_secrets_are_those_of_cryptography(crypto, secret, key):
    assert shared(crypto, secret, key) == their_shared(secret, key)


def edges():
    """Numbers at which limbs, and the modulus, end."""
    for exponent in (0, 8, 51, 64, 102, 128, 153, 192, 204, 254, 255, 256):
        for near in range(-20, 21):
            yield (2**exponent + near) % 2**256
    for multiple in (P, 2 * P, 2**255 + P):
        for near in range(-20, 39):
            yield (multiple + near) % 2**256


def test_keys_at_the_edges_are_taken_as_by_cryptography(crypto):
    rand = random.Random(7748)
    refused = set()
    for number in sorted({*edges()}):
        secret, key = rand.randbytes(32), number.to_bytes(32, "little")
        mine = shared(crypto, secret, key)
        assert mine == their_shared(secret, key), hex(number)
        if mine is None:
            refused.add(number % 2**255)
    assert refused == {0, 1, P - 1, P, P + 1}


@given(first=numbers, second=numbers)
def test_both_sides_get_the_same(crypto, first, second):
    ours = shared(crypto, first, public(crypto, second))
    assert ours is not None
    assert ours == shared(crypto, second, public(crypto, first))


# ---- SHA-256, HMAC -----------------------------------------------------------


@pytest.fixture(params=["the CPU's instructions", "plain C"])
def hashing(request, crypto):
    """With the CPU's instructions where it has them, then without."""
    if request.param == "plain C":
        crypto.umi_sha256_use_plain()  # from here on
    return crypto


def test_digests_of_all_lengths_are_those_of_cryptography(hashing):
    data = random.Random(180).randbytes(max(SIZES))
    for size in SIZES:
        assert sha256(hashing, data[:size]) == their_sha256(data[:size]), size


def test_macs_with_keys_of_all_lengths_are_those_of_cryptography(hashing):
    data = random.Random(4231).randbytes(500)
    for size in range(1, 200):
        key, text = data[:size], data[size : size + 3 * (size % 100)]
        assert hmac_sha256(hashing, key, text) == their_hmac(key, text), size


@given(key=st.binary(min_size=1, max_size=256), data=st.binary(max_size=2000))
def test_any_mac_is_that_of_cryptography(crypto, key, data):
    assert hmac_sha256(crypto, key, data) == their_hmac(key, data)


# ---- SipHash -----------------------------------------------------------------

WORD = 2**64 - 1


def rotated(word, bits):
    return (word << bits | word >> (64 - bits)) & WORD


def sip_rounds(v, count):
    for _ in range(count):
        v[0] = (v[0] + v[1]) & WORD
        v[2] = (v[2] + v[3]) & WORD
        v[1] = rotated(v[1], 13) ^ v[0]
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] = rotated(v[0], 32)
        v[2] = (v[2] + v[1]) & WORD
        v[0] = (v[0] + v[3]) & WORD
        v[1] = rotated(v[1], 17) ^ v[2]
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] = rotated(v[2], 32)


def siphash(data):
    """SipHash-2-4 as its paper describes it; cryptography has none."""
    keys = [int.from_bytes(bytes(range(n, n + 8)), "little") for n in (0, 8)]
    names = [b"somepseu", b"dorandom", b"lygenera", b"tedbytes"]
    v = [int.from_bytes(name, "big") ^ keys[n % 2] for n, name in enumerate(names)]
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    sip_rounds(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@given(data=st.binary(max_size=600))
def test_hashes_are_those_of_the_paper(crypto, data):
    assert crypto.umi_siphash(data, ctypes.c_size_t(len(data))) == siphash(data)


def test_the_description_gives_the_result_of_the_paper():
    """Appendix A: fifteen bytes."""
    assert siphash(bytes(range(15))) == 0xA129CA6149BE45E5
