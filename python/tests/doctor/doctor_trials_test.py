# SPDX-License-Identifier: Apache-2.0
"""Where the doctor runs a program more than once, and what it says of programs of the C++ library."""
import os
import pathlib
import subprocess
import sys

import pytest
from doctor_command_test import PROGRAMS, TORCHRUN, doctor

from lockstep.doctor import command, compare, logs, rules

TWICE = ("backward", "generator", "other-operation", "seeded")
ON_ONE = ("same", "sum", "weights", "examples", "norm", "rate")


def logged(made, specs, more):
    environment = command.environment(str(made / "launcher"), more)
    done = subprocess.run([sys.executable, "-B", str(PROGRAMS / "several.py"), str(made), *specs], env=environment,
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for spec in specs:
        assert (made / spec.replace(":", "-") / "ended").read_text() == "by itself", spec
    return made


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    specs = [f"again:{name}:2:{run}" for name in TWICE for run in "ab"]
    return logged(tmp_path_factory.mktemp("twice"), specs, {"LOCKSTEP_DOCTOR_TRACE": "1"})


@pytest.fixture(scope="module")
def on_one(tmp_path_factory):
    return logged(tmp_path_factory.mktemp("on-one"), [f"again:{name}:{ranks}" for name in ON_ONE for ranks in (1, 2)], {})


@pytest.mark.parametrize(
    "name, summary, line",
    [
        ("backward", "Something from outside", "in the backward pass of '2' (ShakenBackward"),
        ("generator", "A generator of random numbers", "randn"),
        ("other-operation", "The runs take different ways", "one calls "),
    ],
)
def test_what_differs_between_two_runs(twice, name, summary, line):
    (found,) = compare.runs.judge([logs.read(str(twice / f"again-{name}-2-{run}")) for run in "ab"])
    assert found.code == "nondeterministic-operation" and found.severity == "warning" and found.summary.startswith(summary)
    assert any(line in each for each in found.evidence) and found.where.split("/")[-1].startswith("again.py:"), found


def test_two_runs_that_are_seeded_are_the_same(twice):
    assert compare.runs.judge([logs.read(str(twice / f"again-seeded-2-{run}")) for run in "ab"]) == []


@pytest.mark.parametrize(
    "name, severity, why",
    [
        ("sum", "warning", "the ranks' sum, not their mean"),
        ("weights", "warning", "begin with different weights"),
        ("examples", "warning", "holds other examples"),
        ("norm", "warning", "batch norms take the statistics of one rank's share"),
        ("rate", "note", "the learning rates are"),
    ],
)
def test_why_a_number_of_ranks_changes_the_training(on_one, name, severity, why):
    one, two = (logs.read(str(on_one / f"again-{name}-{ranks}")) for ranks in (1, 2))
    (found,) = compare.ranks.judge(two, one, rules.judge(two))
    assert found.code == "depends-on-ranks" and found.severity == severity
    assert any(why in each for each in found.evidence), found.evidence


def test_the_same_training_on_one_and_on_two_ranks(on_one):
    one, two = (logs.read(str(on_one / f"again-same-{ranks}")) for ranks in (1, 2))
    assert compare.ranks.judge(two, one, rules.judge(two)) == []


def test_two_runs_of_one_seed_that_differ(tmp_path):
    program = [sys.executable, "-B", PROGRAMS / "rescue.py", "4-before"]
    code, text, found = doctor("--runs", "2", "--html", tmp_path / "page.html", "--", *program, folder=tmp_path)
    assert code == 1, text
    finding = next(each for each in found if each["code"] == "nondeterministic-operation")
    assert "step 0" in finding["evidence"][0] and "in '1', at rescue.md:" in finding["evidence"][0]
    page = (tmp_path / "page.html").read_text()
    assert "nondeterministic-operation" in page and page.count("<rect") > 20 and page.count("<polyline") == 2


def test_another_number_of_ranks(tmp_path):
    program = [sys.executable, "-B", PROGRAMS / "models.py", "manual-sum"]
    code, text, _ = doctor("--ranks", "1,2", "--", *program, folder=tmp_path)
    assert code == 2 and "{ranks}" in text
    launched = [*TORCHRUN[:-1], "{ranks}", PROGRAMS / "data.py", "healthy"]
    code, text, found = doctor("--ranks", "1,2", "--", *launched, folder=tmp_path)
    assert code == 0 and "times as fast" in text, text
    finding = next(each for each in found if each["code"] == "depends-on-ranks")
    assert finding["severity"] == "note" and "the learning rates are [0.02] on 2 and [0.01] on 1 ranks" in finding["evidence"][1]


NATIVE, LOCKSTEP = os.environ.get("LOCKSTEP_DOCTOR_NATIVE", ""), os.environ.get("LOCKSTEP_PROGRAM", "")
# What traces say of time is what the machine did: other programs on it add such findings, and make them notes.
OF_TIME = ("batch-too-small", "communication-exposed", "imbalance", "slow-python", "waits-for-data")


@pytest.mark.skipif(not NATIVE or not pathlib.Path(NATIVE).exists(), reason="the C++ program is not built")
@pytest.mark.parametrize(
    "variant, more, code",
    [
        ("healthy", ["--ranks", "1,2"], None),
        ("writes", [], "weights-differ"),
        ("calls", [], "mismatched-collectives"),
        ("slower", [], "imbalance"),
        ("counts-ranks", ["--ranks", "1,2"], "depends-on-ranks"),
    ],
)
def test_programs_of_the_library(tmp_path, variant, more, code):
    done, text, found = doctor(*more, "--", LOCKSTEP, "run", "-n", "2", "--", NATIVE, variant, folder=tmp_path)
    above = [each["code"] for each in found if each["severity"] != "note"]
    assert [each for each in above if each not in OF_TIME] == ([code] if code not in (None, *OF_TIME) else []), text
    assert code is None or code in [each["code"] for each in found], text
    assert done == (1 if above else 0) and "judged by its own means" in text
