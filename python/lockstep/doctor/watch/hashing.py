# SPDX-License-Identifier: Apache-2.0
"""Hashes and projections of what the program computes: equal bits give equal hashes on all ranks.

Large tensors are sampled, always at the same elements. All of it works on the program's tensors without keeping them.
"""
from __future__ import annotations

import dataclasses
import weakref
import zlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

SAMPLE = 1024  # elements of a weight, or of an example, that are looked at
ROWS = 256  # examples of a batch whose hashes are kept

_factors: Dict[Tuple[int, torch.device], torch.Tensor] = {}
_signs: Dict[int, Any] = {}


def _numpy() -> Any:
    import numpy

    return numpy


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """At most SAMPLE elements, evenly spaced, as one dimension. It may be a view."""
    flat = tensor.detach().reshape(-1)
    size = flat.numel()
    return flat if size <= SAMPLE else flat[:: -(-size // SAMPLE)]


def to_arrays(tensors: Sequence[torch.Tensor]) -> List[Any]:
    """The samples of tensors as arrays of numpy: one transfer a device."""
    parts = [sample(each) for each in tensors]
    if any(part.device.type != "cpu" for part in parts):
        by_kind: Dict[Tuple[torch.device, torch.dtype], List[int]] = {}
        for number, part in enumerate(parts):
            by_kind.setdefault((part.device, part.dtype), []).append(number)
        for numbers in by_kind.values():
            joined = torch.cat([parts[n] for n in numbers]).cpu()
            for n, piece in zip(numbers, joined.split([parts[n].numel() for n in numbers])):
                parts[n] = piece
    return [as_array(part) for part in parts]


def as_array(part: torch.Tensor) -> Any:
    if part.dtype in (torch.bfloat16,):
        part = part.view(torch.int16)
    return part.resolve_conj().numpy() if part.is_complex() else part.numpy()


def crc(array: Any) -> int:
    return zlib.crc32(array.tobytes())


def project(array: Any) -> Tuple[float, float]:
    """A fixed linear function of a sample, and the sample's norm. The mean's projection is the mean of projections."""
    numpy = _numpy()
    signs = _signs.get(array.size)
    if signs is None:
        signs = _signs[array.size] = numpy.random.RandomState(12345).uniform(-1, 1, array.size)
    wide = array.astype(numpy.float64, copy=False).reshape(-1)
    return float(wide @ signs), float(numpy.sqrt(wide @ wide))


def tensors_in(data: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    if isinstance(data, torch.Tensor):
        yield data
    elif depth > 4:
        return
    elif isinstance(data, dict):
        for value in data.values():
            yield from tensors_in(value, depth + 1)
    elif isinstance(data, (list, tuple)):
        for value in data[:64]:
            yield from tensors_in(value, depth + 1)
    elif type(data).__module__ == "numpy" and type(data).__name__ == "ndarray" and data.dtype.kind in "fiub":
        yield torch.from_numpy(data)
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        for field in dataclasses.fields(data):
            yield from tensors_in(getattr(data, field.name), depth + 1)


def _factor(size: int, device: torch.device) -> torch.Tensor:
    key = (size, device)
    if key not in _factors:
        numpy = _numpy()
        drawn = numpy.random.RandomState(size).randint(1, 2**62, size=size, dtype=numpy.int64)
        _factors[key] = torch.from_numpy(drawn | 1).to(device)
    return _factors[key]


_last: List[Tuple[Any, int, torch.Tensor]] = []  # tensors, weakly, their versions, and the hashes of their rows
KEPT = 6


def _leaf_rows(leaf: torch.Tensor) -> torch.Tensor:
    """[N] int64: a hash of each row. What a loader hands out goes into the model next, so the last ones are kept."""
    for reference, version, hashes in _last:
        if reference() is leaf and version == leaf._version:
            return hashes
    found = _hash_rows(leaf)
    if not leaf.is_inference():
        _last.append((weakref.ref(leaf), leaf._version, found))
        del _last[:-KEPT]
    return found


def _hash_rows(leaf: torch.Tensor) -> torch.Tensor:
    rows = leaf.detach().reshape(leaf.size(0), -1)
    if rows.size(1) > SAMPLE:
        rows = rows[:, :: -(-rows.size(1) // SAMPLE)]
    if rows.dtype == torch.bool:
        rows = rows.to(torch.uint8)
    rows = rows.contiguous()
    size = rows.element_size()
    if rows.size(1) * size % 8 == 0:  # eight bytes at a time
        wide = rows.view(torch.int64) if rows.storage_offset() * size % 8 == 0 else rows.clone().view(torch.int64)
    else:
        wide = rows.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]).to(torch.int64)
    mixed = wide * _factor(wide.size(1), wide.device)
    mixed ^= mixed >> 29
    return (mixed.sum(1) * 0x1F3D5B79A7C9E2B1) ^ wide.size(1)


def row_hashes(batch: Any) -> Tuple[int, str]:
    """How many examples a batch has (-1 where it has no tensors), and their hashes, 16 hexadecimal digits each: of a large
    batch those whose hash ends in zeros, so that equal examples are kept or left out on all ranks alike."""
    leaves = [leaf for leaf in tensors_in(batch) if leaf.dim() > 0 and leaf.layout == torch.strided]
    leaves = [leaf for leaf in leaves if leaf.numel() and not leaf.is_complex() and leaf.device.type != "meta"][:6]
    if not leaves:
        return -1, ""
    with torch.no_grad():
        rows = leaves[0].size(0)
        joined: Optional[torch.Tensor] = None
        for number, leaf in enumerate(each for each in leaves if each.size(0) == rows):
            own = _leaf_rows(leaf) * (2 * number + 3)
            joined = own if joined is None else joined + own.to(joined.device)
        assert joined is not None
        hashes = (joined & 0xFFFFFFFFFFFF).cpu()
        divisor = 1
        while rows // divisor > ROWS:
            divisor *= 2
        kept = hashes if divisor == 1 else hashes[(hashes >> 8) % divisor == 0]
    return rows, kept.numpy().tobytes().hex()
