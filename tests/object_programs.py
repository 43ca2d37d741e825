# SPDX-License-Identifier: BSD-3-Clause
"""Random programs of operations on Python objects, with what they have to return.

A program is the same on every rank. What its steps return is computed here by plain
Python, from the objects of all ranks.
"""

import functools
import operator
import random
from typing import NamedTuple

import numpy as np

LARGE = 40_000  # bytes, above which buffers travel by themselves


class Step(NamedTuple):
    kind: str
    root: int
    op: object  # of a reduction
    make: str  # which kind of objects
    seed: int
    wrong: int  # a rank that has no good object; -1: none
    fault: str


# ---- objects -------------------------------------------------------------------


def plain(rng):
    kinds = [
        lambda: rng.randrange(-(10**20), 10**20),
        lambda: rng.random(),
        lambda: "text" * rng.randrange(5),
        lambda: bytes(rng.randrange(100)),
        lambda: None,
        lambda: [rng.randrange(9) for _ in range(rng.randrange(6))],
        lambda: {"key": rng.randrange(9), "more": (1, rng.random())},
        lambda: "long" * rng.randrange(LARGE // 2),
        lambda: list(range(rng.randrange(LARGE // 4))),
    ]
    return rng.choice(kinds)()


def array(rng):
    count = rng.choice([0, 1, 100, LARGE // 16, LARGE // 4])
    made = np.arange(count, dtype=rng.choice(["i8", "f8", "u1"])) + rng.randrange(9)
    return rng.choice([made, made[::2], made.reshape(-1, 1).T])


def nested(rng):
    return {
        "arrays": [array(rng) for _ in range(rng.randrange(4))],
        "plain": [plain(rng) for _ in range(rng.randrange(4))],
    }


MAKE = {
    "plain": plain,
    "array": array,
    "nested": nested,
    "int": lambda rng: rng.randrange(1000),
    "bool": lambda rng: rng.random() < 0.5,
    "text": lambda rng: rng.choice("abcdefgh") * rng.choice([1, 2, LARGE]),
    "list": lambda rng: [rng.randrange(9)] * rng.randrange(4),
    "pair": lambda rng: (rng.randrange(3), rng.randrange(100)),
    "matrix": lambda rng: np.array([[rng.randrange(3) for _ in "ab"] for _ in "ab"]),
    "vector": lambda rng: np.full(LARGE // 4, rng.randrange(100)),
}


def subtract(one, other):
    return one - other


def join(one, other):
    return f"<{one[:9]}{other[:9]}>"


# What is reduced by what: most of it is not commutative, some not associative.
REDUCED = [
    ("int", "sum"),
    ("int", "prod"),
    ("int", "max"),
    ("int", "min"),
    ("int", "bxor"),
    ("int", "band"),
    ("int", "bor"),
    ("bool", "land"),
    ("bool", "lor"),
    ("bool", "lxor"),
    ("pair", "maxloc"),
    ("pair", "minloc"),
    ("int", subtract),
    ("text", "sum"),
    ("text", "max"),
    ("text", join),
    ("list", operator.add),
    ("matrix", np.matmul),
    ("vector", "sum"),
]

FUNCTIONS = {
    "sum": operator.add,
    "prod": operator.mul,
    "max": max,
    "min": min,
    "bxor": operator.xor,
    "band": operator.and_,
    "bor": operator.or_,
    "land": lambda one, other: one and other,
    "lor": lambda one, other: one or other,
    "lxor": lambda one, other: one is not other,
    "maxloc": lambda one, other: min(one, other, key=lambda pair: (-pair[0], pair[1])),
    "minloc": lambda one, other: min(one, other),
}


class Bad:
    """Cannot be pickled."""

    def __reduce__(self):
        raise TypeError("not to be pickled")


def refuse():
    raise RuntimeError("not to be unpickled")


class Trap:
    """Can be pickled, and cannot be unpickled."""

    def __reduce__(self):
        return refuse, ()


FAULTS = {"bad": Bad, "trap": Trap}

MOVES = ["bcast", "gather", "scatter", "allgather", "alltoall", "ring", "swap"]
REDUCTIONS = ["reduce", "allreduce", "scan", "exscan"]


def program(seed, size, count, has_faults):
    """A list of steps."""
    rng = random.Random(seed)
    steps = []
    for number in range(count):
        kind = rng.choice(MOVES + REDUCTIONS)
        make, op = rng.choice(REDUCED)
        if kind in MOVES:
            make, op = rng.choice(["plain", "array", "nested"]), None
        is_wrong = has_faults and kind not in ("ring", "swap") and rng.random() < 0.2
        steps.append(
            Step(
                kind,
                rng.randrange(size),
                op,
                make,
                seed * 1000 + number,
                rng.randrange(size) if is_wrong else -1,
                rng.choice(sorted(FAULTS)),
            )
        )
    return steps


def obj(step, rank, place=0):
    """What a rank gives."""
    if rank == step.wrong:
        return FAULTS[step.fault]()
    return MAKE[step.make](random.Random(f"{step.seed} {rank} {place}"))


# ---- what they return ------------------------------------------------------------


def senders(step, rank, size):
    """The ranks whose objects a rank is to get."""
    others = {*range(size)} - {rank}
    match step.kind:
        case "bcast" | "scatter":
            return {step.root} - {rank}
        case "gather" | "reduce":
            return others if rank == step.root else set()
        case "scan" | "exscan":
            return {*range(rank)}
        case "swap":
            return {rank ^ 1} & others
        case "ring":
            return {(rank - 1) % size} & others
    return others


def sends(step, rank, size):
    """Does a rank pickle an object?"""
    if step.kind in ("scan", "exscan", "allreduce", "allgather"):
        return True  # whether anybody gets it or not
    if step.kind == "bcast":
        return rank == step.root
    return any(rank in senders(step, each, size) for each in range(size))


def error(step, rank, size):
    """The exception that a rank raises, and the beginning of its text; or None. The
    exception "any" may be none: what an operation does with an object of a wrong
    type."""
    wrong = step.wrong
    if step.fault == "bad" and rank == wrong and sends(step, rank, size):
        return "PicklingError", f"rank {wrong} cannot pickle its object: TypeError"
    if wrong not in senders(step, rank, size):
        if rank == wrong and step.op is not None and _combines(step, rank, size):
            return "any", ""
        return None
    if step.fault == "bad":
        return "PicklingError", f"rank {wrong} cannot pickle its object: TypeError"
    text = f"rank {rank} cannot unpickle the object of rank {wrong}: RuntimeError"
    return "UnpicklingError", text


def _combines(step, rank, size):
    """Does a rank call the operation with its own object?"""
    match step.kind:
        case "reduce":
            return rank == step.root and size > 1
        case "scan":
            return rank > 0
        case "exscan":
            return False
    return size > 1


def result(step, rank, size):
    """What a rank gets, if there is no error."""
    root = step.root
    everything = range(size)
    match step.kind:
        case "bcast":
            return obj(step, root)
        case "gather":
            return [obj(step, r) for r in everything] if rank == root else None
        case "scatter":
            return obj(step, root, rank)
        case "allgather":
            return [obj(step, r) for r in everything]
        case "alltoall":
            return [obj(step, r, rank) for r in everything]
        case "ring":
            return obj(step, (rank - 1) % size)
        case "swap":
            return obj(step, rank ^ 1) if rank ^ 1 < size else None
        case "reduce":
            return combined(step, everything) if rank == root else None
        case "allreduce":
            return combined(step, everything)
        case "scan":
            return combined(step, range(rank + 1))
        case "exscan":
            return combined(step, range(rank)) if rank else None
    raise ValueError(step.kind)


def combined(step, ranks):
    function = FUNCTIONS.get(step.op, step.op) if step.op.__hash__ else step.op
    return functools.reduce(function, [obj(step, rank) for rank in ranks])


def same(one, other):
    """Are two results the same, of the same types?"""
    if isinstance(one, Bad | Trap):
        return type(one) is type(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and bool((one == other).all())
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return [*one] == [*other] and all(map(same, one.values(), other.values()))
    return one == other
