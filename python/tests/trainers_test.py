# SPDX-License-Identifier: Apache-2.0
"""Sparse networks in the hands of Lightning's Trainer, of Accelerate and of Ray Train: two processes, Gloo."""
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples"


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-B", str(FOLDER / script), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "package, script",
    [("lightning", "with_lightning.py"), ("accelerate", "with_accelerate.py"), ("ray", "with_ray.py")],
)
def test_trainers_of_others(package, script):
    pytest.importorskip(package, reason=f"{package} is not installed")
    text = run(script, "--processes", "2", "--size", "24")
    assert "2 processes" in text and "same weights on all" in text
