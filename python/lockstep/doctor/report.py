# SPDX-License-Identifier: Apache-2.0
"""The findings as text."""
from __future__ import annotations

import textwrap
from typing import List

from . import command, logs, trials
from .findings import Finding

WIDTH = 110


def _block(label: str, text: str) -> List[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"  {label:<9}", subsequent_indent=" " * 11) if text else []


def _finding(each: Finding) -> List[str]:
    lines = textwrap.wrap(f"{each.severity}: {each.code}: {each.summary}", WIDTH)
    for number, line in enumerate(each.evidence):
        lines += _block("evidence" if number == 0 else "", line)
    lines += _block("where", each.where)
    lines += _block("costs", each.cost)
    lines += _block("rests on", each.rests_on)
    if each.fix:
        first, *rest = each.fix.splitlines()
        lines += [f"  {'fix':<9}{first}", *(" " * 11 + line for line in rest)]
    return lines


def watched(run: logs.Run, outcome: command.Outcome) -> str:
    steps = [rank.steps or len(rank.of("backward")) for rank in run.ranks]
    ranks = "1 rank" if len(steps) == 1 else f"{len(steps)} ranks"
    made = f"{min(steps)}" if len(set(steps)) == 1 else f"{min(steps)} to {max(steps)}"
    how = {"steps": "then the doctor ended it", "hang": "then its ranks waited for each other, and the doctor ended it",
           "interrupted": "then it was interrupted"}.get(outcome.ended, "to its own end")  # fmt: skip
    return f"doctor: watched {ranks} for {made} steps, {how}."


def text(judged: trials.Judged) -> str:
    lines, run, findings = [""], judged.run, judged.findings
    if judged.problem:
        lines.append(f"doctor: the program could not be judged: {judged.problem}")
    if run.ranks:
        lines.append(watched(run, judged.outcome))
    if judged.outcome.ended == "steps":
        lines.append("doctor: what it does later (a last evaluation, saving) was not seen; --steps 0 watches to its own end.")
    for name in sorted({str(each.get("observer")) for each in run.broken}):
        error = next(str(each.get("error")) for each in run.broken if str(each.get("observer")) == name)
        lines.append(f"doctor: {name} could not be watched ({error}).")
    lines += [f"doctor: {each}" for each in judged.lines]
    for each in findings:
        lines += ["", *_finding(each)]
    counts = [sum(each.severity == severity for each in findings) for severity in ("error", "warning", "note")]
    lines += ["", "doctor: {} errors, {} warnings, {} notes.".format(*counts)]
    return "\n".join(lines)
