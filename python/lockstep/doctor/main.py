# SPDX-License-Identifier: Apache-2.0
"""From the command line to the exit code."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
import tempfile
from typing import List, Sequence

from . import command, logs, options, report, rules
from .findings import Finding, in_order, is_bad


def _write_json(name: str, findings: Sequence[Finding]) -> None:
    text = json.dumps([each.as_json() for each in findings], indent=1)
    if name == "-":
        print(text, flush=True)
    else:
        pathlib.Path(name).write_text(text + "\n")


def _watched(given: options.Options, folder: str) -> "tuple[logs.Run, command.Outcome]":
    outcome = command.run(given.command, folder, given.steps)
    run = logs.read(folder)
    run.ended = outcome.ended
    return run, outcome


def _why_not(run: logs.Run, outcome: command.Outcome, findings: Sequence[Finding]) -> str:
    """Why there is nothing to judge; empty where there is."""
    if outcome.error:
        return outcome.error
    if outcome.code and not is_bad(findings):
        return f"the program ended with exit code {outcome.code}"
    if not run.ranks:
        return "no process of the program imported torch and trained under our eyes (python -I, -E and -S keep them shut)"
    return ""


def main(arguments: Sequence[str]) -> int:
    given = options.parse(arguments)
    folder = given.keep or tempfile.mkdtemp(prefix="lockstep-doctor-")
    os.makedirs(folder, exist_ok=True)
    try:
        run, outcome = _watched(given, folder)
        findings: List[Finding] = in_order(rules.judge(run))
        problem = _why_not(run, outcome, findings)
        if given.json:
            _write_json(given.json, findings)
        sys.stdout.flush()
        text = report.text(run, outcome, findings, problem)
        print(text, file=sys.stderr if given.json == "-" else sys.stdout, flush=True)
        if problem:
            return 2
        return 1 if is_bad(findings) else 0
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
