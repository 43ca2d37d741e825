# SPDX-License-Identifier: BSD-3-Clause
"""benchmarks/compare.py: two commits in one run, and what is said of them."""

import argparse
import subprocess
import sys

import pytest
from paths import ROOT


@pytest.fixture(scope="module")
def modules():
    """The modules of the benchmarks, which import each other by their names."""
    before, hook = {*sys.modules}, sys.excepthook
    sys.path.append(str(ROOT / "benchmarks"))
    import compare

    sys.path.remove(str(ROOT / "benchmarks"))
    sys.excepthook = hook  # Ctrl-C ends a benchmark without a traceback
    yield compare
    for name in {*sys.modules} - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def results_of(compare, unit, new, base, probe=0.1):
    """Rounds of one case, with these values."""
    results = compare.Results("latency", unit, "base", ["new", "base"], machine={})
    for name, values in (("new", new), ("base", base)):
        for number, value in enumerate(values):
            sample = compare._harness.Sample("shm 8B", name, number, probe, value)
            results.samples.append(sample)
    return results


def outcome_of(compare, *arguments, **options):
    results = results_of(compare, *arguments, **options)
    outcome = compare.Outcome()
    outcome.add(results, [*compare.verdicts(results)])
    return outcome


def test_what_is_slower_by_more_than_the_spread_is_a_line(modules):
    outcome = outcome_of(modules, "us", [1.2, 1.3, 1.25, 1.2], [1.0, 1.1, 1.05, 1.0])
    assert outcome.slower == [
        "latency: shm 8B: best x1.20, paired x1.20, spread 1%, 4 near"
    ]
    assert outcome.faster == []
    assert "slower by more than the spread: 1\n  latency: shm 8B" in outcome.summary()


def test_a_rate_that_has_fallen_is_slower(modules):
    outcome = outcome_of(modules, "MB/s", [80e6] * 4, [100e6] * 4)
    assert "best x1.25, paired x1.25" in outcome.slower[0]
    outcome = outcome_of(modules, "MB/s", [100e6] * 4, [80e6] * 4)
    assert (len(outcome.faster), outcome.slower) == (1, [])


def test_rates_are_shown_in_their_unit(modules):
    results = results_of(modules, "MB/s", [80e6], [100e6])
    assert "| shm 8B  |        100 |      80.0 |" in modules.table(
        results, modules.verdicts(results)
    )


def test_what_lies_within_the_spread_is_no_line(modules):
    new, base = [1.1, 2.0, 1.2, 3.0], [1.0, 1.0, 2.0, 1.0]
    outcome = outcome_of(modules, "us", new, base)
    assert (outcome.slower, outcome.faster) == ([], [])
    assert "slower by more than the spread: nothing" in outcome.summary()


def test_the_best_and_the_rounds_have_to_agree(modules):
    outcome = outcome_of(modules, "us", [1.0, 1.5, 1.5, 1.5], [1.0, 1.0, 1.0, 1.0])
    assert outcome.slower == []


def test_a_few_rounds_say_nothing(modules):
    assert outcome_of(modules, "us", [9.0] * 3, [1.0] * 3).slower == []


@pytest.mark.parametrize(
    ("probe", "text"),
    [(0.1, "4 near"), (0.3, "4 far"), (5.0, "4 busy"), (0.0, "state unknown")],
)
def test_the_state_of_the_machine_is_told(modules, probe, text):
    outcome = outcome_of(modules, "us", [2.0] * 4, [1.0] * 4, probe=probe)
    assert outcome.slower[0].endswith(text)
    assert ("Other programs took the cores" in outcome.summary()) == (probe == 5.0)


class Processes:
    """A side whose case "bad" fails."""

    started = 0

    def __init__(self):
        Processes.started += 1
        self.name = "new"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def measure(self, case, seconds):
        if case == "bad":
            raise RuntimeError("no such call")
        return 1.0


def test_a_case_that_fails_is_told_once_and_the_others_go_on(modules):
    def never():
        raise OSError("cannot be started")

    results = results_of(modules, "us", [], [])
    plan = modules.Plan(rounds=3)
    Processes.started = 0
    starts = [("new", Processes), ("base", never)]
    modules._sides.fresh_rounds(results, starts, ["good", "bad", "better"], plan)
    assert results.by_round("better", "new") == {0: 1.0, 1: 1.0, 2: 1.0}
    assert {*modules._harness.errors(results)} == {
        "new, bad: no such call",
        *(f"base, {case}: cannot be started" for case in ("good", "bad", "better")),
    }
    assert Processes.started == 3 + 1  # each round, and behind the failure


