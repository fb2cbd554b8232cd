# SPDX-License-Identifier: Apache-2.0
"""The networks of dense_test.cpp in PyTorch: prints their names, logits and running statistics as it does."""

import sys

import torch
from torch import nn


class LeNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 128), nn.Linear(128, classes)

    def forward(self, x):
        x = nn.functional.avg_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.avg_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, into, out, stride, bottleneck):
        super().__init__()
        inner = out // 4
        plan = [(into, inner, 1, 1), (inner, inner, 3, stride), (inner, out, 1, 1)] if bottleneck else [
            (into, out, 3, stride), (out, out, 3, 1)]
        self.depth = len(plan)
        for i, (a, b, kernel, step) in enumerate(plan, 1):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(b))
        self.downsample = None
        if stride != 1 or into != out:
            self.downsample = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = x
        for i in range(1, self.depth + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.depth:
                y = torch.relu(y)
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, width, classes, small):
        super().__init__()
        self.small = small
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False) if small else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        into = width
        for layer, count in enumerate(blocks):
            out = (width << layer) * (4 if bottleneck else 1)
            row = []
            for block in range(count):
                row.append(Block(into, out, 2 if layer > 0 and block == 0 else 1, bottleneck))
                into = out
            setattr(self, f"layer{layer + 1}", nn.Sequential(*row))
        self.fc = nn.Linear(into, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        if not self.small:
            x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def fill(net):
    for number, (name, tensor) in enumerate(sorted(net.state_dict().items()), 1):
        if tensor.dtype == torch.long:
            continue
        wave = (torch.arange(tensor.numel(), dtype=torch.double) * 0.011 + number * 0.37).sin().view(tensor.shape)
        if name.endswith("running_var"):
            tensor.copy_(1 + 0.5 * wave)
        else:
            tensor.copy_(1 + 0.1 * wave if "bn" in name and name.endswith("weight") else 0.1 * wave)


def show(values):
    print("".join(f"{value:.12g} " for value in values.detach().flatten().tolist()))


torch.set_num_threads(1)
net, size = {
    "lenet": lambda: (LeNet(3), (1, 28, 28)),
    "resnet18": lambda: (ResNet((2, 2, 2, 2), False, 4, 3, True), (3, 20, 20)),
    "resnet50": lambda: (ResNet((3, 4, 6, 3), True, 4, 3, False), (3, 40, 40)),
}[sys.argv[1]]()
net = net.double()
fill(net)
images = (torch.arange(2 * size[0] * size[1] * size[2], dtype=torch.double) * 0.05).sin().view(2, *size)
print("".join(f"{name} " for name in sorted(net.state_dict())))
show(net(images))
if hasattr(net, "bn1"):
    show(net.bn1.running_mean)
show(net.eval()(images))
