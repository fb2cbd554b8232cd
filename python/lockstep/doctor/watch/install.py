# SPDX-License-Identifier: Apache-2.0
"""Puts every observer into torch. What torch lacks is left out."""
from __future__ import annotations

from . import collectives, data, fetches, figures, gradients, modules, optimizers, state, wrappers

OBSERVERS = (collectives, wrappers, data, fetches, modules, gradients, optimizers, figures)


def install() -> None:
    for observer in OBSERVERS:
        try:
            observer.install()
        except Exception as error:
            state.log.add("broken", observer=observer.__name__.rsplit(".", 1)[-1], error=f"{type(error).__name__}: {error}")
