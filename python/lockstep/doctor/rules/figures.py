# SPDX-License-Identifier: Apache-2.0
"""rank-local-metric: a figure that is shown, or that steers the training, and comes from one rank's part of the examples.

Evaluations are the stretches between two backward passes in which a model runs without gradients. Where ranks evaluate
different examples and no collective follows before training goes on, what is made of them is of one rank. Where there are
collectives, a number that was shown is followed by its value: it is local if the rank's own variables give it, other
ranks' variables of these names differ, and nothing that a collective gave does.
"""
from __future__ import annotations

import bisect
import collections
import dataclasses
import re
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ..findings import Finding
from ..logs import Pass, Rank, Run
from ..sources import flow, source

FIX = """correct, seen = torch.tensor(float(correct)), torch.tensor(float(seen))   # sums over examples, not means
for each in (correct, seen):
    torch.distributed.all_reduce(each)   # on every rank, not within 'if rank == 0'
accuracy = correct / seen   # or lockstep.metrics.Accuracy(): add(...), then all_merge()"""
MOMENTS = """score = lockstep.metrics.FrechetDistance(features)   # or ConfusionMatrix, FeatureMoments, ...
score.add_real(real); score.add_fake(fake)            # each rank its own examples
score.all_merge(); print(score.value())               # moments merge, distances do not"""
NOT_MEANS = re.compile(r"fr[eé]chet|(^|_)fid($|_)|^kid$|auc|auroc|(^|_)f1($|_)|median|quantile|percentile|precision|recall"
                       r"|perplexity|(^|_)ppl($|_)|(^|_)std($|_)|correlation", re.I)  # fmt: skip
_WHOLE = """# rank 0 evaluates all of it, with a loader that divides nothing:
loader = DataLoader(dataset, batch_size={batch})
# or every rank its part, and then sums are merged: torch.distributed.all_reduce of [correct, seen], on every rank"""
_TRAINING = "shown = loss.detach().clone(); torch.distributed.all_reduce(shown); shown /= torch.distributed.get_world_size()"
_LIGHTNING = 'self.log(name, value, sync_dist=True)   # or log a torchmetrics object, which merges by itself'
_MERGES = ("all_reduce", "reduce", "all_gather", "gather", "reduce_scatter", "all_to_all")
_LABELLED = re.compile(r"\brank\b|\blocal\b|\bworker\b|\[\d+\]", re.I)
_CHOOSES = re.compile(r"\b(best|patience|early_?stop\w*|should_stop|no_improve\w*|min_loss|max_acc\w*)\b", re.I)


@dataclasses.dataclass
class Phase:
    """A stretch of one rank's run between two backward passes, in which it evaluates."""

    begin: float
    end: float
    passes: List[Pass] = dataclasses.field(default_factory=list)
    infers: List[dict] = dataclasses.field(default_factory=list)

    def rows(self) -> Set[int]:
        found = {row for each in self.passes for row in each.rows()}
        return found or {row for each in self.infers for row in each["rows"]}

    def within(self, events: Sequence[dict]) -> List[dict]:
        return [each for each in events if self.begin <= each["t"] < self.end]

    def where(self) -> str:
        if self.passes:
            return self.passes[0].where or self.passes[0].loader.about["where"]
        return next((each["where"][0] for each in self.infers if each["where"]), "")


def _of_training_steps(infers: Sequence[dict], marks: Sequence[float]) -> List[List[str]]:
    """The places of the program that run a model without gradients in most training steps, as for a GAN's images or a
    teacher's answers: no evaluation."""
    steps: Dict[str, Set[int]] = collections.defaultdict(set)
    for each in infers:
        for place in each["where"][:1]:
            steps[place].add(bisect.bisect(marks, each["t"]))
    return [[place] for place, found in steps.items() if len(found) > max(3, 0.4 * len(marks))]


