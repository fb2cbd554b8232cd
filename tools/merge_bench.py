# SPDX-License-Identifier: Apache-2.0
"""Joins the JSON files of several benchmark programs: merge_bench.py OUT a_bench.json b_bench.json ..."""

import json
import pathlib
import platform
import sys


def main() -> None:
    out, *parts = map(pathlib.Path, sys.argv[1:])
    merged = {"machine": platform.machine(), "benchmarks": {}}
    for part in parts:
        merged["benchmarks"][part.stem] = json.loads(part.read_text())
    out.write_text(json.dumps(merged, indent=1) + "\n")


if __name__ == "__main__":
    main()