def run_with(compare, monkeypatch, tmp_path, results):
    """The status of a comparison of commits whose measurements are these."""
    commits = compare._commits
    monkeypatch.setattr(commits, "ROOT", tmp_path)
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    monkeypatch.setattr(commits, "FOLDER", tmp_path)
    monkeypatch.setattr(commits, "resolve", lambda name: "0" * 40)
    monkeypatch.setattr(commits, "describe", lambda commit: "a commit")
    monkeypatch.setattr(commits, "python_of", lambda commit: sys.executable)
    monkeypatch.setattr(commits, "check", lambda python, inside: None)
    monkeypatch.setitem(compare.PARTS, "latency", lambda *arguments: results)
    (tmp_path / ("0" * 12)).mkdir()
    options = argparse.Namespace(base="x", only=["latency"], quick=True, rounds=None)
    return compare.compare_commit(options)


def test_times_do_not_make_it_fail(modules, monkeypatch, tmp_path, capsys):
    results = results_of(modules, "us", [9.0] * 4, [1.0] * 4)
    assert run_with(modules, monkeypatch, tmp_path, results) == 0
    assert "slower by more than the spread: 1" in capsys.readouterr().out


def test_a_measurement_that_fails_makes_it_fail(modules, monkeypatch, tmp_path, capsys):
    results = results_of(modules, "us", [1.0], [1.0])
    results.samples[0].error = "no answer in 60 s"
    assert run_with(modules, monkeypatch, tmp_path, results) == 1
    error = "failed: latency: new, shm 8B: no answer in 60 s\n"
    assert capsys.readouterr().err == error


@pytest.fixture
def commits(modules, monkeypatch, tmp_path):
    """A repository with one commit, whose builds are empty."""
    monkeypatch.setattr(modules._commits, "ROOT", tmp_path)
    monkeypatch.setattr(modules._commits, "FOLDER", tmp_path / "build/compare")
    names = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
    for words in (["init", "-q"], [*names, "commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    return modules._commits


def test_a_base_that_is_no_commit_is_named(commits):
    with pytest.raises(commits.BuildError, match=r"^BASE=nothing: git finds no such"):
        commits.resolve("nothing")
    assert len(commits.resolve("HEAD")) == 40


def test_a_build_is_kept_and_made_again_for_another_python(commits, monkeypatch):
    built = []
    monkeypatch.setattr(
        commits,
        "build",
        lambda commit, folder: (built.append(commit), folder.mkdir(parents=True)),
    )
    commit = commits.resolve("HEAD")
    assert commits.python_of(commit) == commits.python_of(commit)
    assert built == [commit]
    monkeypatch.setenv("UCP_UCX", "system")
    commits.python_of(commit)
    assert built == [commit, commit]


def test_a_build_that_fails_is_not_kept(commits, monkeypatch):
    def build(commit, folder):
        folder.mkdir(parents=True)
        commits.run(sys.executable, "-c", "raise SystemExit('no compiler')")

    monkeypatch.setattr(commits, "build", build)
    for _ in range(2):
        with pytest.raises(commits.BuildError, match="exit status 1\nno compiler"):
            commits.python_of(commits.resolve("HEAD"))


def package(folder, content=b""):
    """A package ucp in a folder, and a command that imports it."""
    (folder / "ucp").mkdir(parents=True)
    (folder / "ucp/__init__.py").write_text("")
    (folder / "ucp/_ext.so").write_bytes(content)
    command = folder / "python"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    command.chmod(0o755)
    return str(command)


def test_assertions_and_a_package_of_others_are_refused(modules, tmp_path):
    check = modules._commits.check
    error = modules._commits.BuildError
    good = package(tmp_path / "good")
    check(good, tmp_path / "good")
    with pytest.raises(error, match=r"imports ucp from .*good/ucp, not from .*other"):
        check(good, tmp_path / "other")
    with pytest.raises(error, match=r"_ext\.so was built with assertions"):
        check(package(tmp_path / "slow", b"..__assert_fail.."), tmp_path)
