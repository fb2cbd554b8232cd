# SPDX-License-Identifier: Apache-2.0
"""Batch norm over all replicas, threads of this process or processes of a group, on any device.

Each replica sends the moments of its share (count, mean, squared deviations of each channel, in float64); everybody
merges all of them in the canonical tree's order, so all replicas hold the same bits. Shares may differ in size and be
empty.
"""
from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm

from . import _C, groups
from .peers import current_peers

_ops = torch.ops.lockstep_sparse


def replace_modules(
    module: torch.nn.Module,
    is_one: Callable[[torch.nn.Module], bool],
    new_of: Callable[[Any], torch.nn.Module],
    done: Optional[Dict[torch.nn.Module, torch.nn.Module]] = None,
) -> torch.nn.Module:
    """The module with each one in it replaced; what has several names is replaced once, under all of them."""
    done = {} if done is None else done
    if module not in done:
        done[module] = new_of(module) if is_one(module) else module
        if done[module] is module:
            for name, child in list(module._modules.items()):
                if child is not None:
                    module._modules[name] = replace_modules(child, is_one, new_of, done)
    return done[module]


def _gather_rows(mine: torch.Tensor, group: Optional[dist.ProcessGroup], counts: Optional[List[int]]) -> torch.Tensor:
    """The rows of all processes, one process after the other. `counts`: how many each has; None where there is no
    group."""
    if counts is None:
        return mine
    padded = mine.new_zeros((max(counts), *mine.shape[1:]))
    padded[: len(mine)] = mine
    parts = groups.gather_parts(padded, group)
    return torch.cat([part[:count] for part, count in zip(parts, counts)])


def _counts(replicas: int, group: Optional[dist.ProcessGroup], device: torch.device) -> Optional[List[int]]:
    """How many replicas each process of the group runs."""
    if group is None or dist.get_world_size(group) == 1:
        return None
    mine = torch.tensor([replicas], device=device)
    return [int(count) for count in groups.gather_parts(mine, group)]


