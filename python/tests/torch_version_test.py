# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import re
import subprocess
import sys

import torch

import lockstep

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def test_an_extension_that_was_built_for_another_torch_says_so_in_one_line(tmp_path):
    other = tmp_path / "lockstep"
    other.mkdir()
    for file in pathlib.Path(lockstep.__file__).parent.iterdir():
        if not file.name.startswith(("_built.py", "_C.", "__pycache__")):
            (other / file.name).symlink_to(file)
    (other / "_built.py").write_text('torch_version = "2.10.9"\n')
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-B", "-c", "import MinkowskiEngine"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: lockstep was built for torch 2.10.9, but torch {torch.__version__} is installed: "
        "build it again with 'pip install --no-deps ./python' in Lockstep's folder")


def test_pip_takes_every_torch_from_the_oldest_that_is_tested():
    oldest = re.search(r"^\d+\.\d+", (PROJECT / "cmake" / "torch_versions.txt").read_text(), re.M)[0]
    for file in ("pyproject.toml", "build_backend.py"):
        assert f'"torch>={oldest}"' in (PROJECT / "python" / file).read_text(), file
