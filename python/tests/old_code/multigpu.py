# SPDX-License-Identifier: Apache-2.0
"""Several devices in one process, as a program for MinkowskiEngine 0.4 has it: torch.nn.parallel, and the names of then.

    python multigpu.py DEVICE...
"""
import sys

import torch
import torch.nn as nn
import torch.nn.parallel as parallel
from torch.optim import SGD

import MinkowskiEngine as ME
import MinkowskiEngine.MinkowskiFunctional as F


class Classifier(ME.MinkowskiNetwork):
    def __init__(self, in_feat, out_feat, D):
        super(Classifier, self).__init__(D)
        self.conv1 = ME.MinkowskiConvolution(
            in_channels=in_feat,
            out_channels=16,
            kernel_size=3,
            stride=2,
            dilation=1,
            has_bias=False,
            dimension=D)
        self.bn1 = ME.MinkowskiBatchNorm(16)
        self.conv2 = ME.MinkowskiConvolution(
            in_channels=16,
            out_channels=32,
            kernel_size=3,
            stride=2,
            dimension=D)
        self.bn2 = ME.MinkowskiBatchNorm(32)
        self.pooling = ME.MinkowskiGlobalPooling(dimension=D)
        self.linear = ME.MinkowskiLinear(32, out_feat)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return self.linear(self.pooling(out))


def load(generator, clouds=6, classes=3):
    """A batch of clouds whose colour tells the class."""
    kinds = torch.randint(0, classes, (clouds,), generator=generator)
    coords = [torch.randint(0, 12, (60, 2), generator=generator).unique(dim=0) for _ in range(clouds)]
    feats = [torch.rand(len(c), 3, generator=generator) + torch.eye(classes)[kind] for c, kind in zip(coords, kinds)]
    coords, feats = ME.utils.sparse_collate(coords, feats)
    return coords, feats, kinds


def main(devices, steps=8, synchronised=True):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    target_device = devices[0]
    net = Classifier(in_feat=3, out_feat=3, D=2)
    if synchronised:
        net = ME.MinkowskiSynchBatchNorm.convert_sync_batchnorm(net)
    net = net.to(target_device)
    optimizer = SGD(net.parameters(), lr=1e-1)
    criterion = nn.CrossEntropyLoss()
    criterions = parallel.replicate(criterion, devices)
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        inputs, labels = [], []
        for device in devices:
            coords, feat, label = load(generator)
            inputs.append(ME.SparseTensor(feat, coords=coords).to(device))
            labels.append(label.to(device))
        replicas = parallel.replicate(net, devices)
        outputs = parallel.parallel_apply(replicas, inputs, devices=devices)
        out_features = [output.F for output in outputs]
        losses = parallel.parallel_apply(criterions, tuple(zip(out_features, labels)), devices=devices)
        loss = parallel.gather(losses, target_device, dim=0).mean()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return net, history


if __name__ == "__main__":
    print(main([int(name) if name.isdigit() else name for name in sys.argv[1:]])[1])
