# SPDX-License-Identifier: Apache-2.0
"""Programs whose fault, where they have one, is in the model, its gradients, or the calls that bring ranks together."""
import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import data

STEPS = 8


class Net(nn.Module):
    def __init__(self, norm=None, drop=0.0, unused=False):
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(6, 16), nn.Linear(16, 1), nn.Dropout(drop)
        self.norm = norm if norm is not None else nn.Identity()
        if unused:
            self.spare = nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


class Centered(nn.Module):
    """A buffer of one's own, moved by each rank's batch, or by all of them."""

    def __init__(self, together):
        super().__init__()
        self.together = together
        self.register_buffer("center", torch.zeros(16))

    def forward(self, x):
        if self.training:
            mean = x.detach().mean(0)
            if self.together:
                dist.all_reduce(mean)
                mean /= dist.get_world_size()
            self.center.lerp_(mean, 0.1)
        return x - self.center


class JointNorm(nn.Module):
    """A batch norm that reduces its moments by hand (its gradient stops at them)."""

    def forward(self, x):
        moments = torch.stack([x.detach().mean(0), x.detach().square().mean(0)])
        dist.all_reduce(moments)
        moments /= dist.get_world_size()
        return (x - moments[0]) / (moments[1] - moments[0].square() + 1e-5).sqrt()


NORMS = {
    "batch-norm": lambda: nn.BatchNorm1d(16),
    "layer-norm": lambda: nn.LayerNorm(16),
    "joint-norm": JointNorm,
    "center-alone": lambda: Centered(False),
    "center-together": lambda: Centered(True),
}


def model_of(variant, rank):
    torch.manual_seed(rank if variant == "manual-initial" else 0)
    norm = NORMS[variant]() if variant in NORMS else None
    drop = 0.3 if variant.startswith("dropout") else 0.0
    model = Net(norm, drop, unused=variant.startswith("unused"))
    if variant == "frozen-norm":
        model.norm = nn.BatchNorm1d(16).eval()
        model.norm.train = lambda mode=True: model.norm
    if variant == "unused-frozen":
        model.spare.requires_grad_(False)
    if variant == "dropout-apart":
        torch.manual_seed(10 + rank)
    return model


def wrapped(model, variant):
    if variant.startswith("manual") or variant in ("not-wrapped", "rank-call", "weights-averaged"):
        return model
    return DistributedDataParallel(
        model, find_unused_parameters=variant in ("unused", "needless-search"),
        broadcast_buffers=not variant.startswith("center"))  # fmt: skip


def reduce_by_hand(model, variant, world):
    for name, each in model.named_parameters():
        if variant == "manual-partial" and name.endswith("bias"):
            continue
        dist.all_reduce(each.grad)
        if variant not in ("manual-sum", "manual-scaled-loss"):
            each.grad /= world


def train(variant, rank, world):
    model = model_of(variant, rank)
    ddp = wrapped(model, variant)
    late = nn.Linear(1, 1) if variant == "late-parameter" else None
    if late is not None:
        model.late = late
    rate = 0.02 * (1 + rank) if variant == "optimizer-apart" else 0.02
    optimizer = torch.optim.SGD(ddp.parameters(), rate, momentum=0.9)
    x, y = data.examples(160).tensors
    uneven = variant == "uneven-steps" and rank == 1
    x, y = x[rank::world][: 48 if uneven else 80], y[rank::world]
    loader = DataLoader(TensorDataset(x, y[: len(x)]), 16 if variant == "uneven-shares" and rank else 8, shuffle=True)
    forward = model if variant == "around" else ddp
    micro = 2 if variant == "accumulation" else 1
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            if variant == "uneven-shares" and number == 5:
                break
            out = forward(x)
            out = late(out) if late is not None else out
            loss = nn.functional.mse_loss(out, y) / micro
            if variant == "manual-scaled-loss":
                loss = loss / world
            if micro == 2 and number % 2 == 0:
                with ddp.no_sync():
                    loss.backward()
                continue
            loss.backward()
            if variant.startswith("manual"):
                reduce_by_hand(model, variant, world)
            if variant == "clipped":
                nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
            if variant == "weights-averaged" and number % 2:
                for each in model.parameters():
                    dist.all_reduce(each.data)
                    each.data /= world
            if variant == "rank-call" and number == 3:
                mine = torch.ones(2)
                if rank == 0:
                    dist.all_reduce(mine)
                dist.broadcast(mine, 0)
            if variant == "touched" and rank == 1 and epoch == 0 and number == 2:
                with torch.no_grad():
                    model.last.bias += 0.5
    dist.barrier()
    if rank == 0:
        print("done", flush=True)


if __name__ == "__main__":
    start.main(train)
