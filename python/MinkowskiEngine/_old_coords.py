# SPDX-License-Identifier: Apache-2.0
"""The methods that CoordinateManager had as CoordsManager, before version 0.5."""
from __future__ import annotations

from typing import Any, List, Set, Tuple

import torch

from ._old_names import warn


class OldMethods:
    """Each does what today's method does, with a DeprecationWarning that names it. Maps are of int64."""

    def get_coords(self: Any, coords_key_or_tensor_strides: Any) -> torch.Tensor:
        """Now get_coordinates."""
        warn("`get_coords` of CoordinateManager is called `get_coordinates` now")
        return self.get_coordinates(coords_key_or_tensor_strides)

    def get_coords_key(self: Any, tensor_strides: Any) -> Any:
        """The key of the first map with this tensor stride; now a tensor's `coordinate_map_key` says its own."""
        warn("`get_coords_key` of CoordinateManager is gone: take a tensor's `coordinate_map_key`")
        return self._get_coordinate_map_key(tensor_strides)

    def create_coords_key(self: Any, coords: torch.Tensor, tensor_stride: Any = 1, **_: Any) -> Any:
        """Now insert_and_map, which also tells which row became which. Coordinates are always new, and equal ones one."""
        warn("`create_coords_key` of CoordinateManager is called `insert_and_map` now, which returns more")
        return self.insert_and_map(coords, tensor_stride)[0]

    def get_coords_size_by_coords_key(self: Any, coords_key: Any) -> int:
        """Now size."""
        warn("`get_coords_size_by_coords_key` of CoordinateManager is called `size` now")
        return self.size(coords_key)

    def get_batch_size(self: Any) -> int:
        """Now number_of_unique_batch_indices."""
        warn("`get_batch_size` of CoordinateManager is called `number_of_unique_batch_indices` now")
        return self.number_of_unique_batch_indices()

    def get_batch_indices(self: Any) -> Set[int]:
        """Now the coordinates of origin()."""
        warn("`get_batch_indices` of CoordinateManager is gone: take `get_coordinates(origin())[:, 0]`")
        return set(self.get_coordinates(self.origin())[:, 0].tolist())

    def get_row_indices_per_batch(self: Any, coords_key: Any, out_coords_key: Any = None) -> List[torch.Tensor]:
        """Now origin_map."""
        warn("`get_row_indices_per_batch` of CoordinateManager is called `origin_map` now, which returns more")
        return self.origin_map(coords_key)[1]

    def get_coords_map(self: Any, in_key_or_tensor_strides: Any,
                       out_key_or_tensor_strides: Any) -> Tuple[torch.Tensor, torch.Tensor]:
        """Now stride_map, of keys."""
        warn("`get_coords_map` of CoordinateManager is called `stride_map` now, which takes keys")
        keys = map(self._get_coordinate_map_key, (in_key_or_tensor_strides, out_key_or_tensor_strides))
        return self.stride_map(*keys)

    def get_union_map(self: Any, in_keys: list, out_key: Any) -> List[torch.Tensor]:
        """Now union_map."""
        warn("`get_union_map` of CoordinateManager is called `union_map` now")
        return self.union_map(in_keys, out_key)

    def reduce(self: Any) -> Any:
        """Now origin."""
        warn("`reduce` of CoordinateManager is called `origin` now")
        return self.origin()
