# SPDX-License-Identifier: Apache-2.0
"""gradients-not-averaged, and mean-of-means where ranks' shares of a batch differ in size."""
from __future__ import annotations

import collections
import statistics
from typing import Dict, List, Optional, Tuple

from ..findings import Finding
from ..logs import Rank, Run
from . import weights, wrapping

_COUNTS = """# the loss as a sum (reduction="sum"), divided by all ranks' count (DistributedDataParallel divides by the ranks):
count = mask.sum().float(); torch.distributed.all_reduce(count)   # mask: which tokens count
loss = total * world_size / count"""
_SHARES = """# weigh each rank's loss by its share of the global batch (DistributedDataParallel divides by the ranks):
total = torch.tensor(float(len(x))); torch.distributed.all_reduce(total)
loss = criterion(out, y) * len(x) * world_size / total"""

_ONCE = "# DistributedDataParallel has divided already: take p.grad /= world_size, or loss / world_size, out"

Row = Dict[str, Tuple[int, float, float, Optional[float]]]  # name -> (hash, final, norm, local)


Key = Tuple[int, int, int]  # optimiser, its step, backward passes until then: ranks that skip a step have no common keys after it


def _table(rank: Rank) -> Dict[Key, Row]:
    names: Dict[int, List[str]] = {}
    table: Dict[Key, Row] = {}
    joins = [each["t"] for each in rank.of("join")]  # after the first one ranks have made other numbers of steps
    for each in rank.of("gradients"):
        if len(joins) > 1 and each["t"] > joins[1]:
            break
        names[each["opt"]] = each.get("names", names.get(each["opt"], []))
        rows = zip(each["h"], each["final"], each["norm"], each["local"])
        table[(each["opt"], each["n"], each["b"])] = dict(zip(names[each["opt"]], rows))
    return table


def _different(run: Run, tables: List[Dict[Key, Row]]) -> List[Finding]:
    """Gradients that are not the same bits on all ranks when the optimiser takes them, and weights that part for it."""
    steps = sorted(set.intersection(*(set(table) for table in tables)))
    apart: Dict[Tuple[int, str], int] = collections.Counter()  # by the optimiser and the parameter
    looked: Dict[Tuple[int, str], int] = collections.Counter()
    for step in steps:
        for name in set.intersection(*(set(table[step]) for table in tables)):
            if any(table[step][name][2] > 0 for table in tables):
                looked[(step[0], name)] += 1
                apart[(step[0], name)] += len({table[step][name][0] for table in tables}) > 1
    names = [name for name in looked if apart[name] > 0.6 * looked[name]]
    if not names:
        return []
    drift = [weights.difference(weights.tables(run.ranks[0], "weights"), weights.tables(other, "weights"))
             for other in run.ranks[1:]]  # fmt: skip
    if not any(drift):
        later = max((n for r in weights.tables(run.ranks[0], "weights").values() for n, _ in r), default=0)
        if later > 0:
            return []  # weights are equal all the same: what is made of the gradients is brought together later
    first, root = run.ranks[0], next((each[0] for each in drift if each), None)
    around = next((e for e in first.of("forward") if e["around"]), None)
    reason = ""
    if around is not None:
        reason = "the forward pass goes around DistributedDataParallel"
    elif wrapping.never_syncs(run):
        reason = wrapping.NEVER_SYNCS
    elif not wrapping.is_wrapped(run, root):
        reason = "nothing wraps the model in DistributedDataParallel, and no collective brings these gradients together"
    elif len(names) < len(looked):
        reason = "DistributedDataParallel does not know these parameters (made or changed after wrapping, or left out)"
    where = (around or {}).get("where") or [next((e["where"] for e in first.of("optimizer") if e["opt"] == names[0][0]), "")]
    norm = statistics.fmean([row[name][2] for opt, name in names for at, row in tables[0].items() if at[0] == opt and name in row] or [0])
    return [Finding(
        "gradients-not-averaged", "error",
        f"The gradients of {len(names)} of {len(looked)} parameters are not brought together between the ranks.",
        [f"different on the ranks when the optimiser takes them: {', '.join(sorted(name for _, name in names)[:4])} "
         f"(in {apart[names[0]]} of {looked[names[0]]} steps, norm about {norm:.3g})", *([f"why: {reason}"] if reason else [])],
        [rank.number for rank in run.ranks], where[0], "Each rank trains these parameters on its own examples alone.",
        wrapping.fix(run, root))]  # fmt: skip


