# SPDX-License-Identifier: Apache-2.0
"""learning-rate-not-scaled, unused-parameters and slow-names: what optimisers, wrappers and hosts were set to."""
from __future__ import annotations

import re
from typing import Any, Dict, List

from ..findings import Finding
from ..logs import Run
from ..sources import source

_WORLD = re.compile(r"world|num_processes|processes|replicas|gpus|devices|num_ranks|n_ranks|scale", re.I)
_ADAPTIVE = re.compile(r"adam|adagrad|rmsprop|lamb|adafactor|lion", re.I)  # their steps grow with the root of the batch
_LINEAR = "lr = {rate:g} * world_size   # with a warm-up of some epochs"
_ROOT = "lr = {rate:g} * world_size ** 0.5   # {name}: the root"
UNANSWERED = 0.5  # seconds for a name


def _names_ranks(where: str, callee: str, keyword: str) -> bool:
    """Whether an argument of the call on a line, or what it was made from, names something that grows with the ranks."""
    names = source.names_behind_argument(where, callee, keyword, 1)
    return any(_WORLD.search(name) for name in (source.line(where).split() if names is None else names))


def _grows(run: Run, number: int, rates: List[float]) -> bool:
    """Whether a schedule raises an optimiser's rate to what the ranks' batch asks for."""
    later = [group["lr"] for each in run.ranks[0].of("gradients") if each["opt"] == number
             for group in each["settings"] if group.get("lr") is not None]  # fmt: skip
    return bool(later) and max(later) > 1.3 * max(rates)


def _divides_batch(run: Run) -> bool:
    """Whether the batch of the training's loader was divided by the number of ranks, so that the global one is as before."""
    loaders = [one.loader.about for one in run.ranks[0].passes.values() if one.trains]
    return any("ExactSampler" in about["samplers"] or (about["where"] and _names_ranks(about["where"], "DataLoader", "batch_size")) for about in loaders)


def judge_rate(run: Run) -> List[Finding]:
    made = run.ranks[0].of("optimizer") if run.world > 1 and not run.is_divided else []
    for each in made:
        rates = [group.get("lr") for group in each["settings"] if group.get("lr") is not None]
        sizes = [e["size"] for e in run.ranks[0].of("forward") if e["size"] > 0]
        if not rates or not sizes or not each["where"] or _names_ranks(each["where"], each["cls"], "lr"):
            continue
        if _grows(run, each["opt"], rates) or _divides_batch(run):
            continue
        batch, fix = max(sizes), _ROOT if _ADAPTIVE.search(each["cls"]) else _LINEAR
        return [Finding(
            "learning-rate-not-scaled", "note",
            f"The global batch is {run.world} times a rank's ({batch * run.world} examples), and the rate does not know.",
            [f"{each['cls']} with rate {rates[0]:g}; the line that makes it names nothing that grows with the ranks"],
            [rank.number for rank in run.ranks], each["where"],
            "A rate that was tuned on one device makes fewer, more exact and so too small steps.",
            fix.format(rate=rates[0], name=each["cls"]),
            "That the rate was chosen for one rank's batch. To be sure, compare the losses of both rates.")]  # fmt: skip
    return []


def judge_unused(run: Run) -> List[Finding]:
    found: List[Finding] = []
    first = run.ranks[0] if run.ranks else None
    if first is None:
        return []
    steps = first.of("gradients")
    ddp = first.of("ddp")
    for number in sorted({each["opt"] for each in steps}):
        own = [each for each in steps if each["opt"] == number]
        never = set.intersection(*(set(each["none"]) for each in own))
        none: Dict[str, Any] = {"where": "", "count": 0}
        about = next((each for each in first.of("optimizer") if each["opt"] == number), none)
        if never and len(own) >= 1:
            bad = run.world > 1 and bool(ddp)
            found.append(Finding(
                "unused-parameters", "warning" if bad else "note",
                f"{len(never)} of {about['count']} parameters never get a gradient.",
                [f"in {len(own)} steps that were looked at: {', '.join(sorted(never)[:5])}"], [first.number], about["where"],
                "DistributedDataParallel waits for them: an error in the second step, or a search through the graph in each "
                "with find_unused_parameters=True." if bad else "They stay as they were made.",
                "for p in unused_layer.parameters():\n    p.requires_grad_(False)   # before wrapping; or take the layer out"))  # fmt: skip
    searching = [each for each in ddp if each["unused"] and not each["static"]]
    if searching and not found and len(steps) > 2 and all(not e["none"] for _, e in run.of("gradients")):
        found.append(Finding(
            "unused-parameters", "warning", "find_unused_parameters=True is set, and every parameter gets its gradient.",
            [f"{len(steps)} steps that were looked at, on {run.world} ranks: none was without"],
            [rank.number for rank in run.ranks], searching[0]["where"],
            "Each step goes through the whole graph once more, and the ranks tell each other what they used.",
            "model = DistributedDataParallel(model)   # without find_unused_parameters",
            "The steps that were looked at: a parameter may be left out in rare ones."))  # fmt: skip
    return found


def judge_names(run: Run) -> List[Finding]:
    slow = [(rank, each) for rank, each in run.of("name") if each["seconds"] > UNANSWERED]
    if not slow:
        return []
    worst = max((each for _, each in slow), key=lambda each: float(each["seconds"]))
    return [Finding(
        "slow-names", "note", "The name server does not answer, or slowly, and each connection to torch.distributed's store asks it.",
        [f"init_process_group took {worst['init']:.1f} s; to learn the name of {worst['address']} takes {worst['seconds']:.1f} s"],
        sorted({rank for rank, _ in slow}), "",
        "Seconds with each start and each new group; where they take longer than the time-out of a group, an error.",
        f"echo '::ffff:{worst['address']} store' >> /etc/hosts   # on each host: the address as c10d asks for it; any name")]  # fmt: skip
