# SPDX-License-Identifier: Apache-2.0
"""From the command line to the exit code."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
import tempfile
from typing import Sequence

from . import options, page, report, trials
from .findings import Finding, is_bad


def _write_json(name: str, findings: Sequence[Finding]) -> None:
    text = json.dumps([each.as_json() for each in findings], indent=1)
    if name == "-":
        print(text, flush=True)
    else:
        pathlib.Path(name).write_text(text + "\n")


def _why_not(judged: trials.Judged) -> str:
    """Why there is nothing to judge; empty where there is."""
    if judged.problem or judged.outcome.error:
        return judged.problem or judged.outcome.error
    if judged.outcome.code and not is_bad(judged.findings):
        raised = [f" (rank {rank}: {each['error']})" for rank, each in judged.run.of("raised")]
        return f"the program ended with exit code {judged.outcome.code}" + "".join(raised[:1])
    if not judged.run.ranks and not judged.is_native:
        return "no process of the program imported torch and trained under our eyes (python -I, -E and -S keep them shut)"
    asked = trials.asked_ranks(judged.words)
    if 0 < judged.run.world < asked and not is_bad(judged.findings):
        return (f"the command asks for {asked} ranks, and {judged.run.world} trained: either no more were started (accelerate launch --cpu "
                "starts one), or the others write no log into this folder")  # fmt: skip
    return ""


def main(arguments: Sequence[str]) -> int:
    given = options.parse(arguments)
    folder = given.keep or tempfile.mkdtemp(prefix="lockstep-doctor-")
    os.makedirs(folder, exist_ok=True)
    try:
        judged = trials.Trials(given, folder).judge()
        judged.problem = _why_not(judged)
        if given.json:
            _write_json(given.json, judged.findings)
        if given.html:
            pathlib.Path(given.html).write_text(page.html(judged))
        sys.stdout.flush()
        print(report.text(judged), file=sys.stderr if given.json == "-" else sys.stdout, flush=True)
        if judged.problem:
            return 2
        return 1 if is_bad(judged.findings) else 0
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
