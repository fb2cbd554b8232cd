# SPDX-License-Identifier: Apache-2.0
"""What becomes of a value, as far as one function's source tells: whether a line of it writes what another line made."""
from __future__ import annotations

import ast
import os
from typing import Iterator, Optional, Set

from . import source

_WRITES = {"write", "writelines", "writerow", "dump", "dumps", "set_postfix", "set_description", "log_metrics", "log_metric", "add_scalars",
           "log_dict", "to_csv", "savetxt"}  # fmt: skip
_LOGS = {"wandb", "mlflow", "run", "neptune", "clearml"}  # whose log(...) it is


def _names(node: Optional[ast.AST]) -> Set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node is not None else set()


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Statements without a body of their own, in the order of their lines."""
    found = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and not hasattr(each, "body")]
    return iter(sorted(found, key=lambda each: each.lineno))


def _gives(statement: ast.stmt) -> Set[str]:
    """The names that a statement gives a value, or a further element (history.append(...))."""
    if isinstance(statement, ast.Assign):
        return {name for target in statement.targets for name in _names(target)}
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return _names(statement.target)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "update", "extend", "add"):
        return _names(call.func.value)
    return set()


def _writes(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    of = _names(call.func.value) if isinstance(call.func, ast.Attribute) else set()
    return name in _WRITES or (name == "log" and bool(of & _LOGS))


def _names_rank(tree: ast.AST, statement: ast.stmt) -> bool:
    """Whether the rank is in what is written, or in the name of the file: each rank's own then."""
    names = _names(statement)
    for each in ast.walk(tree):
        if isinstance(each, ast.With) and each.lineno <= statement.lineno <= (each.end_lineno or 0):
            names |= {name for item in each.items for name in _names(item.context_expr)}
    return any("rank" in name.lower() for name in names)


def written_from(where: str) -> str:
    """file:line, in the function around a line, of a call that writes what the line made, or what was made of that; empty
    where there is none."""
    path, number = source.split(where)
    tree = source.function(where)
    made: Set[str] = set()
    for statement in _statements(tree) if tree is not None else ():
        if (statement.end_lineno or 0) < number:
            continue
        calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call) and _writes(each)]
        if any(_names(given) & made for call in calls for given in [*call.args, *(k.value for k in call.keywords)]):
            if not _names_rank(tree, statement):  # type: ignore[arg-type]
                return f"{os.path.basename(path)}:{statement.lineno}"
        if statement.lineno <= number or _names(getattr(statement, "value", None)) & made:
            made |= _gives(statement)
    return ""