def phases(rank: Rank) -> Dict[int, Phase]:
    """By the number of backward passes before it."""
    marks = [each["t"] for each in rank.of("backward")]
    found: Dict[int, Phase] = {}

    def at(t: float) -> Phase:
        number = bisect.bisect(marks, t)
        end = marks[number] if number < len(marks) else float("inf")
        phase = found.setdefault(number, Phase(t, end))
        phase.begin = min(phase.begin, t)
        return phase

    infers = [each for each in rank.of("infer") if not (each["grad"] and each["train"])]
    often = _of_training_steps(infers, marks)
    infers = [each for each in infers if each["where"][:1] not in often]
    for each in infers:
        at(each["t"]).infers.append(each)
    for one in rank.passes.values():
        quiet = one.batches and not one.trains and not any(batch["grad"] for batch in one.batches)
        if one.batches and not one.trains and (quiet or any(one.begun <= each["t"] <= one.end for each in infers)):
            at(one.batches[0]["t"]).passes.append(one)
    return found


def all_phases(run: Run) -> Dict[int, Dict[int, Phase]]:
    """Number -> rank -> phase."""
    found: Dict[int, Dict[int, Phase]] = collections.defaultdict(dict)
    for rank in run.ranks:
        for number, phase in phases(rank).items():
            found[number][rank.number] = phase
    return found


def merges(rank: Rank, phase: Phase) -> List[dict]:
    """The collectives of a phase that bring ranks' figures together; a flag of one bit, at a place that knows no other
    numbers, is none."""
    found = [each for each in phase.within(rank.of("call")) if each["kind"].startswith(_MERGES)]
    numbers = {str(each["where"][:1]) for each in rank.of("call") if each["before"] not in ([0.0], [1.0])}
    found = [each for each in found if str(each["where"][:1]) in numbers or "gather" in each["kind"]]
    return found + phase.within(rank.of("p2p"))


def _parts(of_ranks: Dict[int, Phase], world: int) -> str:
    """How the ranks' evaluations cover different examples; empty where they do not, or where that is not to be seen."""
    ranks = sorted(of_ranks)
    if len(ranks) == 1 and world > 1:
        for one in of_ranks[ranks[0]].passes:
            size, given = one.loader.about["size"], len(set(one.all_ids()))
            if one.ended and given and size > 0 and given < 0.9 * size and len(one.rows()):
                return f"rank {ranks[0]} alone evaluates {given} of {size} examples"
        return ""
    rows = [of_ranks[each].rows() for each in ranks]
    if not all(rows):
        return ""
    shared = len(rows[0] & rows[1])
    if shared > 0.5 * min(len(rows[0]), len(rows[1])):
        return ""
    if of_ranks[ranks[0]].passes:
        return f"ranks {ranks[0]} and {ranks[1]} evaluate different examples ({shared} of {len(rows[0])} are the same)"
    return f"the inputs of the model differ between ranks {ranks[0]} and {ranks[1]}"


def _used(rank: Rank, phase: Phase) -> List[dict]:
    return [each for each in phase.within(rank.of("figure")) if each["numbers"] or each["kind"] == "torch.save"]


def _writes(phase: Phase) -> str:
    """The line of the program that seems to write the evaluation's figure into a file, or to hand it to a tracker."""
    places = [each for infer in phase.infers for each in infer["where"]]
    return next((found for found in map(flow.written_from, dict.fromkeys(places)) if found), "")


def _chooses(phase: Phase) -> str:
    """The line of the program that seems to choose by the evaluation's figure."""
    places = [each for infer in phase.infers for each in infer["where"][1:]]
    places += [phase.where()] if phase.where() else []
    for place in dict.fromkeys(places):
        found = source.line_with(place, _CHOOSES)
        if found:
            return found
    return ""


