# SPDX-License-Identifier: Apache-2.0
"""unsynchronised-batch-norm: each rank normalises by the statistics of its own share."""
from __future__ import annotations

import collections
from typing import Dict, List

from ..findings import Finding
from ..logs import Run

_FIX = """model = lockstep.SyncBatchNorm.convert_sync_batchnorm(model)   # CPU and GPU, before wrapping the model
# on GPUs torch's own does as well: torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)"""


def _is_own(cls: str) -> bool:
    return "BatchNorm" in cls and "Sync" not in cls


def judge(run: Run) -> List[Finding]:
    parallel = [each for _, each in run.of("data_parallel") if each["devices"] > 1]
    norms = [(rank, each) for rank, each in run.of("norm") if _is_own(each["cls"])]
    if not norms or (run.world < 2 and not parallel):
        return []
    by_place: Dict[tuple, Dict[int, dict]] = collections.defaultdict(dict)
    for rank, each in norms:
        by_place[(each["name"], each["s"])].setdefault(rank, each)
    worst, at = 0.0, ("", 0)
    for place, seen in by_place.items():
        for one in seen.values():
            for two in seen.values():
                if len(one["mean"]) == len(two["mean"]):
                    for m, m2, v in zip(one["mean"], two["mean"], one["var"]):
                        apart = abs(m - m2) / max(v, 1e-12) ** 0.5
                        worst, at = max((worst, at), (apart, place))
    names = list(dict.fromkeys(each["name"] for _, each in norms))
    rows = [each["batch"] for _, each in norms]
    evidence = [f"{len(names)} layers ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}) normalise over "
                f"{min(rows)} to {max(rows)} examples of one rank"]  # fmt: skip
    if worst:
        evidence.append(f"in step {at[1]} the mean of a channel of '{at[0]}' differs between ranks by {worst:.2f} standard "
                        "deviations")  # fmt: skip
    where = next((each["where"] for _, each in run.of("ddp")), "") or next((e["where"] for _, e in run.of("root")), "")
    return [Finding("unsynchronised-batch-norm", "warning", "Each rank normalises by the statistics of its own examples.",
                    evidence, sorted({rank for rank, _ in norms}), where,
                    "Training is that of a smaller batch, and the running statistics that are kept are those of one rank.",
                    _FIX)]  # fmt: skip
