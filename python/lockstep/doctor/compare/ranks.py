# SPDX-License-Identifier: Apache-2.0
"""depends-on-ranks: the same global batches on another number of ranks give another loss curve, beyond rounding."""
from __future__ import annotations

import collections
import statistics
from typing import Dict, List, Optional, Sequence, Set, Tuple

from ..findings import Finding
from ..logs import Rank, Run
from ..rules import speed

_EXACT = """sampler = lockstep.ExactSampler(dataset, batch_size=GLOBAL_BATCH, seed=seed)   # the same batches on any number
loader = DataLoader(dataset, batch_sampler=sampler)
lockstep.pin_numerics(); model.register_comm_hook(None, lockstep.canonical_hook)"""
_FIXES = {
    "weights": "torch.manual_seed(seed)   # the same on all ranks, before the model is made",
    "rate": "# make the rate a function of the global batch, not of the number of ranks",
    "masks": "# masks differ with the ranks that draw them: compare mean curves of several seeds, or without dropout",
    "norms": "model = lockstep.SyncBatchNorm.convert_sync_batchnorm(model)   # statistics of the global batch",
    "sum": "p.grad /= world_size   # after all_reduce, for every parameter",
}


def global_batch(run: Run) -> int:
    """Examples of the first step, on all ranks; 0 where that is not to be seen."""
    return sum(_first_sizes(rank) for rank in run.ranks)


def _first_sizes(rank: Rank) -> int:
    roots = [each["root"] for each in rank.of("forward")]
    return sum(e["size"] for e in rank.of("forward") if e["s"] == 0 and e["root"] == roots[0] and e["size"] > 0)


def curve(run: Run) -> Dict[int, float]:
    """Step -> the mean loss of the ranks, each with the weight of its examples."""
    sums: Dict[int, float] = collections.defaultdict(float)
    weights: Dict[int, float] = collections.defaultdict(float)
    for rank in run.ranks:
        size: Dict[int, int] = {}
        for each in rank.of("forward"):
            size.setdefault(each["s"], max(1, each["size"]))
        for each in rank.of("backward"):
            if each["loss"] is not None:
                weight = size.get(each["s"], 1)
                sums[each["s"]] += each["loss"] * weight
                weights[each["s"]] += weight
    return {step: sums[step] / weights[step] for step in sums}


def _parting(one: Dict[int, float], two: Dict[int, float]) -> Optional[int]:
    """The first step from which the curves are apart by more than rounding brings."""
    steps = sorted(set(one) & set(two))
    scale = max((abs(one[step]) for step in steps), default=0.0)
    far = [step for step in steps if abs(one[step] - two[step]) > min(2e-2, 2e-5 * (5 + step)) * max(scale * 0.1, abs(one[step]))]
    later = [step for step in steps if far and step >= far[0]]
    return far[0] if far and len(far) >= 0.5 * len(later) else None


def _rows(run: Run, step: int) -> Set[int]:
    return {row for rank in run.ranks for each in rank.of("forward") if each["s"] == step for row in each["rows"]}


def _gradient_ratio(one: Run, two: Run) -> float:
    """By what the first gradients of one are larger; 0 where that is not to be seen."""
    first, second = (next(iter(run.ranks[0].of("gradients")), None) for run in (one, two))
    if not first or not second or first.get("names") != second.get("names"):
        return 0.0
    ratios = [a / b for a, b in zip(first["norm"], second["norm"]) if b]
    return statistics.median(ratios) if ratios else 0.0


