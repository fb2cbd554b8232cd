# SPDX-License-Identifier: Apache-2.0
"""What two runs of one program tell that one does not: with the same seed (--runs), on other numbers of ranks (--ranks)."""
from . import ranks, runs

__all__ = ["ranks", "runs"]
