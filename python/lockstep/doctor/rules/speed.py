# SPDX-License-Identifier: Apache-2.0
"""Why it is not faster: oversubscribed-threads, waits-for-data, imbalance. Shares of a step's time, of its median."""
from __future__ import annotations

import collections
import statistics
from typing import Dict, List

from ..findings import Finding
from ..logs import Rank, Run

LONG = 0.010  # seconds: below that a share of a step says nothing


def _step_times(rank: Rank) -> List[float]:
    times = [each["t"] for each in rank.of("step") if each["n"] == each["s"]]
    return [b - a for a, b in zip(times, times[1:])][2:]


def judge(run: Run) -> List[Finding]:
    found: List[Finding] = []
    ranks = [rank.number for rank in run.ranks]
    threads: Dict[str, int] = collections.Counter()
    for rank in run.ranks:
        for each in rank.of("group")[-1:]:
            threads[rank.hello["host"]] += each["threads"]
    for host, count in threads.items():
        cpus = max(rank.hello["cpus"] for rank in run.ranks if rank.hello["host"] == host)
        if count > 1.5 * cpus and run.world > 1 and not any("cuda" in e["backend"] or "nccl" in e["backend"] for _, e in run.of("group")):
            here = [rank for rank in run.ranks if rank.hello["host"] == host]
            asked = any(rank.hello["threads"].isdigit() and int(rank.hello["threads"]) * len(here) > cpus for rank in here)
            found.append(Finding(
                "oversubscribed-threads", "warning" if asked else "note",
                f"{len(here)} ranks of one host compute with {count} threads on {cpus} cores.",
                [f"torch.get_num_threads() when the group was made: {count // len(here)} a rank"], ranks, "",
                "Threads take turns, and each operation waits for its slowest.",
                f"torch.set_num_threads({max(1, cpus // len(here))})   # or OMP_NUM_THREADS={max(1, cpus // len(here))}"))  # fmt: skip
    waits, steps = [], []
    for rank in run.ranks:
        times = _step_times(rank)
        trained = {key: each for key, each in rank.passes.items() if each.trains}
        waited = [batch["wait"] for each in trained.values() for batch in each.batches[2:]]
        if len(times) > 4 and len(waited) > 4:
            waits.append(statistics.median(waited))
            steps.append(statistics.median(times))
    if steps and len(steps) == run.world:
        share = statistics.median(w / s for w, s in zip(waits, steps) if s)
        if min(waits) > LONG and share > 0.4:
            workers = max((e["workers"] for _, e in run.of("loader")), default=0)
            found.append(Finding(
                "waits-for-data", "warning", f"{share:.0%} of a step goes by in waiting for the loader.",
                [f"medians: {1000 * min(waits):.0f} ms of a step of {1000 * min(steps):.0f} ms; num_workers is {workers}"], ranks,
                next((e["where"] for _, e in run.of("loader")), ""),
                f"Without it steps would be up to {1 / max(0.01, 1 - share):.1f} times as fast.",
                f"loader = DataLoader(..., num_workers={max(2, 2 * workers)}, persistent_workers=True)"))  # fmt: skip
    return found
