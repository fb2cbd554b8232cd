# SPDX-License-Identifier: Apache-2.0
"""Normalisation layers."""
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep import _C
from lockstep._C import CoordinateMapKey
from lockstep.sync_batch_norm import SyncBatchNorm, replace_modules

from ._enums import PoolingMode
from ._old_names import takes_old_names
from .MinkowskiBroadcast import MinkowskiBroadcastAddition, MinkowskiBroadcastMultiplication
from .MinkowskiCommon import EngineFunction, MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager, engine_manager
from .MinkowskiPooling import MinkowskiGlobalAvgPooling
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import AnyTensor


class _BatchNorm1d(nn.BatchNorm1d):
    """torch's batch norm, computed by the engine: sums in float64, the same bits for any number of threads."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        training = self.training or self.running_mean is None
        if training and len(input) == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.size()}")
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        update = not self.training or self.track_running_stats
        mean, variance = (self.running_mean, self.running_var) if update else (None, None)
        return _C.batch_norm(input, self.weight, self.bias, mean, variance, training, momentum, self.eps)


class MinkowskiBatchNorm(Module):
    """Batch norm of features [N, C] over all points, as `bn`; arguments are those of torch.nn.BatchNorm1d."""

    bn: _BatchNorm

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self.bn = _BatchNorm1d(
            num_features, eps=eps, momentum=momentum, affine=affine, track_running_stats=track_running_stats
        )

    def forward(self, input: AnyTensor) -> AnyTensor:
        return input._like(self.bn(input.F))

    def __repr__(self) -> str:
        bn = self.bn
        return (
            f"{self.__class__.__name__}({bn.num_features}, eps={bn.eps}, momentum={bn.momentum}, affine={bn.affine}, "
            f"track_running_stats={bn.track_running_stats})"
        )


class MinkowskiSyncBatchNorm(MinkowskiBatchNorm):
    """Batch norm whose statistics are those of all replicas' points together: of the processes of a group
    (torch.distributed with any backend), or of the threads of lockstep.parallel.parallel_apply. A replica without points
    takes part. Elsewhere it is an ordinary batch norm."""

    bn: SyncBatchNorm

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        Module.__init__(self)
        self.bn = SyncBatchNorm(
            num_features,
            eps=eps,
            momentum=momentum,
            affine=affine,
            track_running_stats=track_running_stats,
            process_group=process_group,
        )

    def forward(self, input: AnyTensor) -> AnyTensor:
        return input._like(self.bn(input.F))

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, process_group: dist.ProcessGroup | None = None) -> nn.Module:
        """The module with each MinkowskiBatchNorm in it replaced by a synchronised one, which takes over its parameters
        and buffers, the same objects. A layer under several names stays one."""

        def converted(norm: Any) -> nn.Module:
            bn = norm.bn
            new = cls(bn.num_features, bn.eps, bn.momentum, bn.affine, bn.track_running_stats, process_group)
            new.bn.take_over(bn)
            new.train(norm.training)
            return new

        def is_local(each: nn.Module) -> bool:
            return isinstance(each, MinkowskiBatchNorm) and not isinstance(each, MinkowskiSyncBatchNorm)

        return replace_modules(module, is_local, converted)


class MinkowskiInstanceNormFunction(EngineFunction):
    """Each batch entry's channels to mean 0 and variance 1."""

    @staticmethod
    def forward(
        ctx: Any,
        in_feat: torch.Tensor,
        in_coords_key: CoordinateMapKey,
        glob_coords_key: CoordinateMapKey | None = None,
        coords_manager: CoordinateManager | None = None,
        gpooling_mode: PoolingMode = PoolingMode.GLOBAL_AVG_POOLING_KERNEL,
    ) -> torch.Tensor:
        return _C.instance_norm(in_feat, engine_manager(coords_manager), in_coords_key, None, None, 1e-8)


class MinkowskiStableInstanceNorm(MinkowskiModuleBase):
    """Instance norm put together of poolings and broadcasts: `weight` and `bias` [1, C]."""

    @takes_old_names("dimension")
    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = 1e-6
        self.weight = nn.Parameter(torch.ones(1, num_features))
        self.bias = nn.Parameter(torch.zeros(1, num_features))
        self.mean_in = MinkowskiGlobalAvgPooling()
        self.glob_sum = MinkowskiBroadcastAddition()
        self.glob_sum2 = MinkowskiBroadcastAddition()
        self.glob_mean = MinkowskiGlobalAvgPooling()
        self.glob_times = MinkowskiBroadcastMultiplication()
        self.reset_parameters()

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(nchannels={self.num_features})"

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: SparseTensor) -> SparseTensor:
        minus_mean = self.mean_in(-x)
        variance = self.glob_mean(self.glob_sum(x, minus_mean) ** 2)
        inverse_deviation = variance._like((variance.F + self.eps).rsqrt())
        normal = self.glob_times(self.glob_sum2(x, minus_mean), inverse_deviation)
        return x._like(normal.F * self.weight + self.bias)


class MinkowskiInstanceNorm(MinkowskiModuleBase):
    """Each batch entry's channels to mean 0 and variance 1, times `weight`, plus `bias`, [1, C] each."""

    @takes_old_names("dimension")
    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.weight = nn.Parameter(torch.ones(1, num_features))
        self.bias = nn.Parameter(torch.zeros(1, num_features))
        self.reset_parameters()

    @property
    def inst_norm(self) -> EngineFunction:
        """The function of this layer."""
        return MinkowskiInstanceNormFunction()

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(nchannels={self.num_features})"

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: SparseTensor) -> SparseTensor:
        assert isinstance(input, SparseTensor), f"input is a {type(input).__name__}, expected a SparseTensor"
        normal = MinkowskiInstanceNormFunction.apply(input.F, input.coordinate_map_key, None, input._manager)
        return input._like(normal * self.weight + self.bias)
