# SPDX-License-Identifier: Apache-2.0
"""The program's source, where a rule needs a word of it."""
from __future__ import annotations

import ast
import functools
import os
import re
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union


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


def line_in_file(where: str, pattern: "re.Pattern[str]") -> str:
    """file:line of the first line of code, in the file of a place, that has a word; empty where none has."""
    path, _ = split(where)
    for number, text in enumerate(lines(path), 1):
        if pattern.search(text.split("#")[0]) and not text.lstrip().startswith(("import ", "from ", "def ", '"')):
            return f"{path}:{number}"
    return ""


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


_BY_NUMBER = re.compile(r"\bunique\b|setdefault|\bdict\(|\w\[\w+\] = |\.update\(\{|\.update\(dict")


def cut_after(where: str, of_objects: bool) -> str:
    """file:line, in the function around a line and not above it, where a sequence is cut to a length that is not a constant
    (x[:n]); or, of objects that were gathered, where they seem to be kept by number."""
    path, number = split(where)
    tree = function(where)
    for each in ast.walk(tree) if tree is not None else ():
        line_number = getattr(each, "lineno", 0)
        if line_number < number:
            continue
        cut = each.slice if isinstance(each, ast.Subscript) else None
        if isinstance(cut, ast.Slice) and cut.lower is None and cut.upper is not None and not isinstance(cut.upper, ast.Constant):
            return f"{os.path.basename(path)}:{line_number}"
        if of_objects and _BY_NUMBER.search(line(f"{path}:{line_number}")):
            return f"{os.path.basename(path)}:{line_number}"
    return ""


def _calls_on(tree: ast.AST, number: int) -> List[ast.Call]:
    return [each for each in ast.walk(tree) if isinstance(each, ast.Call) and each.lineno <= number <= (each.end_lineno or 0)]


def names_behind(where: str) -> List[str]:
    """The names of what a call on a line is given, and of what these were made from, one assignment back."""
    tree, (_, number) = function(where), split(where)
    if tree is None:
        return []
    found = [name for call in _calls_on(tree, number) for given in [*call.args, *(k.value for k in call.keywords)]
             for name in _names(given)]  # fmt: skip
    return _with_origins(tree, number, found)


def names_behind_argument(where: str, callee: str, keyword: str, position: int) -> Optional[List[str]]:
    """The same of one argument of a call of `callee`; none where the call does not show it (**options, a function that makes
    it)."""
    tree, (path, number) = function(where), split(where)
    if tree is None:
        return None
    for call in _calls_on(tree, number):
        given = [each.value for each in call.keywords if each.arg == keyword]
        if list(_names(call.func))[:1] == [callee]:
            given = given or call.args[position : position + 1]
        if given and not isinstance(given[0], ast.Starred):
            found = _with_origins(tree, number, list(_names(given[0])))
            whole = _tree(path)
            return _with_origins(whole, 10**9, found) if whole is not None else found
    return None


def _with_origins(tree: ast.AST, number: int, found: List[str]) -> List[str]:
    """Names, and those of what they were made from, one assignment back, above a line."""
    last: Dict[str, Union[ast.Assign, ast.AugAssign]] = {}  # of each name, the assignment that is nearest above
    for each in ast.walk(tree):
        if isinstance(each, (ast.Assign, ast.AugAssign)) and each.lineno < number:
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            for name in {n for t in targets for n in _names(t)} & set(found):
                if name not in last or last[name].lineno < each.lineno:
                    last[name] = each
    found = found + [name for each in last.values() for name in _names(each.value)]
    return list(dict.fromkeys(found))


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
