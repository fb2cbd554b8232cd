# SPDX-License-Identifier: Apache-2.0
"""The rules: functions from a run to findings. A rule that fails says so in a note and keeps no other from judging."""
from __future__ import annotations

from typing import Callable, List, Tuple

from ..findings import Finding
from ..logs import Run
from . import calls, coverage, duplicates, figures, gradients, merged, norms, order, settings, speed, streams, weights

RULES: Tuple[Callable[[Run], List[Finding]], ...] = (
    duplicates.judge,
    coverage.judge,
    order.judge,
    streams.judge_workers,
    streams.judge_masks,
    norms.judge,
    weights.judge,
    gradients.judge,
    gradients.judge_shares,
    gradients.judge_counts,
    calls.judge,
    settings.judge_rate,
    settings.judge_unused,
    settings.judge_names,
    figures.judge,
    merged.judge,
    speed.judge,
)


def judge(run: Run) -> List[Finding]:
    found: List[Finding] = []
    for rule in RULES:
        try:
            found += rule(run)
        except Exception as error:
            name = f"{rule.__module__.rsplit('.', 1)[-1]}.{rule.__name__}"
            found.append(Finding("not-judged", "note", f"The rule {name} failed ({type(error).__name__}: {error})."))
    return found
