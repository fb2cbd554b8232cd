# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the project's files, and the tools that ./dev setup installed."""

import pathlib
import shutil
import subprocess
import sys

CPP = {".h", ".cpp", ".cu", ".cuh"}


class MissingTool(Exception):
    pass


def git(root: pathlib.Path, *arguments: str) -> list[str]:
    """The lines that git prints; none where it fails."""
    result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    return result.stdout.splitlines() if result.returncode == 0 else []


def project_files(root: pathlib.Path) -> list[pathlib.Path]:
    """All files that are tracked or could be: git's list less what it ignores."""
    names = git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    return [root / name for name in sorted(set(names)) if (root / name).is_file()]


def cpp_files(root: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in project_files(root) if path.suffix in CPP]


def cmake_files(root: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in project_files(root) if path.name == "CMakeLists.txt" or path.suffix == ".cmake"]


def tool(name: str) -> str:
    """A pinned tool from the environment that lint runs in (./dev lint: that of ./dev setup), else the system's."""
    own = pathlib.Path(sys.prefix) / "bin" / name
    found = str(own) if own.exists() else shutil.which(name)
    if not found:
        raise MissingTool(f"no {name} found, expected it beside {sys.executable} or in PATH (./dev lint brings it, where "
                          "LOCKSTEP_TORCH is not set)")
    return found
