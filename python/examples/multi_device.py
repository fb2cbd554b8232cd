# SPDX-License-Identifier: Apache-2.0
"""Several devices in one process, as users of MinkowskiEngine write it: replicate, parallel_apply, gather.

    python multi_device.py --devices cpu cpu          # two threads
    python multi_device.py --devices 0 1              # two GPUs
"""
import argparse

import torch
import torch.nn as nn
from classification import Net
from shapes import KINDS, Shapes

import MinkowskiEngine as ME
from lockstep import parallel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", nargs="+", default=["cpu", "cpu"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4, help="of each device")
    options = parser.parse_args()
    devices = [int(name) if name.isdigit() else name for name in options.devices]
    torch.manual_seed(0)
    net = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(Net(len(KINDS))).to(devices[0])
    criterion = nn.CrossEntropyLoss()
    criterions = parallel.replicate(criterion, devices)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    data, number = Shapes(10_000), 0
    for step in range(options.steps):
        inputs, labels = [], []
        for device in devices:
            batch = [data[number + i] for i in range(options.batch)]
            number += options.batch
            coordinates, features, kinds = ME.utils.batch_sparse_collate(batch)
            inputs.append(ME.SparseTensor(features, coordinates, device=device))
            labels.append(kinds.to(device))
        replicas = parallel.replicate(net, devices)
        outputs = parallel.parallel_apply(replicas, inputs, devices=devices)
        out_features = [output.F for output in outputs]
        losses = parallel.parallel_apply(criterions, tuple(zip(out_features, labels)), devices=devices)
        loss = parallel.gather(losses, devices[0], dim=0).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
