# SPDX-License-Identifier: Apache-2.0
"""Whether all processes still hold the same model."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist

from . import groups

__all__ = ["DivergenceError", "DivergenceWatch", "divergence_watch"]


class DivergenceError(RuntimeError):
    """Processes hold different weights. `tensors`: their names; `ranks`: those that differ from rank 0, by name."""

    def __init__(self, message: str, tensors: List[str], ranks: Dict[str, List[int]]) -> None:
        super().__init__(message)
        self.tensors, self.ranks = tensors, ranks


def fingerprint(tensor: torch.Tensor) -> int:
    """64 bits that follow from a tensor's bits and their places."""
    raw = tensor.detach().contiguous().view(-1).view(torch.uint8)
    padded = torch.nn.functional.pad(raw, (0, -raw.numel() % 8)).view(torch.int64)
    # Odd multipliers, one a place, in arithmetic modulo 2^64; then the size.
    places = torch.arange(padded.numel(), device=padded.device, dtype=torch.int64)
    mixed = padded ^ (padded >> 31)
    return int((mixed * (2 * places + 0x9E3779B97F4A7C1)).sum()) ^ raw.numel()


class DivergenceWatch:
    """Compares all processes' parameters and buffers before every `every`-th forward pass. See divergence_watch()."""

    def __init__(self, model: torch.nn.Module, every: int, buffers: bool, group: Optional[dist.ProcessGroup]) -> None:
        if every < 1:
            raise ValueError(f"every is {every}, expected 1 or more")
        self.model, self.every, self.buffers, self.group = model, every, buffers, group
        self.passes = 0
        self._handle = model.register_forward_pre_hook(self._count)

    def _count(self, module: torch.nn.Module, inputs: Any) -> None:
        if module.training:
            self.passes += 1
            if self.passes % self.every == 0:
                self.check()

    def check(self) -> None:
        """Compares now. All processes call it. Raises DivergenceError on all of them where they differ."""
        tensors: Dict[str, torch.Tensor] = dict(self.model.named_parameters())
        if self.buffers:
            tensors.update(self.model.named_buffers())
        prints = torch.tensor([fingerprint(each) for each in tensors.values()], dtype=torch.int64)
        everyone = groups.all_gather(prints, self.group)
        ranks = {}
        for column, name in enumerate(tensors):
            others = (everyone[:, column] != everyone[0, column]).nonzero().view(-1).tolist()
            if others:
                ranks[name] = others
        if ranks:
            first = next(iter(ranks))
            raise DivergenceError(
                f"{len(ranks)} of {len(tensors)} tensors differ between processes, the first one '{first}', on ranks "
                f"{ranks[first]} from rank 0's, after {self.passes} forward passes; expected the same bits. Look for "
                "random numbers, batch norms or code that not all ranks share.",
                list(ranks),
                ranks,
            )

    def remove(self) -> None:
        """Ends the watch."""
        self._handle.remove()


def divergence_watch(
    model: torch.nn.Module, every: int = 100, buffers: bool = False, group: Optional[dist.ProcessGroup] = None
) -> DivergenceWatch:
    """Raises DivergenceError on all processes as soon as their copies of a model differ in a bit.

    Looks before every `every`-th forward pass in training: 8 bytes a tensor are exchanged. Running statistics of
    ordinary batch norms do differ between processes, so `buffers` are left out unless asked for.
    """
    return DivergenceWatch(model, every, buffers, group)
