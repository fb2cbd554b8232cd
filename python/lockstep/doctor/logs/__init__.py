# SPDX-License-Identifier: Apache-2.0
"""What the processes of a run wrote, by rank."""
from .run import Loader, Pass, Rank, Run, Step, read

__all__ = ["Loader", "Pass", "Rank", "Run", "Step", "read"]
