# SPDX-License-Identifier: Apache-2.0
"""A table of a network's layers."""
from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch.nn as nn

from ..MinkowskiSparseTensor import SparseTensor

_MEBIBYTE = 1024.0**2


def summary(model: nn.Module, summary_input: SparseTensor) -> tuple[int, int]:
    """Runs the model on an input, prints a line for each layer (output shape, parameters), and returns (parameters,
    trainable parameters)."""
    text, counts = minkowski_summary_string(model, summary_input)
    print(text)
    return counts


def _shape(output: Any) -> list:
    if isinstance(output, (list, tuple)):
        return [list(each.shape) for each in output]
    return list(output.shape)


def _elements(shape: list) -> int:
    if shape and isinstance(shape[0], list):
        return sum(_elements(each) for each in shape)
    product = 1
    for extent in shape:
        product *= extent
    return product


def _run_with_hooks(model: nn.Module, summary_input: SparseTensor) -> list[tuple]:
    """[(name, output shape, parameters, trainable ones)] in the order of the layers' calls."""
    rows: list[tuple] = []
    hooks = []
    counted: set[int] = set()

    def hook(module: nn.Module, _: Any, output: Any) -> None:
        if not (hasattr(output, "shape") or isinstance(output, (list, tuple))):
            return
        own = [each for each in module.parameters(recurse=False) if id(each) not in counted]
        counted.update(id(each) for each in own)
        rows.append(
            (
                f"{type(module).__name__}-{len(rows) + 1}",
                _shape(output),
                sum(each.numel() for each in own),
                sum(each.numel() for each in own if each.requires_grad),
            )
        )

    for module in model.modules():
        if not isinstance(module, (nn.Sequential, nn.ModuleList)):
            hooks.append(module.register_forward_hook(hook))
    try:
        model(summary_input)
    finally:
        for each in hooks:
            each.remove()
    return rows


def minkowski_summary_string(model: nn.Module, summary_input: SparseTensor) -> tuple[str, tuple[int, int]]:
    """(the table, (parameters, trainable parameters))."""
    rows = _run_with_hooks(model, summary_input)
    total = sum(row[2] for row in rows)
    trainable = sum(row[3] for row in rows)
    points, channels = summary_input.shape
    sizes = OrderedDict()
    sizes["Input size (MB)"] = (points * channels + points * (1 + summary_input.D)) * 4 / _MEBIBYTE
    sizes["Forward/backward pass size (MB)"] = 2 * sum(_elements(row[1]) for row in rows) * 4 / _MEBIBYTE
    sizes["Params size (MB)"] = total * 4 / _MEBIBYTE
    line, double_line = "-" * 64, "=" * 64
    lines = [line, f"{'Layer (type)':>20}  {'Output Shape':>25} {'Param #':>15}", double_line]
    lines += [f"{name:>20}  {str(shape):>25} {count:>15,}" for name, shape, count, _ in rows]
    lines += [double_line, f"Total params: {total:,}", f"Trainable params: {trainable:,}"]
    lines += [f"Non-trainable params: {total - trainable:,}", line]
    lines += [f"{name}: {size:.2f}" for name, size in sizes.items()]
    lines += [f"Estimated Total Size (MB): {sum(sizes.values()):.2f}", line]
    return "\n".join(lines) + "\n", (total, trainable)
