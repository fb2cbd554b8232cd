# SPDX-License-Identifier: Apache-2.0
"""What a rule hands back."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Sequence

SEVERITIES = ("error", "warning", "note")


@dataclasses.dataclass
class Finding:
    """One thing that is wrong, or worth a note.

    summary is one sentence; rests_on is empty where the evidence alone proves it; fix has at most five lines.
    """

    code: str
    severity: str
    summary: str
    evidence: List[str] = dataclasses.field(default_factory=list)
    ranks: Sequence[int] = ()
    where: str = ""
    cost: str = ""
    fix: str = ""
    rests_on: str = ""

    def as_json(self) -> Dict[str, Any]:
        made = dataclasses.asdict(self)
        made["ranks"] = list(self.ranks)
        return made


def in_order(findings: Sequence[Finding]) -> List[Finding]:
    """Errors first; the same thing said twice is said once."""
    seen, kept = set(), []
    for each in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        key = (each.code, each.summary)
        if key not in seen:
            seen.add(key)
            kept.append(each)
    return kept


def is_bad(findings: Sequence[Finding]) -> bool:
    return any(each.severity != "note" for each in findings)
