# SPDX-License-Identifier: Apache-2.0
"""The program's source, where a rule needs a word of it."""
from __future__ import annotations

import ast
import functools
import os
import re
from typing import Iterator, List, Optional, Sequence, Tuple


def split(where: str) -> Tuple[str, int]:
    path, _, number = where.rpartition(":")
    return path, int(number) if number.isdigit() else 0


@functools.lru_cache(maxsize=64)
def lines(path: str) -> Tuple[str, ...]:
    try:
        with open(path, errors="replace") as file:
            return tuple(file.read().splitlines())
    except OSError:
        return ()


def line(where: str) -> str:
    path, number = split(where)
    text = lines(path)
    return text[number - 1] if 0 < number <= len(text) else ""


def short(places: Sequence[str]) -> str:
    """file:line of the innermost place."""
    return os.path.basename(places[0]) if places and places[0] else "a library"


@functools.lru_cache(maxsize=64)
def _tree(path: str) -> Optional[ast.AST]:
    try:
        return ast.parse("\n".join(lines(path)))
    except SyntaxError:
        return None


def function(where: str) -> Optional[ast.AST]:
    """The innermost function around a line, or the file."""
    path, number = split(where)
    tree = _tree(path)
    best: Optional[ast.AST] = tree
    for each in ast.walk(tree) if tree is not None else ():
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.lineno <= number <= (each.end_lineno or 0):
            if not isinstance(best, (ast.FunctionDef, ast.AsyncFunctionDef)) or each.lineno > best.lineno:
                best = each
    return best


def line_with(where: str, pattern: "re.Pattern[str]") -> str:
    """file:line of the first comparison in the function around a place that has a word."""
    path, _ = split(where)
    tree = function(where)
    for each in ast.walk(tree) if tree is not None else ():
        if isinstance(each, (ast.If, ast.While, ast.IfExp)):
            number = each.test.lineno
            if pattern.search(line(f"{path}:{number}")):
                return f"{os.path.basename(path)}:{number}"
    return ""


def names_behind(where: str) -> List[str]:
    """The names of what a call on a line is given, and of what these were made from, one assignment back."""
    tree, (_, number) = function(where), split(where)
    if tree is None:
        return []
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and each.lineno <= number <= (each.end_lineno or 0)]
    found = [name for call in calls for given in [*call.args, *(k.value for k in call.keywords)] for name in _names(given)]
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign) and each.lineno < number and set(found) & {n for t in each.targets for n in _names(t)}:
            found += _names(each.value)
    return list(dict.fromkeys(found))


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
