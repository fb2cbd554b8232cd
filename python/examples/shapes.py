# SPDX-License-Identifier: Apache-2.0
"""Point clouds made up on the spot, for the examples: noisy spheres, boxes and crosses."""
import torch

KINDS = ("sphere", "box", "cross")


def cloud(kind: int, generator: torch.Generator, points: int = 600) -> torch.Tensor:
    """Points [points, 3] in about -1 .. 1 on the surface of one kind of shape, turned and scaled at random."""
    x = torch.randn(points, 3, generator=generator)
    if KINDS[kind] == "sphere":
        x = x / x.norm(dim=1, keepdim=True)
    elif KINDS[kind] == "box":
        x = x / x.abs().amax(1, keepdim=True)
    else:
        axis = torch.randint(0, 3, (points, 1), generator=generator)
        x = torch.where(torch.arange(3) == axis, x.clamp(-1, 1), 0.05 * x)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator))
    scale = 0.7 + 0.3 * torch.rand(1, generator=generator)
    return x @ turn * scale + 0.01 * torch.randn(points, 3, generator=generator)


class Shapes(torch.utils.data.Dataset):
    """(voxels int32 [n, 3], features [n, 1], kind): the same for the same seed."""

    def __init__(self, size: int, seed: int = 0, voxel: float = 0.1):
        self.size, self.seed, self.voxel = size, seed, voxel

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int):
        import MinkowskiEngine as ME

        kind = number % len(KINDS)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        voxels = ME.utils.sparse_quantize(cloud(kind, generator), quantization_size=self.voxel)
        return voxels, torch.ones(len(voxels), 1), torch.tensor([kind])
