# SPDX-License-Identifier: Apache-2.0
"""Data for sparse tensors, initialisation, gradient checks, summaries."""
from .collation import SparseCollation, batch_sparse_collate, batched_coordinates, sparse_collate
from .gradcheck import gradcheck
from .init import kaiming_normal_
from .quantization import fnv_hash_vec, ravel_hash_vec, sparse_quantize, unique_coordinate_map
from .summary import summary

__all__ = [
    "SparseCollation",
    "batch_sparse_collate",
    "batched_coordinates",
    "fnv_hash_vec",
    "gradcheck",
    "kaiming_normal_",
    "ravel_hash_vec",
    "sparse_collate",
    "sparse_quantize",
    "summary",
    "unique_coordinate_map",
]