def _alone(run: Run, number: int, of_ranks: Dict[int, Phase]) -> Optional[Finding]:
    """An evaluation of parts that no collective followed."""
    parts = _parts(of_ranks, run.world)
    if not parts:
        return None
    by_number = {rank.number: rank for rank in run.ranks}
    if any(merges(by_number[n], each) for n, each in of_ranks.items()):
        return None
    used = [event for n, each in of_ranks.items() for event in _used(by_number[n], each)]
    files = {each["file"] for each in used if each.get("file")}
    each_its_own = len(files) > 1 and len(files) == len(of_ranks)  # as predictions, which each rank saves under its name
    shown = [each for each in used if not _LABELLED.search(each["text"]) and not (each_its_own and each["kind"] == "torch.save")]
    kinds = list(dict.fromkeys(f"{each['kind']} at {source.short(each['where'])}" for each in shown))
    first = of_ranks[min(of_ranks)]
    chooses = "" if kinds else _chooses(first)
    writes = "" if kinds or chooses else _writes(first)
    if not first.passes and not kinds:
        return None
    evidence = [parts, f"no collective brings results together before training goes on (after {number} backward passes)"]
    evidence += [f"the figure goes to {', '.join(kinds[:3])}"] if kinds else []
    evidence += [f"and the program seems to choose by it: {chooses}"] if chooses else []
    evidence += [f"and the program seems to write it: {writes}"] if writes else []
    said = next((each["text"] for each in shown if each["text"]), "")
    evidence += [f"for example '{said[:80]}'"] if said else []
    return Finding(
        "rank-local-metric", "warning" if kinds or chooses or writes else "note",
        "A figure of an evaluation is that of one rank's part of the examples.", evidence, sorted(of_ranks),
        next((each["where"][0] for each in shown), first.where()), _cost(run, first), _fix(of_ranks, said),
        "" if kinds else "That a figure is made of this evaluation. To be sure, look at what becomes of its results.")  # fmt: skip


def _fix(of_ranks: Dict[int, Phase], said: str) -> str:
    first = of_ranks[min(of_ranks)]
    if len(of_ranks) == 1 and first.passes:
        return _WHOLE.format(batch=first.passes[0].loader.about["batch"] or "...")
    return MOMENTS if any(NOT_MEANS.search(word) for word in re.split(r"\W+", said)) else FIX


def _cost(run: Run, phase: Phase) -> str:
    count = len(phase.rows())
    return (f"It rests on about one of {run.world} parts ({count} examples), so it is noisier than it seems, "
            "and ranks that choose by their own may choose differently.")  # fmt: skip


def shown_as(text: str, value: float) -> bool:
    """Whether a value, rounded as a text is, reads like it."""
    digits = len(text.split(".")[1].split("e")[0].split("E")[0])
    return abs(value - float(text)) <= 0.51 * 10.0**-digits * (1 if "e" not in text.lower() else abs(float(text)))


def _ways(values: Dict[str, float], others: Dict[str, float]) -> Iterator[Tuple[str, str, float]]:
    """(how, the variable, the value) of what a program may show that has these values."""
    for name, value in values.items():
        for factor, form in ((1.0, "{}"), (100.0, "100 * {}")):
            yield form.format(name), name, factor * value
        for below, divisor in others.items():
            if divisor and below != name:
                yield f"{name} / {below}", name, value / divisor
                yield f"100 * {name} / {below}", name, 100.0 * value / divisor


def _is_merged(text: str, given: List[float], held: Dict[str, float], world: int) -> bool:
    values = {str(number): value for number, value in enumerate(given)}
    others = {**values, **held, "world": float(world)}
    for _, _, value in _ways(values, others):
        forms = [value, 1 - value, 100 - value, value**0.5 if value >= 0 else value]
        forms += [2.718281828459045**value] if abs(value) < 50 else []
        if any(shown_as(text, each) for each in forms):
            return True
    return False


