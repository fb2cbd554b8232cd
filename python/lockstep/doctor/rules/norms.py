# SPDX-License-Identifier: Apache-2.0
"""unsynchronised-batch-norm: each rank normalises by the statistics of its own share.

That alone is how most people train, so it is a note. It is a warning where it hurts: shares are small, or the ranks'
statistics are far apart, step by step or on the whole.
"""
from __future__ import annotations

import collections
import math
import statistics
from typing import Dict, List, Tuple

from ..findings import Finding
from ..logs import Run

_FIX = """model = lockstep.SyncBatchNorm.convert_sync_batchnorm(model)   # CPU and GPU, before wrapping the model
# on GPUs torch's own does as well: torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)"""
SMALL = 8  # examples of a rank; ResNet-50 loses a point of accuracy there, and more below
FAR = 0.4  # standard deviations, root of the mean square over channels and steps
LASTING = 0.25  # the same of the mean over steps

Places = Dict[Tuple[str, int], Dict[int, dict]]  # (layer, step) -> rank -> event


def _is_own(cls: str) -> bool:
    return "BatchNorm" in cls and "Sync" not in cls


def _root_mean_square(values: List[float]) -> float:
    return math.sqrt(statistics.fmean([value * value for value in values])) if values else 0.0


def _differences(places: Places) -> Dict[Tuple[str, int, int, int], List[float]]:
    """(layer, channel, two ranks) -> by how many standard deviations their means differ, step by step."""
    found: Dict[Tuple[str, int, int, int], List[float]] = collections.defaultdict(list)
    for (name, _), seen in sorted(places.items(), key=lambda item: item[0][1]):
        ranks = sorted(seen)
        for number, one in enumerate(ranks):
            for two in ranks[number + 1 :]:
                rows = zip(seen[one]["mean"], seen[two]["mean"], seen[one]["var"], seen[two]["var"])
                for channel, (mean, mean2, variance, variance2) in enumerate(rows):
                    wide = math.sqrt((variance + variance2) / 2)
                    if wide > 1e-6 * max(abs(mean), abs(mean2), 1e-6):
                        found[(name, channel, one, two)].append((mean - mean2) / wide)
    return found


def judge(run: Run) -> List[Finding]:
    parallel = [each for _, each in run.of("data_parallel") if each["devices"] > 1]
    norms = [(rank, each) for rank, each in run.of("norm") if _is_own(each["cls"])]
    if not norms or (run.world < 2 and not parallel):
        return []
    places: Places = collections.defaultdict(dict)
    for rank, each in norms:
        places[(each["name"], each["s"])].setdefault(rank, each)
    differences = _differences(places)
    every = _root_mean_square([value for values in differences.values() for value in values])
    steps = min((len(values) for values in differences.values()), default=0)
    lasting = _root_mean_square([statistics.fmean(values) for values in differences.values()])
    size = statistics.median([each["batch"] for _, each in norms])
    small, far = size <= SMALL, every > FAR
    parted = steps >= 4 and lasting > LASTING and lasting > 0.7 * every  # chance alone leaves every / sqrt(steps)
    names = list(dict.fromkeys(each["name"] for _, each in norms))
    evidence = [f"{len(names)} layers ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}) normalise over "
                f"{size:g} examples of one rank"]  # fmt: skip
    if differences:
        (name, channel, one, two), values = max(differences.items(), key=lambda item: max(map(abs, item[1])))
        evidence.append(f"the means of a channel differ between ranks by {every:.2f} standard deviations in a step, by "
                        f"{lasting:.2f} over {steps} steps together; at most by {max(map(abs, values)):.2f} "
                        f"('{name}' channel {channel}, ranks {one} and {two})")  # fmt: skip
    why = ("so few examples give poor statistics" if small else "the ranks' examples are not of one distribution" if parted
           else "they are far apart" if far else "they are close")  # fmt: skip
    evidence[-1] += f": {why}"
    where = next((each["where"] for _, each in run.of("ddp")), "") or next((e["where"] for _, e in run.of("root")), "")
    return [Finding("unsynchronised-batch-norm", "warning" if small or far or parted else "note",
                    "Each rank normalises by the statistics of its own examples.",
                    evidence, sorted({rank for rank, _ in norms}), where,
                    "Training is that of a smaller batch, and the running statistics that are kept are those of one rank.",
                    _FIX)]  # fmt: skip
