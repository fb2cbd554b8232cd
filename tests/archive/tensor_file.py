# SPDX-License-Identifier: Apache-2.0
"""Python's side of the test of files: tensor_file.py check|save|state_dict|objects|conjugated|check_safetensors|save_safetensors FILE."""

import sys

import safetensors
import safetensors.torch
import torch


def check(path: str) -> None:
    read = torch.load(path, weights_only=True)
    assert torch.equal(read["float"], torch.arange(6, dtype=torch.float32).view(2, 3))
    assert torch.equal(read["transposed"], torch.arange(6, dtype=torch.float64).view(2, 3).t())
    assert torch.equal(read["half"], torch.full((3,), 0.5, dtype=torch.float16))
    assert torch.equal(read["bfloat16"], torch.full((3,), -2, dtype=torch.bfloat16))
    assert torch.equal(read["long"], torch.tensor([1, 1 << 60]))
    assert torch.equal(read["bool"], torch.tensor([True, True]))
    assert read["scalar"].shape == () and read["scalar"].item() == 2.5
    assert read["empty"].shape == (0, 4)
    assert read["integer"] == -7 and read["large"] == -(1 << 63)
    assert read["number"] == 0.1 and read["yes"] is True and read["none"] is None
    assert read["text"] == "zwei\nZeilen ü"
    assert read["list"] == [1, "a", []] and read["dict"] == {"inner": 300}
    mapped = torch.load(path, weights_only=True, mmap=True)
    assert torch.equal(mapped["float"], read["float"])
    weights = torch.load(path.replace(".pt", ".weights.pt"), weights_only=True)
    layer = torch.nn.Linear(4, 3)
    layer.bias = torch.nn.Parameter(torch.zeros(3))
    weights["bias"] = weights["bias"].float()
    layer.load_state_dict(weights)
    assert layer.weight[2, 3].item() == 0.5 and layer.bias[2].item() == 2


def save(path: str) -> None:
    base = torch.arange(12, dtype=torch.float32).view(3, 4)
    torch.save(
        {
            "base": base,
            "view": base.t()[1:3],
            "channels_last": torch.arange(24, dtype=torch.float64)
            .view(1, 2, 3, 4)
            .contiguous(memory_format=torch.channels_last),
            "parameter": torch.nn.Parameter(torch.full((2,), 7.0)),
            "bfloat16": torch.zeros(2, dtype=torch.bfloat16),
            "empty": torch.zeros(0, 2),
            "big": 1 << 40,
            "negative": -(1 << 40),
            "numbers": {3: 0.5},
            "shape": torch.Size([2, 3]),
        },
        path,
    )


def state_dict(path: str) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(net.state_dict(), path)  # an OrderedDict with attributes
    torch.save({"epoch": 3, "state_dict": dict(net.state_dict())}, path + ".nested")


def objects(path: str) -> None:
    torch.save(torch.nn.Linear(2, 2), path)


def conjugated(path: str) -> None:
    torch.save({"a": torch.tensor([1 + 2j]).conj()}, path)


# What both sides write into a safetensors file: each dtype that torch's Python can fill.
def named_tensors() -> dict[str, torch.Tensor]:
    out = {
        str(dtype).removeprefix("torch."): torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
        for dtype in (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.uint16,
            torch.int32,
            torch.uint32,
            torch.int64,
            torch.uint64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
        )
    }
    return out | {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4), 'name "\\" ü': torch.ones(1)}


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def check_safetensors(path: str) -> None:
    read, expected = safetensors.torch.load_file(path), named_tensors()
    assert read.keys() == expected.keys(), read.keys() ^ expected.keys()
    for name, tensor in expected.items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape, name
        assert torch.equal(bytes_of(read[name]), bytes_of(tensor)), name
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}


def save_safetensors(path: str) -> None:
    safetensors.torch.save_file(named_tensors(), path, metadata={"from": "Python", "twice": "\u00fc"})


DIRECTIONS = (check, save, state_dict, objects, conjugated, check_safetensors, save_safetensors)
{direction.__name__: direction for direction in DIRECTIONS}[sys.argv[1]](sys.argv[2])
