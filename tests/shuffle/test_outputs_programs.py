# SPDX-License-Identifier: BSD-3-Clause
"""Random programs of writers and readers do what a dict does."""

import os

import pytest
from outputs_programs import random_program, run
from worlds import good_world

SEEDS = range(int(os.environ.get("OUTPUTS_PROGRAMS", "4")))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed, size, tmp_path):
    program = random_program(seed, size)

    async def main(comm):
        await run(comm, program, tmp_path)

    good_world(size, main)
