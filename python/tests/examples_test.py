# SPDX-License-Identifier: Apache-2.0
"""Every example runs, on small data, and learns something."""
import os
import pathlib
import re
import runpy
import subprocess
import sys

import pytest
import torch

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """run(script, *arguments) -> what it prints: as a program of this process, which has imported torch already."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(FOLDER)

    def run_here(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        runpy.run_path(str(FOLDER / script), run_name="__main__")
        return capsys.readouterr().out

    yield run_here
    torch.set_num_threads(before)


def torchrun(processes, script, *arguments):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, "-B", *launcher, str(FOLDER / script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(text, pattern):
    return [float(value) for value in re.findall(pattern, text)]


def test_classification_gives_the_same_losses_on_one_process_and_on_two(run):
    small = ("--epochs", "2", "--size", "36")
    alone, together = run("classification.py", *small), torchrun(2, "classification.py", *small)
    losses = numbers(alone, r"loss ([\d.]+)")
    assert losses[1] < losses[0]
    both = numbers(together, r"epoch \d: loss ([\d.]+)")
    assert both[::2] == both[1::2] == pytest.approx(losses, rel=1e-3)  # each rank prints the same


def test_segmentation(run):
    assert numbers(run("segmentation.py", "--steps", "10"), r"IoU ([\d.]+)")[0] > 0.8


def test_completion(run):
    text = run("completion.py", "--steps", "40")
    assert numbers(text, r"result ([\d.]+)")[0] > 0.05 + numbers(text, r"input ([\d.]+)")[0]


def test_multi_device(run):
    assert numbers(run("multi_device.py", "--steps", "6"), r"loss ([\d.]+)")[0] < 1.0
