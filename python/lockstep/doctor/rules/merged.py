# SPDX-License-Identifier: Apache-2.0
"""Figures that a collective did bring together, in a wrong way: means of shares of different sizes (mean-of-means), and
means of statistics that do not average (rank-local-metric)."""
from __future__ import annotations

import statistics
from typing import Dict, List, Optional

from ..findings import Finding
from ..logs import Run
from ..sources import source
from . import figures


def _sizes(of_ranks: Dict[int, figures.Phase]) -> Dict[int, int]:
    return {n: sum(batch["size"] for one in each.passes[-1:] for batch in one.batches) for n, each in of_ranks.items()}


def _reduced(run: Run, of_ranks: Dict[int, figures.Phase]) -> List[Dict[int, dict]]:
    """The calls of a phase that add one number of each rank, as rank -> call with its result."""
    found: Dict[tuple, Dict[int, dict]] = {}
    for rank in run.ranks:
        if rank.number in of_ranks:
            results = {(each["group"], each["i"]): each["after"] for each in rank.of("called")}
            for each in figures.merges(rank, of_ranks[rank.number]):
                if each["kind"] in ("all_reduce", "reduce") and each["before"] and len(each["before"]) <= 2:
                    key = (each["group"], each["i"])
                    found.setdefault(key, {})[rank.number] = {**each, "after": results.get(key)}
    return [each for each in found.values() if len(each) == len(of_ranks) > 1]


def _not_means(calls: Dict[int, dict]) -> Optional[Finding]:
    one = calls[min(calls)]
    own = [each["before"][0] for each in calls.values()]
    if not one["where"] or one["op"] not in ("SUM", "AVG") or all(value == int(value) for value in own):
        return None
    words = [name for name in source.names_behind(one["where"][0]) if figures.NOT_MEANS.search(name)]
    if not words:
        return None
    return Finding(
        "rank-local-metric", "warning", "Ranks average a statistic that does not average.",
        [f"'{words[0]}' of each rank is added up at {source.short(one['where'])}: " + ", ".join(f"{v:.4g}" for v in own)],
        sorted(calls), one["where"][0],
        "The mean of the parts' statistics is not that of all examples: a Frechet distance of few examples is too large.",
        figures.MOMENTS, f"The name '{words[0]}'. To be sure, compare with the figure of one process.")  # fmt: skip


def _mean_of_means(run: Run, of_ranks: Dict[int, figures.Phase], calls: Dict[int, dict]) -> Optional[Finding]:
    """A rank's mean, added and divided by the number of ranks, where ranks saw different numbers of examples."""
    sizes = _sizes(of_ranks)
    ranks = sorted(calls)
    if len(set(sizes.values())) < 2 or not all(sizes.values()):
        return None
    own = [calls[n]["before"][0] for n in ranks]
    one = calls[ranks[0]]
    mean = statistics.fmean(own)
    right = sum(value * sizes[n] for value, n in zip(own, ranks)) / sum(sizes.values())
    averaged = one["op"] == "AVG"
    for rank in run.ranks:
        phase = of_ranks.get(rank.number)
        for each in phase.within(rank.of("figure")) if phase is not None and not averaged else ():
            shown = [text for text in each["numbers"] if len(text.strip("-0.").replace(".", "")) >= 3]
            averaged = averaged or (each["t"] > one["t"] and any(
                figures.shown_as(text, mean * f) and not figures.shown_as(text, right * f) for text in shown for f in (1, 100)))  # fmt: skip
    off = abs(mean - right) / max(abs(right), 1e-12)
    if not averaged or off < 1e-4 or not one["where"]:
        return None
    return Finding(
        "mean-of-means", "warning" if off > 0.001 else "note", "A figure is the mean of the ranks' means, whose shares differ in size.",
        [f"{', '.join(f'{v:.5g}' for v in own)} over {', '.join(str(sizes[n]) for n in ranks)} examples: their mean is "
         f"{mean:.5g}, that of all examples {right:.5g}"], ranks, one["where"][0],
        f"The figure is off by {off:.2%}, and by another amount on another number of ranks.", figures.FIX)  # fmt: skip


def judge(run: Run) -> List[Finding]:
    if run.world < 2:
        return []
    found: Dict[str, Finding] = {}
    for of_ranks in figures.all_phases(run).values():
        for calls in _reduced(run, of_ranks):
            for each in (_not_means(calls), _mean_of_means(run, of_ranks, calls)):
                if each is not None:
                    found.setdefault(each.code, each)
    return list(found.values())
