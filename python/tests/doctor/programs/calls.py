# SPDX-License-Identifier: Apache-2.0
"""Programs whose ranks make different calls, or different numbers of steps, and healthy ones that look like them."""
import subprocess
import sys
import time

import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import data


def at_step(variant, rank, world, value, alone):
    """What a program does in its sixth step."""
    if variant == "other-order":
        for size in (3, 5) if rank else (5, 3):
            dist.all_reduce(torch.ones(size))
    elif variant == "other-operation":
        dist.all_reduce(value, op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)
    elif variant == "other-shape":
        dist.all_reduce(value[: 2 - rank].clone())
    elif variant == "barrier-of-one" and rank == 0:
        dist.barrier()
    elif variant == "own-groups":  # healthy: each rank calls within a group of its own
        dist.all_reduce(value, group=alone[rank])
        if rank == 0:
            dist.broadcast(value, 0, group=alone[0])
    elif variant == "objects":  # healthy: what is gathered has another size on each rank
        dist.broadcast_object_list([{"step": 5}] if rank == 0 else [None], 0)
        dist.gather_object(list(range(100 * rank)), [None] * world if rank == 0 else None)


class Slowly(torch.autograd.Function):
    """Computes for longer than the doctor waits for a line of a rank that waits."""

    @staticmethod
    def forward(ctx, x, elsewhere):
        ctx.elsewhere = elsewhere
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        work = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
        if ctx.elsewhere:  # as torch.compile does
            subprocess.run([sys.executable, "-S", "-c", work], check=True, env={})
        else:
            exec(work, {})
        return gradient, None


def steps_of(variant, rank):
    if variant == "fewer-steps":
        return 10 - 2 * rank
    return 10


def train(variant, rank, world):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01 * world)
    alone = [dist.new_group([each]) for each in range(world)]
    x, y = (each[rank::world][: 8 * steps_of(variant, rank)] for each in data.examples(160).tensors)
    for number, (inputs, wanted) in enumerate(DataLoader(TensorDataset(x, y), 8, shuffle=True)):
        if variant in ("long-backward", "long-compiler") and number == 3:  # healthy
            inputs = Slowly.apply(inputs.requires_grad_(), variant == "long-compiler")
        if variant == "saves-slowly" and number == 3:  # healthy: the others wait
            time.sleep(3 if rank == 0 else 0)
            dist.barrier()
        if variant == "stops-early" and rank == 1 and number == 6:
            break
        loss = nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 5:
            at_step(variant, rank, world, torch.tensor([loss.item(), 1.0]), alone)


if __name__ == "__main__":
    start.main(train)
