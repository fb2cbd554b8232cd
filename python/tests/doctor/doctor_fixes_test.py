# SPDX-License-Identifier: Apache-2.0
"""The doctor's fixes, put into the programs that they were printed for: the fault is gone, and no other came.

imbalance, slow-python and mismatched-collectives have advice for a fix, not lines; healthy programs that follow it are in
doctor_findings_test.py.
"""
import pathlib
import subprocess
import sys

import pytest

from lockstep.doctor import command, findings

MENDED = pathlib.Path(__file__).resolve().parent / "mended"
sys.path.insert(0, str(MENDED))
import mend  # noqa: E402

# The modules of programs, and what the doctor has in their environment.
MODULES = {("fixes_data", "fixes_models"): {}, ("fixes_runs", "fixes_ranks"): {"LOCKSTEP_DOCTOR_TRACE": "1"}}
CASES = [(module, name, code) for modules in MODULES for module in modules for name, code in mend.faults(module).items()]
# What a fix may leave of the same cost: with four times the examples a part of the communication may still be seen.
REST = {"batch-too-small": {"communication-exposed"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("logs")
    for modules, more in MODULES.items():
        environment = command.environment(str(made / "launcher"), more)
        done = subprocess.run([sys.executable, "-B", str(MENDED / "mend.py"), str(made), *modules], env=environment,
                              capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
    return str(made)


def worst(found, code):
    """3: an error, 2: a warning, 1: a note, 0: nothing of that code."""
    return max((3 - findings.SEVERITIES.index(each.severity) for each in found if each.code == code), default=0)


def above_notes(found):
    return {each.code for each in found if each.severity != "note"}


@pytest.mark.parametrize("module, name, code", CASES)
def test_the_fix_that_is_printed_mends_the_program(folder, module, name, code):
    before, after = (mend.judged(folder, f"{each}:{name}") for each in (module, f"mended_{module}"))
    assert mend.ended(folder, f"mended_{module}:{name}") == {"by itself"}
    assert worst(after, code) < worst(before, code) and code not in above_notes(after), [each.evidence for each in after]
    assert above_notes(after) <= above_notes(before) | REST.get(code, set())
