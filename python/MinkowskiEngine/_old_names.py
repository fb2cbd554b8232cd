# SPDX-License-Identifier: Apache-2.0
"""The names of earlier versions, 0.3 to 0.5.3: each still works, with a DeprecationWarning that gives today's name."""
from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any, Callable, TypeVar, cast

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])

KEYWORDS = {
    "feats": "features",
    "coords": "coordinates",
    "coords_key": "coordinate_map_key",
    "coords_manager": "coordinate_manager",
    "has_bias": "bias",
    "generate_new_coords": "expand_coordinates",
}
"""Arguments by keyword, and what they are called today."""

CLASSES = {"MinkowskiSynchBatchNorm": "MinkowskiSyncBatchNorm"}
"""Names of the package, and what they are called today."""


def warn(text: str, caller: int = 3) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=caller)


def takes_old_names(*dropped: str) -> Callable[[AnyCallable], AnyCallable]:
    """Lets a function take its arguments by the old keywords too. `dropped` are keywords that it does not need any
    more: their values are not used."""

    def decorated(function: AnyCallable) -> AnyCallable:
        parameters = inspect.signature(function).parameters
        renamed = {old: new for old, new in KEYWORDS.items() if new in parameters and old not in parameters}
        old_names = {*renamed, *dropped}
        owner = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for old in old_names & kwargs.keys():
                value = kwargs.pop(old)
                if old in dropped:
                    warn(f"{owner}() needs no `{old}` any more: leave it out")
                    continue
                new = renamed[old]
                if new in kwargs:
                    raise TypeError(f"{owner}() got both `{old}` and `{new}`, expected `{new}` alone")
                warn(f"`{old}` of {owner}() is called `{new}` now")
                kwargs[new] = value
            return function(*args, **kwargs)

        return cast(AnyCallable, call)

    return decorated


def old_attribute(old: str, new: str) -> Any:
    """A property under its old name."""

    def value_of(self: Any) -> Any:
        warn(f"`{old}` of {type(self).__name__} is called `{new}` now")
        return getattr(self, new)

    return property(value_of, doc=f"The old name of `{new}`.")