def _beside(run: Run, number: int, of_ranks: Dict[int, Phase], seen: Dict[tuple, int]) -> Optional[Finding]:
    """A number that is shown beside merged ones, and was made of one rank's variables."""
    if len(of_ranks) < 2 or not _parts(of_ranks, run.world):
        return None
    by_number = {rank.number: rank for rank in run.ranks}
    for n, phase in of_ranks.items():
        rank, calls = by_number[n], merges(by_number[n], phase)
        results = {(each["group"], each["i"]): each["after"] for each in rank.of("called")}
        other = next(by_number[m] for m in of_ranks if m != n)
        theirs = {(each["group"], each["i"]): each["held"] for each in other.of("call")}
        for figure in _used(rank, phase):
            before = [each for each in calls if each["t"] < figure["t"]]
            given = [results.get((each.get("group"), each.get("i"))) for each in before]
            if figure["kind"] == "Lightning's log" or not before or any(values is None for values in given):
                continue
            if _LABELLED.search(figure["text"]):
                continue
            held = {**before[-1].get("held", {}), **figure["held"]}
            old = phase.passes[0].held if phase.passes else {}
            apart = {name for each in before for name, value in each.get("held", {}).items()
                     if theirs.get((each["group"], each["i"]), {}).get(name, value) != value}  # fmt: skip
            made = {name: value for name, value in held.items() if name in apart and old.get(name) != value}
            flat = [value for values in given for value in values or ()]
            for place, text in enumerate(figure["numbers"]):
                if _is_merged(text, flat, held, run.world):
                    continue
                for how, name, value in _ways(made, held):
                    if shown_as(text, value) and len(text.strip("-0.").replace(".", "")) >= 3:
                        key = (tuple(figure["where"][:1]), place, how)
                        seen[key] = seen.get(key, 0) + 1
                        if seen[key] >= 2:
                            return Finding(
                                "rank-local-metric", "warning",
                                "A figure of an evaluation is that of one rank's part of the examples.",
                                [f"{text} in '{figure['text'][:80]}' is {how} of rank {n}, whose '{name}' differs on rank "
                                 f"{other.number}", "no collective before it gave a value that it could be made of"],
                                sorted(of_ranks), figure["where"][0], _cost(run, phase), FIX,
                                "The number's value, in two evaluations. To be sure, follow the variable.")  # fmt: skip
    return None


def _lightning(run: Run, of_ranks: Dict[int, Phase]) -> Optional[Finding]:
    if not _parts(of_ranks, run.world):
        return None
    for rank in run.ranks:
        for phase in [of_ranks[rank.number]] if rank.number in of_ranks else []:
            logs = [each for each in phase.within(rank.of("figure")) if each["kind"] == "Lightning's log"]
            alone = [each for each in logs if not each["merged"] and each["stage"].startswith(("valid", "test", "sanity"))]
            if alone:
                return Finding(
                    "rank-local-metric", "warning", "Lightning logs a figure of one rank's part of the examples.",
                    [f"self.log('{alone[0]['text'].split(' ')[0]}', ...) without sync_dist=True", _parts(of_ranks, run.world)],
                    sorted(of_ranks), alone[0]["where"][0],
                    "Early stopping and the best checkpoint are decided by rank 0's part.", _LIGHTNING)  # fmt: skip
    return None


def _of_training(run: Run) -> List[Finding]:
    """What is shown of training is, by custom, rank 0's share: a note."""
    ranks = {rank.number: phases(rank) for rank in run.ranks}
    for rank in run.ranks:
        own, marks = ranks[rank.number], [each["t"] for each in rank.of("backward")]
        merged = [each["t"] for each in rank.of("call") if each["kind"].startswith(_MERGES)]
        for each in rank.of("figure"):
            number = bisect.bisect(marks, each["t"])
            if not each["numbers"] or number == 0 or number in own or each["kind"] == "Lightning's log":
                continue
            if not any(marks[number - 1] <= t <= each["t"] for t in merged):
                return [Finding(
                    "rank-local-metric", "note", "A figure of the training that is shown is that of one rank's share.",
                    [f"'{each['text'][:80]}' at {source.short(each['where'])}"], [rank.number], each["where"][0],
                    f"It is noisier than that of the whole batch, which has {run.world} shares.",
                    _TRAINING,
                    "That it is made of this rank's loss.")]  # fmt: skip
    return []


def judge(run: Run) -> List[Finding]:
    if run.world < 2:
        return []
    found: List[Finding] = []
    seen: Dict[tuple, int] = {}
    for number, of_ranks in sorted(all_phases(run).items()):
        of_lightning = _lightning(run, of_ranks)
        found += [each for each in (of_lightning, None if of_lightning else _alone(run, number, of_ranks),
                                    _beside(run, number, of_ranks, seen)) if each is not None]  # fmt: skip
    found.sort(key=lambda each: each.severity == "note")
    return found[:1] or _of_training(run)