def _why(one: Run, two: Run, step: int, known: Sequence[Finding]) -> List[Tuple[str, str]]:
    """(what it is, the sentence) of each cause that can be seen."""
    found: List[Tuple[str, str]] = []
    first, second = one.ranks[0], two.ranks[0]
    weights = [next(iter(rank.of("weights")), None) for rank in (first, second)]
    if weights[0] and weights[1] and weights[0]["h"] != weights[1]["h"]:
        found.append(("weights", "the runs begin with different weights"))
    rows = [(s, _rows(one, s), _rows(two, s)) for s in range(step + 1)]
    other = next((s for s, a, b in rows if a and b and len(a & b) < 0.5 * min(len(a), len(b))), None)
    if other is not None:
        found.append(("examples", f"the global batch of step {other} holds other examples"))
    rates = [[group.get("lr") for each in rank.of("optimizer") for group in each["settings"]] for rank in (first, second)]
    if rates[0] != rates[1]:
        found.append(("rate", f"the learning rates are {rates[0][:1]} on {one.world} and {rates[1][:1]} on {two.world} ranks"))
    if any("BatchNorm" in each["cls"] and "Sync" not in each["cls"] for _, each in one.of("norm")):
        found.append(("norms", "batch norms take the statistics of one rank's share (unsynchronised-batch-norm)"))
    if any(each["drawn"] for each in first.of("random")):
        found.append(("masks", "the forward pass draws random numbers (dropout), each rank its own"))
    ratio = _gradient_ratio(one, two) if not found else 0.0
    if ratio and abs(ratio * two.world / one.world - 1) < 0.05:
        found.append(("sum", f"gradients are {ratio:.2f} times as large: the ranks' sum, not their mean"))
    codes = [each.code for each in known if each.severity != "note" and each.code not in ("unsynchronised-batch-norm",)]
    return found + [(code, f"{code}, which was found above") for code in dict.fromkeys(codes)]


def judge(one: Run, two: Run, known: Sequence[Finding]) -> List[Finding]:
    """What differs between the run that was judged (`one`) and that on another number of ranks."""
    if not one.ranks or not two.ranks:
        return []
    batches = global_batch(one), global_batch(two)
    where = next((each["where"] for _, each in one.of("loader")), "")
    ranks = [rank.number for rank in one.ranks]
    if batches[0] != batches[1]:
        return [Finding("depends-on-ranks", "note", "The global batch depends on the number of ranks, so the curves cannot be compared.",
                        [f"{batches[0]} examples on {one.world} ranks, {batches[1]} on {two.world}"], ranks, where,
                        "A recipe that was tuned on one number of ranks is another one on the next.", _EXACT)]  # fmt: skip
    curves = curve(one), curve(two)
    step = _parting(*curves)
    if step is None:
        return []
    causes = _why(one, two, step, known)
    steps = sorted(set(curves[0]) & set(curves[1]))
    evidence = [f"step {step}: loss {curves[0][step]:.6g} on {one.world} ranks, {curves[1][step]:.6g} on {two.world}; step {steps[-1]}: "
                f"{curves[0][steps[-1]]:.6g} and {curves[1][steps[-1]]:.6g}"]  # fmt: skip
    evidence += [f"why: {sentence}" for _, sentence in causes] or ["why: nothing that was watched explains it"]
    meant = {"rate", "masks"}
    severity = "note" if causes and {kind for kind, _ in causes} <= meant else "warning"
    fix = next((_FIXES[kind] for kind, _ in causes if kind in _FIXES), _EXACT)
    return [Finding("depends-on-ranks", severity, f"The same global batches train differently on {one.world} and on {two.world} ranks.",
                    evidence, ranks, where, "What is learned depends on the machine, and results of one cannot be repeated on another.",
                    fix, "" if causes else "The loss curves alone.")]  # fmt: skip


def speedup(one: Run, two: Run) -> Optional[Tuple[float, float]]:
    """Examples a second of both runs, from their median steps; none where too few steps were made."""
    found = []
    for run in (one, two):
        times = [statistics.median(each) for each in (speed.step_times(rank) for rank in run.ranks) if len(each) > 2]
        batch = global_batch(run)
        if not times or not batch:
            return None
        found.append(batch / max(times))
    return found[0], found[1]
