# SPDX-License-Identifier: Apache-2.0
"""mypy over the Python packages (settings: python/pyproject.toml)."""

import pathlib
import subprocess

import files


def check(root: pathlib.Path) -> list[str]:
    command = [files.tool("mypy"), "--no-error-summary", "lockstep", "MinkowskiEngine", "MinkowskiEngineBackend"]
    done = subprocess.run(command, cwd=root / "python", capture_output=True, text=True)
    return [f"python/{line}" for line in done.stdout.splitlines()] or done.stderr.splitlines()
