# SPDX-License-Identifier: Apache-2.0
"""Which shape is it? A small sparse network on voxels, trained by one process or several.

    python classification.py
    torchrun --nproc-per-node 2 classification.py
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from shapes import KINDS, Shapes
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import lockstep
import MinkowskiEngine as ME


class Net(nn.Sequential):
    def __init__(self, classes, D=3):
        blocks, channels = [], 1
        for width in (16, 32, 64):
            conv = ME.MinkowskiConvolution(channels, width, kernel_size=3, stride=2, dimension=D)
            blocks += [conv, ME.MinkowskiBatchNorm(width), ME.MinkowskiReLU()]
            channels = width
        super().__init__(*blocks, ME.MinkowskiGlobalMaxPooling(), ME.MinkowskiLinear(channels, classes))


def loader_of(data, batch, **options):
    sampler = lockstep.ExactSampler(data, batch, **options)
    return DataLoader(data, batch_sampler=sampler, collate_fn=ME.utils.batch_sparse_collate), sampler


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--size", type=int, default=120)
    parser.add_argument("--batch", type=int, default=12)
    options = parser.parse_args()
    if "RANK" in os.environ:  # torchrun sets it, and so do jobs of Kubernetes
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(Net(len(KINDS)))
    model = net
    if dist.is_initialized():
        model = DistributedDataParallel(net)
        model.register_comm_hook(None, lockstep.canonical_hook)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader, sampler = loader_of(Shapes(options.size), options.batch, drop_last=True)
    for epoch in range(options.epochs):
        loss_mean = lockstep.metrics.Mean()
        for coordinates, features, kinds in loader:
            loss = nn.functional.cross_entropy(model(ME.SparseTensor(features, coordinates)).F, kinds)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            sampler.advance()
            loss_mean.add(loss.item(), len(kinds))
        print(f"epoch {epoch}: loss {loss_mean.all_merge().value():.6f}")
    accuracy = lockstep.metrics.Accuracy()
    loader, _ = loader_of(Shapes(60, seed=1), options.batch, shuffle=False)
    model.eval()
    with torch.no_grad():
        for coordinates, features, kinds in loader:
            accuracy.add(model(ME.SparseTensor(features, coordinates)).F, kinds)
    print(f"accuracy {accuracy.all_merge().value():.3f} on {accuracy.examples} shapes")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
