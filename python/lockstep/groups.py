# SPDX-License-Identifier: Apache-2.0
"""What the modules want of a process group: rank and size, also where there is none, and small exchanges."""
from __future__ import annotations

import atexit
import time
import weakref
from typing import List, Optional, Set

import torch
import torch.distributed as dist

_lent: Set[weakref.ref[torch.Tensor]] = set()


def lend(*tensors: torch.Tensor) -> None:
    """To be called with all tensors that a collective is given: the program does not end before they are given back.

    A backend's thread lets go of them some time after wait() has returned, and needs the interpreter's lock for it. If
    the interpreter is being torn down by then, which it is at once after a program's last collective, the process aborts.
    """
    for tensor in tensors:
        _lent.add(weakref.ref(tensor, _lent.discard))


@atexit.register
def _wait_for_lent() -> None:
    deadline = time.monotonic() + 2
    while _lent and time.monotonic() < deadline:
        time.sleep(0.001)


def is_there() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank_of(group: Optional[dist.ProcessGroup] = None) -> int:
    return dist.get_rank(group) if is_there() else 0


def size_of(group: Optional[dist.ProcessGroup] = None) -> int:
    return dist.get_world_size(group) if is_there() else 1


def _device(group: Optional[dist.ProcessGroup]) -> torch.device:
    """Where the group's backend wants tensors."""
    if dist.get_backend(group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def gather_parts(mine: torch.Tensor, group: Optional[dist.ProcessGroup] = None) -> List[torch.Tensor]:
    """Every rank's tensor, all of one shape, where the group's backend wants them. `mine` is lent: nobody else's."""
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    lend(mine, *parts)
    dist.all_gather(parts, mine, group=group)
    return parts


def all_gather(mine: torch.Tensor, group: Optional[dist.ProcessGroup] = None) -> torch.Tensor:
    """Every rank's tensor, all of one shape: [ranks, ...] on the CPU."""
    if size_of(group) == 1:
        return mine.cpu().unsqueeze(0)
    given = mine.to(_device(group), copy=True).contiguous()
    return torch.stack(gather_parts(given, group)).cpu()
