# SPDX-License-Identifier: Apache-2.0
"""A step of torchvision's ResNet-50 as PyTorch's users train it: 256 images from pinned memory, bfloat16, channels last."""

import statistics
import time

import torch
import torchvision

BATCH, WARM, STEPS = 256, 8, 20


def milliseconds(compiled: bool) -> float:
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    network = torch.compile(model) if compiled else model
    images = torch.randn(BATCH, 3, 224, 224).contiguous(memory_format=torch.channels_last).pin_memory()
    labels = torch.randint(0, 1000, (BATCH,)).pin_memory()
    took = []
    for _ in range(WARM + STEPS):
        start = time.monotonic()
        x, y = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        took.append(1e3 * (time.monotonic() - start))
    return statistics.median(took[WARM:])


def main() -> None:
    print(f"eager: {milliseconds(False):.1f} ms a step", flush=True)
    print(f"torch.compile: {milliseconds(True):.1f} ms a step", flush=True)


if __name__ == "__main__":
    main()
