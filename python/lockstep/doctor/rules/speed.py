# SPDX-License-Identifier: Apache-2.0
"""Why it is not faster: oversubscribed-threads, waits-for-data, communication-exposed, batch-too-small, imbalance,
slow-python. Each with the share of a step that it costs; the largest comes first.

A step's time is divided as its rank saw it: waiting for the loader, forward, backward, collectives, the optimiser, and
the rest, which is the program's own Python. Ranks wait for the slowest in their collectives, so of what they spend there the
shortest is communication, and the rest is imbalance.
"""
from __future__ import annotations

import collections
import statistics
from typing import Dict, List, Optional, Tuple

from ..findings import Finding
from ..logs import Rank, Run, Step

LONG = 0.010  # seconds: below that a share of a step says nothing
SURE = 0.030  # seconds of a step: below that the machine's own unrest may be all that is seen
BUSY = 0.25  # of the time
LARGE = 0.4  # of a step: a warning; a note from half of that on
_OF_RANKS = ("communication-exposed", "batch-too-small", "imbalance")  # what ranks wait for each other: by the clock
FEW = 8  # steps that are too few to judge
_SELDOM = """last = (number + 1) % 4 == 0   # of four batches a step: optimizer.step() only if last
with contextlib.nullcontext() if last else model.no_sync():
    loss = criterion(model(x), y) / 4
    loss.backward()
# or larger batches; or gradients in half: model.register_comm_hook(None, bf16_compress_hook)"""
_TOGETHER = """# one message for all gradients, instead of one for each; or one for the gradients of several small batches
flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
torch.distributed.all_reduce(flat); flat /= torch.distributed.get_world_size()
for p, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
    p.grad.copy_(part.view_as(p))"""


def step_times(rank: Rank) -> List[float]:
    return [each.seconds for each in _steps(rank)]


def _steps(rank: Rank) -> List[Step]:
    """Those that the costly observers left alone, where there are enough; without the first ones."""
    looked = {each["s"] for each in rank.of("gradients")}
    made = rank.made_steps[2:]
    light = [each for each in made if each.number - 1 not in looked]
    return light if len(light) >= FEW else made


def _median(run: Run, kind: str) -> float:
    """Of a part of the steps, the median over steps, and over ranks."""
    return statistics.median(statistics.median([each.spans.get(kind, 0.0) for each in _steps(rank)]) for rank in run.ranks)


def _exposed(run: Run) -> Tuple[float, float]:
    """Seconds of a step that all ranks spend on communication that nothing hides, and those that the others wait for the
    slowest rank."""
    by_step: Dict[int, Dict[int, float]] = collections.defaultdict(dict)
    for rank in run.ranks:
        calls: Dict[int, float] = collections.defaultdict(float)
        for each in rank.of("step"):
            calls[each["s"] - 1] += (each.get("spans") or {}).get("collectives", 0.0)
        after: Dict[int, float] = collections.defaultdict(float)
        for each in rank.of("leave"):
            if each.get("exposed") is not None:
                after[each["s"]] += each["exposed"]
        for step in after if run.of("ddp") else calls:
            by_step[step][rank.number] = calls.get(step, 0.0) + after.get(step, 0.0)
    whole = [each for step, each in by_step.items() if len(each) == run.world and step > 2]
    if len(whole) < 3:
        return 0.0, 0.0
    shortest = statistics.median(min(each.values()) for each in whole)
    return shortest, statistics.median(statistics.fmean(each.values()) - min(each.values()) for each in whole)


def _own_times(run: Run) -> Dict[int, float]:
    """Of each rank, the seconds of a step that it neither waits for others nor for a core: its own work, however busy the
    machine is. Empty where that is not to be seen."""
    found: Dict[int, float] = {}
    for rank in run.ranks:
        waits: Dict[int, float] = collections.defaultdict(float)
        for each in rank.of("leave"):
            if each.get("exposed") is not None:
                waits[each["s"]] += each["exposed"]
        # What is exposed after a backward pass of DistributedDataParallel is known of some steps.
        steps = [each for each in rank.made_steps[2:] if not run.of("ddp") or each.number - 1 in waits]
        if len(steps) < 3:
            return {}
        found[rank.number] = statistics.median(
            each.seconds - each.spans.get("collectives", 0.0) - waits.get(each.number - 1, 0.0) for each in steps)  # fmt: skip
    return found


