# SPDX-License-Identifier: Apache-2.0
"""The classifier of classification.py with Accelerate.

    python with_accelerate.py --processes 2
    accelerate launch --cpu with_accelerate.py          # the same, started by Accelerate
"""
import argparse

import torch
import torch.nn as nn
from accelerate import Accelerator, DataLoaderConfiguration, debug_launcher
from classification import Net, loader_of
from shapes import KINDS, Shapes

import lockstep
import MinkowskiEngine as ME


def train(size):
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=False))
    net = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(Net(len(KINDS)))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    # The loader stays out of prepare(): the exact sampler has cut the data for this process already.
    loader, _ = loader_of(Shapes(size), 8, drop_last=True, rank=accelerator.process_index,
                          processes=accelerator.num_processes)
    model, optimizer = accelerator.prepare(net, optimizer)
    for coordinates, features, kinds in loader:
        loss = nn.functional.cross_entropy(model(ME.SparseTensor(features, coordinates)).F, kinds)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    lockstep.divergence_watch(accelerator.unwrap_model(model)).check()
    losses = accelerator.gather(loss.detach().view(1))
    accelerator.print(f"{accelerator.num_processes} processes, loss {losses.mean():.4f}, same weights on all")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--size", type=int, default=120)
    options = parser.parse_args()
    if options.processes > 1:
        debug_launcher(train, (options.size,), options.processes)
    else:
        train(options.size)


if __name__ == "__main__":
    main()
