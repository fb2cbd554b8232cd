# SPDX-License-Identifier: Apache-2.0
"""All that CI checks without running the code: `python3 tools/lint`, or with --fix, which formats what it can."""

import pathlib
import sys
import time

import files
import layers
import layout
import local_names
import options
import python_types
import text
import tidy
import tree

CHECKS = {
    "layers": layers.check,
    "tree": tree.check,
    "names": local_names.check,
    "text": text.check,
    "options": options.check,
    "layout": layout.check,
    "cmake": layout.check_cmake,
    "types": python_types.check,
    "tidy": tidy.check,
}


def main() -> int:
    root = pathlib.Path(__file__).resolve().parents[2]
    if sys.argv[1:] == ["--fix"]:
        layout.fix(root)
        return 0
    names = sys.argv[1:] or list(CHECKS)
    if unknown := [name for name in names if name not in CHECKS]:
        print(f"lint: got '{unknown[0]}', expected --fix or some of: {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    failed = []
    for name in names:
        start = time.monotonic()
        try:
            problems = CHECKS[name](root)
        except files.MissingTool as error:
            problems = [str(error)]
        for problem in problems:
            print(problem)
        verdict = f"{len(problems)} problems" if problems else "ok"
        print(f"lint: {name}: {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
        if problems:
            failed.append(name)
    if failed:
        print(f"lint: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


sys.exit(main())
