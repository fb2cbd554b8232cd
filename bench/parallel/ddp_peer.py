# SPDX-License-Identifier: Apache-2.0
"""One process of PyTorch's way to train: DistributedDataParallel over Gloo, or one process with several threads.

ddp_peer.py NETWORK RANK WORLD PORT THREADS BATCH FORMAT: reads lines "STEPS" and answers with the seconds of a step.
NETWORK is lenet or resnet18; the latter has synchronised batch norms, of our own: torch's SyncBatchNorm refuses the CPU.
FORMAT is contiguous, channels_last, compiled (by torch.compile) or compiled_channels_last.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


class SyncBatchNorm(torch.autograd.Function):
    """The standard way: all ranks gather each other's statistics, and add up two sums in the backward pass."""

    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, momentum, eps):
        dims = (0, 2, 3)
        count = x.new_full((1,), x.numel() / x.size(1))
        var, mean = torch.var_mean(x, dims, correction=0)
        mine = torch.cat([mean, var, count])
        all_of = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_of, mine)
        table = torch.stack(all_of)
        channels = x.size(1)
        means, variances, counts = table[:, :channels], table[:, channels:-1], table[:, -1:]
        total = counts.sum()
        mean = (means * counts).sum(0) / total
        var = ((variances + (means - mean).square()) * counts).sum(0) / total
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(var * (total / (total - 1)), momentum)
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(var + eps), total)
        return nn.functional.batch_norm(x, mean, var, weight, bias, False, 0, eps)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, mean, inverse, total = ctx.saved_tensors
        dims = (0, 2, 3)
        gradient = gradient.contiguous(memory_format=torch.channels_last) if x.is_contiguous(
            memory_format=torch.channels_last) else gradient.contiguous()
        sum_gradient = gradient.sum(dims)
        sum_product = (gradient * x).sum(dims) - mean * sum_gradient
        grad_weight, grad_bias = sum_product * inverse, sum_gradient
        sums = torch.cat([sum_gradient, sum_product])
        dist.all_reduce(sums)
        all_gradient, all_product = sums.chunk(2)
        a = weight * inverse
        b = -a * inverse.square() * all_product / total
        c = -a * all_gradient / total - b * mean
        shape = (1, -1, 1, 1)
        grad_x = (gradient * a.view(shape)).addcmul_(x, b.view(shape)).add_(c.view(shape))
        return grad_x, grad_weight, grad_bias, None, None, None, None


class BatchNorm(nn.BatchNorm2d):
    def forward(self, x):
        if not dist.is_initialized():
            return super().forward(x)
        return SyncBatchNorm.apply(x, self.weight, self.bias, self.running_mean, self.running_var, self.momentum,
                                   self.eps)


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = BatchNorm(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = BatchNorm(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), BatchNorm(after))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), BatchNorm(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for after in (64, 128, 256, 512):
        for number in range(2):
            layers.append(Block(before, after, 2 if number == 0 and after > 64 else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


network = sys.argv[1]
rank, world, port, threads, batch = map(int, sys.argv[2:7])
channels_last = sys.argv[7].endswith("channels_last")
torch.set_num_threads(threads)
torch.manual_seed(0)
net = lenet() if network == "lenet" else resnet18()
share = batch // world
images = torch.randn(share, 1, 28, 28) if network == "lenet" else torch.randn(share, 3, 64, 64)
labels = torch.randint(10, (share,))
if channels_last:
    net = net.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)
if world > 1:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    # The statistics are the same on all ranks already.
    net = nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
if sys.argv[7].startswith("compiled"):
    net = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images), labels).backward()
    optimizer.step()


for line in sys.stdin:
    steps = int(line)
    start = time.perf_counter()
    for _ in range(steps):
        step()
    print((time.perf_counter() - start) / steps, flush=True)