def _wrong_mean(run: Run, tables: List[Dict[Key, Row]]) -> List[Finding]:
    """Gradients that are equal on all ranks, and are not the mean of the ranks' own."""
    steps = sorted(set.intersection(*(set(table) for table in tables)))
    ratios: List[float] = []
    off: Dict[str, List[float]] = collections.defaultdict(list)
    for step in steps:
        of_step = []
        for name in set.intersection(*(set(table[step]) for table in tables)):
            rows = [table[step][name] for table in tables]
            own = [row[3] for row in rows if row[3] is not None]
            if len({row[0] for row in rows}) > 1 or len(own) < len(rows) or rows[0][2] == 0:
                continue
            mean, final, norm = statistics.fmean(own), rows[0][1], rows[0][2]
            if abs(mean) > 0.02 * max(norm, max(abs(each) for each in own)):
                of_step.append((name, final / mean))
        if of_step:
            middle = statistics.median(ratio for _, ratio in of_step)
            ratios.append(middle)
            for name, ratio in of_step:
                off[name].append(ratio / middle if middle else 0.0)
    if not ratios:
        return []
    ranks, world = [rank.number for rank in run.ranks], run.world
    middle = statistics.median(ratios)
    scale, reduced = _scale(run.ranks[0])
    where = _reduced_at(run.ranks[0])
    found = []
    if abs(middle / world - 1) < 0.02 and all(abs(r / world - 1) < 0.05 for r in ratios):
        plain = reduced == "mean" and abs(scale - 1) < 1e-6
        if not (abs(scale * world - 1) < 0.01 or reduced == "sum"):
            found.append(Finding(
                "gradients-not-averaged", "error" if plain else "note",
                f"Gradients are the ranks' sum, {world} times their mean.",
                [f"in {len(ratios)} steps that were looked at, the gradient was {middle:.3f} times the mean of the ranks' own"],
                ranks, where, f"The learning rate is in effect {world} times as large, and grows with the ranks.",
                wrapping.not_summed(run),
                "" if plain else "That each rank's loss is a mean over its share: to be sure, look at how it is scaled."))
    if len(ratios) > 2 and all(abs(r * world - 1) < 0.02 for r in ratios) and not _accumulates(run.ranks[0]):
        found.append(Finding(
            "gradients-not-averaged", "warning", f"Gradients are the ranks' mean, divided by {world} once more.",
            [f"in {len(ratios)} steps that were looked at, the gradient was {middle:.3f} times the mean of the ranks' own"], ranks, where,
            f"The learning rate is in effect {world} times as small, and shrinks with the ranks.", _ONCE,
            "That nothing else divides them: to be sure, look at what the program does between backward() and step()."))  # fmt: skip
    wrong = [name for name, each in off.items() if len(each) > 1 and abs(statistics.median(each) - 1) > 0.05
             and max(each) - min(each) > 0.02]  # fmt: skip
    lone = [name for name in wrong if len(wrong) < 0.5 * len(off)]
    if lone and not found:
        found.append(Finding(
            "gradients-not-averaged", "warning", f"The gradients of {len(lone)} parameters are not the mean of the ranks' own.",
            [f"'{name}': {statistics.median(off[name]):.3f} times what the other parameters have" for name in lone[:3]],
            ranks, where, "These parameters learn from some ranks more than from others.", wrapping.fix(run),
            "What backward() left on each rank: where the program changes gradients one by one (clipping by value), it is right."))
    elif len(ratios) > 2 and not found and _is_one_ranks(tables, steps):
        found.append(Finding(
            "gradients-not-averaged", "error", "All ranks step with the gradient of one of them.",
            [f"in {len(steps)} steps the gradient was that of rank {_is_one_ranks(tables, steps) - 1}, not the mean"], ranks,
            where, "The other ranks' examples are computed and thrown away.", wrapping.fix(run)))  # fmt: skip
    return found


def _accumulates(rank: Rank) -> bool:
    """Whether a step has several backward passes, by whose number a program may divide."""
    return len(rank.of("backward")) > 1.5 * max(1, rank.steps)


def _is_one_ranks(tables: List[Dict[Key, Row]], steps: List[Key]) -> int:
    """1 + the rank whose own gradients all ranks step with; 0 where there is none."""
    for rank, table in enumerate(tables):
        same = others = count = 0
        for step in steps:
            for name, row in table[step].items():
                rows = [each[step].get(name) for each in tables]
                if row[3] is None or any(each is None or each[3] is None for each in rows):
                    continue
                count += 1
                same += abs(row[1] - row[3]) <= 1e-6 * max(row[2], 1e-12)
                others += any(abs(each[3] - row[3]) > 1e-3 * max(row[2], 1e-12) for each in rows if each)  # type: ignore
        if count and same == count and others > 0.5 * count:
            return rank + 1
    return 0


def _scale(rank: Rank) -> Tuple[float, str]:
    looked = [each for each in rank.of("backward") if each["loss"] is not None][:3]
    return (looked[0]["factor"], looked[0]["reduced"]) if looked else (1.0, "")


def _reduced_at(rank: Rank) -> str:
    for each in rank.of("call"):
        if "reduce" in each["kind"] and each["where"]:
            return each["where"][0]
    return next((each["where"] for each in rank.of("optimizer")), "")


def judge(run: Run) -> List[Finding]:
    tables = [_table(rank) for rank in run.ranks]
    if run.world < 2 or not all(tables) or run.is_divided:
        return []
    return _different(run, tables) or _wrong_mean(run, tables)


def _main_root(rank: Rank) -> Tuple[int, str]:
    """The number and the class of the model that is trained: the first that is wrapped, or the first."""
    roots = [(each["root"], each["cls"]) for each in rank.of("root")]
    wrapped = [(each["root"], each["cls"]) for each in rank.of("root") if each["wrapper"] == "DistributedDataParallel"]
    return (wrapped or roots or [(-1, "")])[0]


