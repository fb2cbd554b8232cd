# SPDX-License-Identifier: Apache-2.0
"""Linear layers, joins of tensors at the same points, and conversions from and to dense tensors."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
from torch.nn.modules import Module

from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import COORDINATE_KEY_DIFFERENT_ERROR, COORDINATE_MANAGER_DIFFERENT_ERROR, AnyTensor, Tensor
from .MinkowskiTensorField import TensorField


class MinkowskiLinear(Module):
    """torch.nn.Linear, as `linear`, on features [N, in_features] of a sparse tensor or a field."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features, bias=bias)

    def forward(self, input: AnyTensor) -> AnyTensor:
        return input._like(self.linear(input.F))

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}(in_features={self.linear.in_features}, "
            f"out_features={self.linear.out_features}, bias={self.linear.bias is not None})"
        )


def _tuple_operator(
    *sparse_tensors: Tensor | Sequence[Tensor], operator: Callable[[list[torch.Tensor]], torch.Tensor]
) -> Tensor:
    """operator(list of features) for two or more sparse tensors, or fields, at the same points; a list or tuple of them
    counts as well."""
    tensors: Any = sparse_tensors
    if len(tensors) == 1:
        tensors = tensors[0]
        assert isinstance(tensors, (tuple, list)), f"got one {type(tensors).__name__}, expected two tensors or more"
    assert len(tensors) > 1, f"got {len(tensors)} tensors, expected two or more"
    first = tensors[0]
    if not isinstance(first, (SparseTensor, TensorField)):
        raise ValueError(
            f"Invalid data type {type(first).__name__}. The input must be either a list of sparse tensors or a list of "
            "tensor fields."
        )
    kind = SparseTensor if isinstance(first, SparseTensor) else TensorField
    for each in tensors:
        assert isinstance(each, kind), "Inputs must be either SparseTensors or TensorFields."
        assert each.device == first.device, f"Device must be the same. {first.device} != {each.device}"
        assert each.coordinate_manager is first.coordinate_manager, COORDINATE_MANAGER_DIFFERENT_ERROR
        assert each.coordinate_key == first.coordinate_key, (
            f"{COORDINATE_KEY_DIFFERENT_ERROR}{first.coordinate_key} != {each.coordinate_key}"
        )
    return first._like(operator([each.F for each in tensors]))


