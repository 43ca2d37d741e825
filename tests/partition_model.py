# SPDX-License-Identifier: BSD-3-Clause
"""The hash of rows as include/umx/partition.h writes it down, in plain Python."""

from __future__ import annotations

import struct
from collections.abc import Iterable

WORD = 2**64 - 1
NAN = 0x7FF8000000000000
NULL = 0xA0761D6478BD642F
MUL_1 = 0x9FB21C651E98DF25
MUL_2 = 0xD6E8FEB86659FD93


def mix(h: int) -> int:
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD & WORD
    h ^= h >> 33
    h = h * 0xC4CEB9FE1A85EC53 & WORD
    return h ^ h >> 33


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & WORD


def add_integer(h: int, value: int) -> int:
    """By as many words as its bits and its sign need."""
    bits = (value if value >= 0 else ~value).bit_length()
    for i in range(bits // 64 + 1):
        h = mix(h ^ (value >> 64 * i & WORD))
    return h


def add_float(h: int, value: float) -> int:
    if value != value:
        return mix(h ^ NAN)
    return mix(h ^ struct.unpack("<Q", struct.pack("<d", value + 0.0))[0])


def add_bytes(h: int, value: bytes) -> int:
    for at in range(0, len(value), 8):
        word = int.from_bytes(value[at : at + 8], "little")
        h ^= rotate(word * MUL_1 & WORD, 32) * MUL_2 & WORD
        h = rotate(h, 29) * MUL_1 & WORD
    return mix(h ^ len(value))


def add(h: int, value: object) -> int:
    """Continue a row's hash by a value of a key column."""
    if value is None:
        return mix(h ^ NULL)
    if isinstance(value, int):
        return add_integer(h, value)
    if isinstance(value, float):
        return add_float(h, value)
    return add_bytes(h, value.encode() if isinstance(value, str) else bytes(value))


def row_hash(values: Iterable[object], seed: int = 0) -> int:
    h = mix(seed + 0x9E3779B97F4A7C15 & WORD)
    for value in values:
        h = add(h, value)
    return h


def partition(values: Iterable[object], num_partitions: int, seed: int = 0) -> int:
    return (row_hash(values, seed) >> 32) * num_partitions >> 32
