# SPDX-License-Identifier: BSD-3-Clause
"""The connecting side of a handshake, by hand: a peer with any UCX address.

The layouts are those of ``src/codec/control.h``, the proofs those of
``src/endpoint/wireup.c``.
"""

import asyncio
import hashlib
import hmac
import os
import struct

from ucp import _ext

_PRIME = 2**255 - 19
_MAGIC = b"UMX1"
_HELLO, _REJECT, _WELCOME, _OPEN = 1, 5, 4, 14
APART = 1  # the feature of that name
_SYSV_SUM, _SYSV_NAME = b"\x8dS", 2  # how addresses of UCX name the transport


def x25519(secret: bytes, point: bytes) -> bytes:
    """RFC 7748."""
    k = int.from_bytes(secret, "little") & ~7 & ~(1 << 255) | 1 << 254
    u = int.from_bytes(point, "little") & (1 << 255) - 1
    x2, z2, x3, z3 = 1, 0, u, 1
    for t in range(254, -1, -1):
        if k >> t & 1:
            x2, x3, z2, z3 = x3, x2, z3, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % _PRIME, b * b % _PRIME, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % _PRIME, u * (da - cb) ** 2 % _PRIME
        x2, z2 = aa * bb % _PRIME, e * (aa + 121665 * e) % _PRIME
        if k >> t & 1:
            x2, x3, z2, z3 = x3, x2, z3, z2
    return (x2 * pow(z2, _PRIME - 2, _PRIME) % _PRIME).to_bytes(32, "little")


def _devices(address: bytes) -> list[int]:
    """Where the lengths of the devices that have transports are: see
    ``src/codec/ucx_address.c``."""
    is_v2 = address[0] & 15 != 0
    assert (address[1] if is_v2 else address[0] >> 4) & 5 == 0  # no name, no id
    pos, found, is_last = 10 if is_v2 else 9, [], False

    def extended(pos: int, mask: int) -> int:
        return is_v2 and address[pos] & mask == mask

    while not is_last:
        is_end = bool(address[pos] & 0x80)
        pos += 1 + extended(pos, 0x7F)
        if not is_end:
            found.append(pos)
        byte = address[pos]
        is_last = bool(byte & 0x80)
        length = address[pos + 1] if extended(pos, 0x1F) else byte & 0x1F
        pos += 1 + extended(pos, 0x1F) + (byte >> 6 & 1) + (byte >> 5 & 1) + length
        while not is_end:
            pos += 2 + (8 if is_v2 else 16)
            is_end = bool(address[pos] & 0x80)
            length = address[pos + 1] if extended(pos, 0x3F) else address[pos] & 0x3F
            pos += 1 + extended(pos, 0x3F) + length
    assert pos == len(address)
    return found


def of_kind(address: bytes, kind: int) -> bytes:
    """Return the address of another worker, whose devices are at other places of
    its host."""
    changed = bytearray(address)
    uuid = 1 if address[0] & 15 == 0 else 2
    changed[uuid : uuid + 8] = os.urandom(8)
    for pos in reversed(_devices(address)):
        if changed[pos] & 0x60 == 0 and changed[pos] & 0x1F != 0x1F:
            changed[pos] |= 0x20
            changed.insert(pos + 1, kind % 256)
            kind //= 256
    return bytes(changed)


def naming(address: bytes, segment: int) -> bytes:
    """Return the address of a worker whose System V segment is another one."""
    changed = bytearray(address)
    head = _SYSV_NAME + (8 if address[0] & 15 else 16)  # and the attributes
    pos = address.index(_SYSV_SUM) + head + 1
    changed[pos : pos + 8] = segment.to_bytes(8, "little")
    return bytes(changed)


class Hello:
    """What a real peer has said first; ``address`` is its UCX address."""

    def __init__(self, message: bytes):
        self._begin = message[12:60]  # versions, nonce, limits, channels
        length = int.from_bytes(message[136:138], "little")
        self.address = message[138 : 138 + length]
        assert message[4:8] == _MAGIC
        assert len(message) == 138 + length

    def claim(self, features: int) -> None:
        """Have it say that it has these features."""
        self._begin = self._begin[:4] + struct.pack("<Q", features) + self._begin[12:]

    def of(self, key: bytes, address: bytes) -> bytes:
        context = os.urandom(8)
        identity = context + hashlib.sha256(context + key).digest()[:8] + key
        return _message(
            _HELLO,
            self._begin
            + identity
            + struct.pack("<QIII", 1 | int.from_bytes(os.urandom(7), "little"), 1, 0, 0)
            + struct.pack("<QH", _ext.tag_hash(address), len(address))
            + address,
        )


def _message(kind: int, body: bytes) -> bytes:
    message = _MAGIC + struct.pack("<BBH", kind, 0, len(body)) + body
    return struct.pack("<I", len(message)) + message


async def _read(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "little"))


class Stranger:
    """A peer that shows its key and is open then, or is refused."""

    def __init__(self, hello: Hello, address: bytes):
        self._secret = os.urandom(32)
        self._key = x25519(self._secret, (9).to_bytes(32, "little"))
        self._hello = hello.of(self._key, address)
        self.refusal = ""
        self.features = 0  # what the listener says

    async def connect(self, port: int, ahead: int = 0) -> None:
        """Choose UCX's endpoint that is so far ahead of what the listener has."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(self._hello)
        answer = await _read(self._reader)
        if answer[8] == _REJECT:
            self.refusal = answer[18:].decode()
            return
        assert answer[8] == _WELCOME
        self.features = int.from_bytes(answer[16:24], "little")
        key, length = answer[76:108], int.from_bytes(answer[136:138], "little")
        _peer, made = struct.unpack_from("<QQ", answer, 138 + length)
        secret = hmac.new(b"", x25519(self._secret, key), "sha256").digest()
        number = struct.pack("<Q", made + ahead)
        said = b"umx client" + b"".join(
            hashlib.sha256(message[4:]).digest() for message in (self._hello, answer)
        )
        proof = hmac.new(secret, said + number, "sha256").digest()
        self._writer.write(_message(_OPEN, number + proof))

    async def is_dropped(self) -> bool:
        """Wait until the listener hangs up."""
        try:
            return await self._reader.read() == b""
        except ConnectionError:
            return True

    def leave(self) -> None:
        self._writer.close()