def _slowest(run: Run) -> Optional[int]:
    """The rank that waits least in collectives, which is the one that the others wait for, if it is one."""
    waits = {rank.number: statistics.median(e["exposed"] for e in rank.of("leave") if e.get("exposed") is not None)
             for rank in run.ranks if any(e.get("exposed") is not None for e in rank.of("leave"))}  # fmt: skip
    if not waits:
        waits = {rank.number: statistics.median((e.get("spans") or {}).get("collectives", 0.0) for e in rank.of("step"))
                 for rank in run.ranks}  # fmt: skip
    return min(waits, key=lambda number: waits[number]) if waits else None


def _threads(run: Run) -> List[Finding]:
    found: List[Finding] = []
    threads: Dict[str, int] = collections.Counter()
    where = ""
    for rank in run.ranks:
        for each in sorted([*rank.of("group"), *rank.of("threads")], key=lambda event: event["t"])[-1:]:
            threads[rank.hello["host"]] += each["threads"]
            where = each["where"] if each["e"] == "threads" and each["where"] else where
    for host, count in threads.items():
        here = [rank for rank in run.ranks if rank.hello["host"] == host]
        cpus = len({core for rank in here for core in rank.hello["cores"]})  # mpirun and srun give each rank its own
        on_gpus = any("cuda" in e["backend"] or "nccl" in e["backend"] for _, e in run.of("group"))
        if count > 1.5 * cpus and run.world > 1 and not on_gpus:
            asked = bool(where) or any(
                rank.hello["threads"].isdigit() and int(rank.hello["threads"]) * len(here) > cpus for rank in here)
            where = where or next((each["where"] for rank in here for each in rank.of("group")), "")
            own = max(1, cpus // len(here))
            found.append(Finding(
                "oversubscribed-threads", "warning" if asked else "note",
                f"{len(here)} ranks of one host compute with {count} threads on {cpus} cores.",
                [f"torch.get_num_threads(): {count // len(here)} a rank"],
                [rank.number for rank in here], where, "Threads take turns, and each operation waits for its slowest.",
                f"torch.set_num_threads({own})   # or OMP_NUM_THREADS={own}"))  # fmt: skip
    return found


def _queued(run: Run) -> float:
    """The share of the steps' time for which ranks were ready to compute, and something else had the cores."""
    shares = []
    for rank in run.ranks:
        steps = rank.of("step")
        if len(steps) > 3 and steps[-1]["t"] > steps[2]["t"]:
            shares.append((steps[-1]["queued"] - steps[2]["queued"]) / (steps[-1]["t"] - steps[2]["t"]))
    return max(shares, default=0.0)


def _loop(run: Run) -> str:
    """Where the training loop is: the outermost line of the program that calls backward()."""
    return next((each["where"][0] for _, each in run.of("backward") if each["where"]), "")


def _shares(run: Run) -> List[Tuple[float, Finding]]:
    """(the share of a step, the finding) of each cause."""
    ranks = [rank.number for rank in run.ranks]
    step = statistics.median(statistics.median(step_times(rank)) for rank in run.ranks)
    clock = statistics.median(statistics.median(each.clock for each in _steps(rank)) for rank in run.ranks)
    sizes = [each["size"] for each in run.ranks[0].of("forward") if each["size"] > 0]
    found: List[Tuple[float, Finding]] = []
    workers = max((each["workers"] for _, each in run.of("loader")), default=0)
    queued = _queued(run)
    busy_host = f"The machine was busy: for {queued:.0%} of the time a rank waited for a core." if queued > BUSY else ""

    def add(code: str, seconds: float, summary: str, evidence: List[str], fix: str, where: str = "", who: Optional[List[int]] = None,
            rests: str = "", seen: bool = False) -> None:  # fmt: skip
        share = seconds / (clock if code in _OF_RANKS else step)
        if seconds > LONG and share > LARGE / 2:
            # What one rank's thread did itself is without what others had the cores for; other ranks and loader workers are not.
            alone = seen or code == "slow-python" or (code == "waits-for-data" and not workers)
            is_sure = share > LARGE and (alone or not busy_host) and (code == "waits-for-data" or step > SURE)
            cost = f"Without it steps would be up to {1 / max(0.02, 1 - share):.1f} times as fast."
            found.append((share, Finding(code, "warning" if is_sure else "note", summary, evidence, who or ranks,
                                         where or _loop(run), cost, fix, " ".join(filter(None, [rests, busy_host])))))  # fmt: skip

    def ms(seconds: float) -> str:
        return f"{1000 * seconds:.0f} ms"

    waits = _median(run, "wait")
    add("waits-for-data", waits, f"{waits / step:.0%} of a step goes by in waiting for the loader.",
        [f"medians: {ms(waits)} of a step of {ms(step)}; num_workers is {workers}"],
        f"loader = DataLoader(..., num_workers={max(2, 2 * workers)}, persistent_workers=True)",
        next((each["where"] for _, each in run.of("loader")), ""))  # fmt: skip
    exposed, waited = _exposed(run) if run.world > 1 else (0.0, 0.0)
    busy = _median(run, "forward") + _median(run, "backward") - exposed - waited
    said = f"medians: {ms(exposed)} of a step of {ms(clock)} on all ranks; computing takes {ms(max(0.0, busy))}"
    if sizes and max(sizes) <= 16 and exposed > busy:
        add("batch-too-small", exposed, f"A rank's batch of {max(sizes)} examples computes for less time than it communicates.",
            [said], f"batch_size = {4 * max(sizes)}   # a rank; with a rate to match, or fewer ranks")  # fmt: skip
    else:
        add("communication-exposed", exposed, f"{exposed / clock:.0%} of a step goes by in communication that no computing hides.",
            [said], _SELDOM if run.of("ddp") else _TOGETHER)  # fmt: skip
    slowest = _slowest(run)
    if slowest is not None:
        own = _own_times(run)
        others = [ms(own[rank]) for rank in ranks if rank != slowest] if own else []
        seen = bool(own) and own[slowest] - statistics.fmean(own.values()) > 0.7 * waited
        add("imbalance", waited, f"Ranks wait for rank {slowest}, for {waited / clock:.0%} of a step.",
            [f"medians: the others are {ms(waited)} earlier, of a step of {ms(clock)}",
             *([f"without waiting, and without what others had the cores for, a step takes rank {slowest} {ms(own[slowest])}, the others "
                f"{', '.join(others[:4])}"] if own else [])],
            "# give the ranks like work: examples of like size (sort by length within a batch), no extra work on one rank,\n"
            "# cores of its own (taskset, --cpus-per-task)", who=[slowest], seen=seen)  # fmt: skip
    rest = statistics.median(statistics.median(each.rest for each in _steps(rank)) for rank in run.ranks)
    add("slow-python", rest, f"{rest / step:.0%} of a step goes by in the program's own lines.",
        [f"medians: {ms(rest)} of a step of {ms(step)} are neither in the loader nor in the model, its backward pass, the optimiser, "
         "or a collective"],
        "# move it into the loader's workers, or out of the loop: .item() and prints every 50th step, tensors instead of loops")  # fmt: skip
    nodes = max((each["nodes"] for _, each in run.of("backward")), default=0)
    computing = min(statistics.median(each.spans.get("forward", 0.0) + each.spans.get("backward", 0.0) for each in _steps(rank))
                    for rank in run.ranks)  # fmt: skip  (of the rank that waits least for others)
    if nodes > 1000 and computing / nodes < 150e-6:
        add("slow-python", computing, f"The model makes {nodes} small operations a step, {1e6 * computing / nodes:.0f} us each.",
            [f"computing takes {ms(computing)} of a step of {ms(step)}; the graph has {nodes} nodes"],
            "model = torch.compile(model)   # or one operation over all rows instead of a loop over them",
            rests="That an operation of so few microseconds is mostly Python's and torch's own work.")  # fmt: skip
    return found


def judge(run: Run) -> List[Finding]:
    found = _threads(run)
    if run.ranks and not run.of("ops") and all(len(step_times(rank)) >= FEW for rank in run.ranks):
        found += [each for _, each in sorted(_shares(run), key=lambda pair: -pair[0])]
    return found
