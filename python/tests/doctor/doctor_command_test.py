# SPDX-License-Identifier: Apache-2.0
"""The doctor's command with whole programs, as users start it."""
import json
import pathlib
import subprocess
import sys

import torch

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
DOCTOR = pathlib.Path(__file__).resolve().parents[2] / "lockstep" / "doctor"  # run as a folder, it imports no torch
TORCHRUN = [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def doctor(*arguments, folder):
    """(exit code, standard output, findings)."""
    file = folder / "findings.json"
    command = [sys.executable, "-B", str(DOCTOR), "--json", str(file), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr, json.loads(file.read_text()) if file.exists() else None


def test_a_program_under_torchrun(tmp_path):
    code, text, found = doctor("--steps", "5", "--", *TORCHRUN, PROGRAMS / "data.py", "no-sampler", folder=tmp_path)
    assert code == 1, text
    assert [each["code"] for each in found if each["severity"] == "error"] == ["duplicate-examples"]
    assert found[0]["where"].split("/")[-1].startswith("data.py:") and found[0]["ranks"] == [0, 1]
    assert "the doctor ended it" in text and "error: duplicate-examples" in text


def test_ranks_that_wait_for_each_other_are_ended(tmp_path):
    code, text, found = doctor("--", *TORCHRUN, PROGRAMS / "models.py", "rank-call", folder=tmp_path)
    assert code == 1, text
    calls = [each for each in found if each["code"] == "mismatched-collectives"]
    assert "all_reduce [2] at models.py:" in calls[0]["evidence"][0]
    assert "broadcast [2] at models.py:" in calls[0]["evidence"][1]


def test_a_program_that_raises_an_error(tmp_path):
    program = "import torch.distributed as dist; dist.init_process_group('gloo'); raise ValueError('no such folder')"
    (tmp_path / "train.py").write_text(program)
    code, text, _ = doctor("--", *TORCHRUN, tmp_path / "train.py", folder=tmp_path)
    assert code == 2 and "ValueError: no such folder" in text


def test_a_program_that_cannot_be_run(tmp_path):
    assert doctor("--", "no-such-command", folder=tmp_path)[0] == 2
    code, text, _ = doctor("--", sys.executable, "-c", "raise SystemExit(3)", folder=tmp_path)
    assert code == 2 and "exit code 3" in text
    code, text, _ = doctor("--", sys.executable, "-c", "print(1)", folder=tmp_path)
    assert code == 2 and "no process" in text


def test_watching_changes_no_bit(tmp_path):
    alone = [sys.executable, "-B", str(PROGRAMS / "data.py"), "healthy", str(tmp_path / "alone.pt")]
    subprocess.run(alone, check=True, timeout=240, capture_output=True)
    assert doctor("--steps", "0", "--", *alone[:-1], tmp_path / "watched.pt", folder=tmp_path)[0] == 0
    one, two = (torch.load(tmp_path / name) for name in ("alone.pt", "watched.pt"))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