def _sizes(rank: Rank) -> Dict[Tuple[int, int], int]:
    """Examples of a training step: those of the trained model's first root, summed over the passes of a step; by the step
    and the number of its passes, so that a step of two passes is not compared with one of one."""
    sizes: Dict[int, int] = collections.Counter()
    passes: Dict[int, int] = collections.Counter()
    root, _ = _main_root(rank)
    for each in rank.of("forward"):
        if each["root"] == root and each["size"] > 0:
            sizes[each["s"]] += each["size"]
            passes[each["s"]] += 1
    return {(step, passes[step]): size for step, size in sizes.items()}


def _own_counts(rank: Rank) -> Dict[int, float]:
    """Backward pass -> how many things (tokens, pixels) the loss is a mean over, where the rank divides by its own count."""
    found = {}
    for each in rank.of("backward"):
        if each["reduced"] == "sum" and 0 < each["factor"] < 1:
            found[each["n"]] = 1 / each["factor"]
        elif each["reduced"] == "mean" and each.get("weight") and abs(each["factor"] - 1) < 1e-6:
            found[each["n"]] = each["weight"]
    return found


def judge_counts(run: Run) -> List[Finding]:
    """Losses that are means over the tokens of a rank, which differ in number: an example of few tokens weighs more."""
    counts = [_own_counts(rank) for rank in run.ranks] if run.world > 1 else []
    passes = sorted(set.intersection(*map(set, counts))) if counts else []
    uneven = [n for n in passes if max(each[n] for each in counts) > 1.001 * min(each[n] for each in counts)]
    if len(uneven) < 2 or len(uneven) < 0.3 * len(passes):
        return []
    far = max(uneven, key=lambda n: max(each[n] for each in counts) / min(each[n] for each in counts))
    own = [each[far] for each in counts]
    weight = max(own) * len(own) / sum(own)
    by_hand = run.ranks[0].of("backward")[0]["reduced"] == "sum"
    many = sum(max(each[n] for each in counts) > 1.25 * min(each[n] for each in counts) for n in uneven) > 0.1 * len(passes)
    return [Finding(
        "mean-of-means", "warning" if by_hand and many else "note",
        "Ranks' losses are means over numbers of tokens (or pixels) that differ, and weigh the same.",
        [f"{len(uneven)} of {len(passes)} passes that were looked at; in one the ranks divide by {', '.join(f'{n:.6g}' for n in own)}"],
        [rank.number for rank in run.ranks], next((e["where"][0] for e in run.ranks[0].of("backward") if e["where"]), ""),
        f"A token of the largest share weighs {1 / weight:.2f} of what it should, and the loss depends on how examples were dealt out.",
        _COUNTS, "That what the loss is divided by is the rank's own count.")]  # fmt: skip


def _weighs_right(run: Run, shares: List[int]) -> bool:
    """Whether ranks' losses are means that were multiplied by what their shares of the first step ask for."""
    if any(_scale(rank)[1] != "mean" for rank in run.ranks):
        return False
    weights = [_scale(rank)[0] / share for rank, share in zip(run.ranks, shares)]
    return len(set(shares)) > 1 and max(weights) - min(weights) < 1e-3 * max(weights)


def judge_shares(run: Run) -> List[Finding]:
    """Gradients of shares that differ in size weigh the same."""
    if run.world < 2 or len({_main_root(rank)[1] for rank in run.ranks}) > 1:
        return []
    sizes, made = [_sizes(rank) for rank in run.ranks], min(rank.steps for rank in run.ranks)
    steps = [each for each in sorted(set.intersection(*(set(each) for each in sizes))) if each[0] < made]
    uneven = [s for s in steps if max(each[s] for each in sizes) > min(each[s] for each in sizes)]
    if not uneven or _scale(run.ranks[0])[1] == "sum":
        return []
    if _weighs_right(run, [each[steps[0]] for each in sizes]):
        return []
    far = [s for s in uneven if max(each[s] for each in sizes) > 1.25 * min(each[s] for each in sizes)]
    scaled = {round(_scale(rank)[0], 4) for rank in run.ranks}
    by_weight = len(scaled) > 1 or scaled != {1.0}
    bad = len(far) > 0.1 * len(steps) and len(far) > 1 and not by_weight
    step = far[0] if far else uneven[0]  # and the number of its passes
    shares = [each[step] for each in sizes]
    weight = max(shares) * len(shares) / sum(shares)
    return [Finding(
        "mean-of-means", "warning" if bad else "note", "Ranks' shares of a batch differ in size, and their means weigh the same.",
        [f"{len(uneven)} of {len(steps)} steps; in step {step[0]} the ranks have {', '.join(map(str, shares))} examples"],
        [rank.number for rank in run.ranks], next((e["where"][0] for e in run.ranks[0].of("forward") if e["where"]), ""),
        f"An example of the largest share weighs {1 / weight:.2f} of what it should.", _SHARES,
        "That the loss is a mean over the rank's own share, and that nothing weighs it.")]  # fmt: skip
