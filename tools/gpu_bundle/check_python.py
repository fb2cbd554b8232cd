# SPDX-License-Identifier: Apache-2.0
"""A small sparse network in Python on the GPU and on the CPU: the same outputs and gradients, and the same bits twice."""

import lockstep
import MinkowskiEngine as ME
import torch


def step(device: str) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    cells = torch.unique(torch.randint(0, 12, (500, 3), dtype=torch.int), dim=0)
    coordinates = torch.cat([torch.zeros(len(cells), 1, dtype=torch.int), cells], 1)
    features = torch.randn(len(cells), 4)
    network = torch.nn.Sequential(
        ME.MinkowskiConvolution(4, 32, kernel_size=3, dimension=3),
        ME.MinkowskiReLU(),
        ME.MinkowskiConvolution(32, 32, kernel_size=2, stride=2, dimension=3),
        ME.MinkowskiGlobalPooling(),
    ).to(device)
    x = ME.SparseTensor(features.to(device), coordinates.to(device))
    loss = network(x).F.square().sum()
    loss.backward()
    return (loss.detach().cpu(), *(parameter.grad.cpu() for parameter in network.parameters()))


def main() -> None:
    lockstep.pin_numerics()
    cpu, gpu, again = step("cpu"), step("cuda"), step("cuda")
    for a, b, c in zip(cpu, gpu, again):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        assert torch.equal(b, c), "two runs differ"
    print(f"lockstep {lockstep.__version__}: {len(cpu)} tensors agree")


if __name__ == "__main__":
    main()