class _JointBatchNorm(torch.autograd.Function):
    """The batch norms of this process's replicas as one node: x_0, ..., weight_0, ..., bias_0, ... -> y_0, ..."""

    @staticmethod
    def forward(
        ctx: Any,
        group: Optional[dist.ProcessGroup],
        moved: Any,
        momentum: float,
        eps: float,
        replicas: int,
        *tensors: torch.Tensor,
    ) -> Tuple[torch.Tensor, ...]:
        xs, weights = tensors[:replicas], tensors[replicas : 2 * replicas]
        biases = tensors[2 * replicas :]
        device = xs[0].device
        ctx.group, ctx.replicas = group, replicas
        ctx.counts = _counts(replicas, group, device)
        moments = torch.stack([_ops.column_moments(x).to(device) for x in xs])
        merged = _C.merge_moments(_gather_rows(moments, group, ctx.counts))
        ctx.count = merged[0].clamp(min=1)
        inverse = torch.rsqrt(merged[2] / ctx.count + eps)
        for mean, variance in moved:
            _C.move_running_statistics(mean, variance, merged.to(mean.device), momentum)
        ctx.save_for_backward(merged[1], inverse, *xs, *weights)
        return tuple(
            _ops.normalize(x, merged[1].to(x.device), inverse.to(x.device), weight, bias)
            for x, weight, bias in zip(xs, weights, biases)
        )

    @staticmethod
    def backward(ctx: Any, *grads: Optional[torch.Tensor]) -> tuple:
        mean, inverse, *rest = ctx.saved_tensors
        xs, weights = rest[: ctx.replicas], rest[ctx.replicas :]
        dys = [torch.zeros_like(x) if g is None else g.contiguous() for g, x in zip(grads, xs)]
        at = [(mean.to(x.device), inverse.to(x.device)) for x in xs]
        own = [_ops.normalize_sums(dy, x, *where) for dy, x, where in zip(dys, xs, at)]
        gathered = _gather_rows(torch.stack([sums.to(mean.device) for sums in own]), ctx.group, ctx.counts)
        means = _C.sum_as_tree(gathered) / ctx.count
        dxs = [
            _ops.normalize_gradient(dy, x, *where, weight.double() * where[1], means.to(x.device))
            for dy, x, weight, where in zip(dys, xs, weights, at)
        ]
        dweights = [sums[1].to(weight.dtype) for sums, weight in zip(own, weights)]
        dbiases = [sums[0].to(weight.dtype) for sums, weight in zip(own, weights)]
        return (None, None, None, None, None, *dxs, *dweights, *dbiases)


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d and 3d in one, [N, C] or [N, C, ...], with the statistics of all replicas in training.

    Replicas are the processes of `process_group` (the whole world by default), the threads of
    lockstep.parallel.parallel_apply, or both. It works on a CPU with Gloo; N may differ between replicas and be 0. All
    replicas end with the same running statistics. Without a process group and threads it is an ordinary batch norm.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Optional[dist.ProcessGroup] = None,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_group = process_group

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2 or input.size(1) != self.num_features:
            raise ValueError(f"the input is {tuple(input.shape)}, expected [N, {self.num_features}, ...]")

    def take_over(self, other: _BatchNorm) -> None:
        """The parameters and buffers of another batch norm, the same objects."""
        self.weight, self.bias = other.weight, other.bias
        self.running_mean, self.running_var = other.running_mean, other.running_var
        self.num_batches_tracked = other.num_batches_tracked
        self.training = other.training

    def _momentum(self) -> float:
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if self.momentum is not None:
            return self.momentum
        return 1.0 / float(self.num_batches_tracked) if self.num_batches_tracked is not None else 0.0

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        rows = input if input.dim() == 2 else input.movedim(1, -1).reshape(-1, self.num_features)
        if self.training or self.running_mean is None:
            normal = self._train(rows)
        else:
            mean, variance = self.running_mean, self.running_var
            normal = _C.batch_norm(rows, self.weight, self.bias, mean, variance, False, 0.0, self.eps)
        if input.dim() == 2:
            return normal
        return normal.view(input.size(0), *input.shape[2:], self.num_features).movedim(-1, 1)

    def _train(self, x: torch.Tensor) -> torch.Tensor:
        momentum = self._momentum() if self.training else 0.0
        dtype = x.dtype if self.weight is None else self.weight.dtype
        weight = torch.ones(x.size(1), dtype=dtype, device=x.device) if self.weight is None else self.weight
        bias = torch.zeros(x.size(1), dtype=dtype, device=x.device) if self.bias is None else self.bias
        statistics = (self.running_mean, self.running_var) if self.training else (None, None)
        group = self._group()

        def joint(brought: Sequence[tuple]) -> Sequence[torch.Tensor]:
            xs, weights, biases, all_statistics = zip(*brought)
            # Replicas on one device may hold the same buffers.
            moved = {mean.data_ptr(): (mean, variance) for mean, variance in all_statistics if mean is not None}
            return _JointBatchNorm.apply(
                group, list(moved.values()), momentum, self.eps, len(xs), *xs, *weights, *biases
            )

        mine, peers = (x, weight, bias, statistics), current_peers()
        return joint([mine])[0] if peers is None else peers.meet(mine, joint)

    def _group(self) -> Optional[dist.ProcessGroup]:
        """The process group to synchronise over; None where there is none."""
        if not (dist.is_available() and dist.is_initialized()):
            return None
        return self.process_group if self.process_group is not None else dist.group.WORLD

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_group: Optional[dist.ProcessGroup] = None
    ) -> torch.nn.Module:
        """The module with each batch norm of torch in it replaced by this one, which takes over its parameters and
        buffers, the same objects. A layer under several names stays one."""

        def converted(norm: Any) -> torch.nn.Module:
            arguments = (norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
            new = cls(norm.num_features, *arguments, process_group)
            new.take_over(norm)
            return new

        return replace_modules(module, lambda each: isinstance(each, _BatchNorm) and not isinstance(each, cls), converted)

    def __deepcopy__(self, memo: dict) -> Any:
        """Process groups are not copied."""
        copied = self.__class__.__new__(self.__class__)
        memo[id(self)] = copied
        for name, value in self.__dict__.items():
            copied.__dict__[name] = value if name == "process_group" else copy.deepcopy(value, memo)
        return copied

    def __getstate__(self) -> dict:
        return {**self.__dict__, "process_group": None}
