# SPDX-License-Identifier: Apache-2.0
"""clang-format over the C++ and CUDA sources, cmake-lint over the CMake files."""

import pathlib
import re
import subprocess

import files


def check(root: pathlib.Path) -> list[str]:
    command = [files.tool("clang-format"), "--dry-run", "-Werror", *map(str, files.cpp_files(root))]
    output = subprocess.run(command, cwd=root, capture_output=True, text=True).stderr
    badly = sorted(set(re.findall(r"^([^\n:]+):\d+:\d+: error", output, re.M)))
    return [f"{pathlib.Path(name).relative_to(root)}: not laid out by clang-format, run ./dev format" for name in badly]


def fix(root: pathlib.Path) -> None:
    subprocess.run([files.tool("clang-format"), "-i", *map(str, files.cpp_files(root))], cwd=root, check=True)


def check_cmake(root: pathlib.Path) -> list[str]:
    names = [str(path.relative_to(root)) for path in files.cmake_files(root)]
    command = [files.tool("cmake-lint"), "--suppress-decorations", "-c", ".cmake-lint.py", "--", *names]
    output = subprocess.run(command, cwd=root, capture_output=True, text=True).stdout
    return [line for line in output.splitlines() if re.match(r"\S+:\d+", line)]
