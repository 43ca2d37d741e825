# SPDX-License-Identifier: BSD-3-Clause
"""What each test takes of the CPU, for ``tools/times.py``: a plugin of pytest.

A test has a property ``cpu`` in what ``--junitxml`` writes: the seconds of the
process that runs it and of the processes that were waited for meanwhile, from its
setup to its teardown. Processes of others run beside it without being counted.
"""

import resource

import pytest

_BEGUN = pytest.StashKey[float]()


def _spent():
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[_BEGUN] = _spent()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    """The report of a teardown takes the properties along, to the file."""
    if call.when == "teardown":
        spent = _spent() - item.stash.get(_BEGUN, _spent())
        item.user_properties.append(("cpu", f"{spent:.3f}"))
