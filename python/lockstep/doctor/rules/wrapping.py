# SPDX-License-Identifier: Apache-2.0
"""What brings ranks' gradients together in a program, and the lines that mend it where it does not."""
from __future__ import annotations

from typing import Optional

from ..logs import Run

_AROUND = "loss = criterion(model(x), y)   # call the wrapper, never model.module, in training"
_WRAP = "model = DistributedDataParallel(model)   # makes weights equal and averages every gradient"
_AGAIN = """# again, each time that parameters were made, thawed or replaced, and before the optimiser is made:
model = DistributedDataParallel(model.module)"""
BY_HAND = """for p in model.parameters():   # every one, on every rank, between backward() and step()
    torch.distributed.all_reduce(p.grad)
    p.grad /= torch.distributed.get_world_size()   # a mean, not a sum"""
IN_A_HOOK = """def average(gradient):
    mean = gradient / torch.distributed.get_world_size()   # a mean, not a sum, and another tensor
    torch.distributed.all_reduce(mean); return mean
for p in model.parameters():
    p.register_hook(average)"""


def reduces_in_hooks(run: Run) -> bool:
    """Whether hooks of the program's own call collectives when a gradient is there."""
    return any(each["hooked"] for each in run.ranks[0].of("gradients"))


def by_hand(run: Run) -> str:
    return IN_A_HOOK if reduces_in_hooks(run) else BY_HAND
_HOOK = """def hook(state, bucket):   # DistributedDataParallel takes what a hook of one's own gives as it is
    mean = bucket.buffer() / torch.distributed.get_world_size()
    return torch.distributed.all_reduce(mean, async_op=True).get_future().then(lambda sent: sent.value()[0])"""
_OUT = "# DistributedDataParallel has averaged the gradients already: take all_reduce(p.grad) out"


def not_summed(run: Run) -> str:
    """For gradients that are the ranks' sum."""
    if not run.of("ddp"):
        return by_hand(run)
    return _HOOK if any(each["hook"] for each in run.ranks[0].of("forward") if each.get("hook") is not None) else _OUT


NEVER_SYNCS = "all passes of DistributedDataParallel run within no_sync(), which leaves gradients to the last one outside of it"
_SYNC = """last = (number + 1) % micro == 0   # of the small batches of a step: this one runs outside of no_sync()
with contextlib.nullcontext() if last else model.no_sync():
    loss = criterion(model(x), y) / micro
    loss.backward()"""


def never_syncs(run: Run) -> bool:
    """Whether no training pass of a wrapped model brings gradients together."""
    passes = [each["sync"] for each in run.ranks[0].of("forward") if each.get("sync") is not None]
    return len(passes) > 1 and not any(passes)


def is_wrapped(run: Run, root: Optional[int]) -> bool:
    """Whether a model, by its number, is in DistributedDataParallel; whether any is, where it is not known which one."""
    wrappers = [each["wrapper"] for each in run.ranks[0].of("root") if root is None or each["root"] == root]
    return "DistributedDataParallel" in wrappers if wrappers else bool(run.of("ddp"))


def goes_around(run: Run) -> bool:
    """Whether the training calls the model inside of DistributedDataParallel."""
    return any(each["around"] for each in run.ranks[0].of("forward"))


def reduces_by_hand(run: Run) -> bool:
    """Whether the program's own lines reduce something between its backward passes."""
    first = run.ranks[0]
    backwards = [each["t"] for each in first.of("backward")]
    calls = [each["t"] for each in first.of("call") if each["kind"].startswith(("all_reduce", "reduce", "broadcast")) and each["where"]]
    return len(backwards) > 1 and sum(backwards[0] < t for t in calls) >= min(3, len(backwards) - 1)


def fix(run: Run, root: Optional[int] = None) -> str:
    """For gradients of a model that are not brought together."""
    if goes_around(run):
        return _AROUND
    if is_wrapped(run, root):
        return _SYNC if never_syncs(run) else _AGAIN
    return by_hand(run) if reduces_by_hand(run) else _WRAP