def cat(*sparse_tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """Channels side by side: [N, C1 + C2 + ...]."""
    return _tuple_operator(*sparse_tensors, operator=lambda features: torch.cat(features, dim=-1))


def _total(features: list[torch.Tensor]) -> torch.Tensor:
    total = features[0] + features[1]
    for each in features[2:]:
        total = total + each
    return total


def _sum(*sparse_tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """The sum of features [N, C]."""
    return _tuple_operator(*sparse_tensors, operator=_total)


def mean(*sparse_tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """The mean of features [N, C]."""
    return _tuple_operator(*sparse_tensors, operator=lambda features: _total(features) / len(features))


def _variance(features: list[torch.Tensor]) -> torch.Tensor:
    centre = _total(features) / len(features)
    return _total([(each - centre) ** 2 for each in features]) / len(features)


def var(*sparse_tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """The variance of features [N, C] (of the population: divided by the number of tensors)."""
    return _tuple_operator(*sparse_tensors, operator=_variance)


def dense_coordinates(shape: list | torch.Size) -> torch.Tensor:
    """All coordinates of a dense tensor of shape [batches, C, extents...], int32, the last axis fastest."""
    assert len(shape) > 2, f"Invalid shape {tuple(shape)}. Shape must be batch x channel x spatial dimensions."
    axes = [torch.arange(extent, dtype=torch.int32) for extent in (shape[0], *shape[2:])]
    return torch.stack([grid.reshape(-1) for grid in torch.meshgrid(*axes, indexing="ij")], 1)


def to_sparse(
    x: torch.Tensor,
    format: str | None = None,
    coordinates: torch.Tensor | None = None,
    device: torch.device | str | int | None = None,
) -> SparseTensor:
    """The points of a dense tensor where some channel is not zero.

    format: a letter an axis, B (first), C, and X for each spatial axis; BCX...X by default, BXXXC for channels at the
    end. coordinates, int32 [N, 1 + D]: take these points instead. Differentiable.
    """
    assert isinstance(x, torch.Tensor), f"got a {type(x).__name__}, expected a torch.Tensor"
    assert x.ndim > 2, f"Input has 0 spatial dimension, its shape is {tuple(x.shape)}."
    if format is None:
        format = "BC" + "X" * (x.ndim - 2)
    assert x.ndim == len(format), f"Invalid format: {format}. len(format) != {x.ndim}, the input's dimensions"
    assert format[0] == "B" and format.count("B") == 1, (
        f"The input must have the batch axis first and the format one 'B' for it, got {format}"
    )
    assert format.count("C") == 1, f"The format must have one 'C' for the channel axis, got {format}"
    assert set(format) <= set("BCX"), f"Invalid format: {format}, expected letters B, C and X"
    rows = x.movedim(format.find("C"), -1)
    if coordinates is None:
        coordinates = torch.nonzero((rows.detach() != 0).any(-1)).int()
    index = coordinates.long().to(x.device).unbind(1)
    return SparseTensor(rows[index], coordinates.int().to(x.device), device=x.device if device is None else device)


def to_sparse_all(dense_tensor: torch.Tensor, coordinates: torch.Tensor | None = None) -> SparseTensor:
    """All points of a dense tensor [batches, C, extents...]; coordinates, where they are given, are those of
    dense_coordinates(dense_tensor.shape). Differentiable."""
    assert dense_tensor.ndim > 2, (
        f"Invalid shape {tuple(dense_tensor.shape)}. Shape must be batch x channel x spatial dimensions."
    )
    if coordinates is None:
        coordinates = dense_coordinates(dense_tensor.shape)
    features = dense_tensor.movedim(1, -1).reshape(-1, dense_tensor.size(1))
    return SparseTensor(features, coordinates.to(dense_tensor.device), device=dense_tensor.device)


class MinkowskiToSparseTensor(MinkowskiModuleBase):
    """A dense tensor [batches, C, extents...] or a field as a sparse tensor. Of a dense one: the points given as
    `coordinates` (dense_coordinates(shape), made once), or else those where some channel is not zero, or with
    remove_zeros=False all."""

    def __init__(self, remove_zeros: bool = True, coordinates: torch.Tensor | None = None) -> None:
        super().__init__()
        self.remove_zeros = remove_zeros
        self.coordinates = coordinates

    def forward(self, input: TensorField | torch.Tensor) -> SparseTensor:
        if isinstance(input, TensorField):
            return input.sparse()
        if not isinstance(input, torch.Tensor):
            raise ValueError(
                f"Unsupported type {type(input).__name__}. Only TensorField and torch.Tensor are supported"
            )
        if self.coordinates is not None:
            return to_sparse(input, coordinates=self.coordinates)
        return to_sparse(input) if self.remove_zeros else to_sparse_all(input)

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"


class MinkowskiToDenseTensor(MinkowskiModuleBase):
    """A sparse tensor as a dense one, [batches, C, extents...], of `shape` where it is given."""

    def __init__(self, shape: torch.Size | None = None) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, input: SparseTensor) -> torch.Tensor:
        return input.dense(shape=self.shape)[0]

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"


class MinkowskiToFeature(MinkowskiModuleBase):
    """The features of a sparse tensor or a field."""

    def forward(self, x: SparseTensor) -> torch.Tensor:
        assert isinstance(x, (SparseTensor, TensorField)), f"Invalid input type {type(x).__name__}"
        return x.F


class MinkowskiStackCat(torch.nn.Sequential):
    """cat() of what each module makes of the input."""

    def forward(self, x: Any) -> Tensor:
        return cat([module(x) for module in self])


class MinkowskiStackSum(torch.nn.Sequential):
    """sum() of what each module makes of the input."""

    def forward(self, x: Any) -> Tensor:
        return _sum([module(x) for module in self])


class MinkowskiStackMean(torch.nn.Sequential):
    """mean() of what each module makes of the input."""

    def forward(self, x: Any) -> Tensor:
        return mean([module(x) for module in self])


class MinkowskiStackVar(torch.nn.Sequential):
    """var() of what each module makes of the input."""

    def forward(self, x: Any) -> Tensor:
        return var([module(x) for module in self])
