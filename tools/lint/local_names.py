# SPDX-License-Identifier: Apache-2.0
"""Names that a source declares for itself alone, in a namespace without a name, and no neighbour may declare too.

Sources of a target are compiled together, as many as LOCKSTEP_TOGETHER says (lockstep_compile_together). What today's
number keeps apart, another brings together. Functions may share a name where their arguments differ, and aliases that
mean the same.
"""

import collections
import pathlib
import re
from typing import NamedTuple

import files

NOT_CODE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:[^\n]*\\\n)*[^\n]* | R"(\w*)\(.*?\)\1" | "(?:\\.|[^"\\\n])*" | (?<!\w)'(?:\\.|[^'\\\n])'
    | \[\[.*?\]\] | alignas\s*\([^)]*\)""", re.DOTALL | re.MULTILINE | re.VERBOSE)
NAMESPACE = re.compile(r"namespace\s*([\w:]*)\s*$")
TEMPLATE = re.compile(r"template\s*<(?:[^<>]|<[^<>]*>)*>")
ALIAS = re.compile(r"(?:using|namespace)\s+(\w+)\s*=")
TYPE = re.compile(r"(?:class|struct|union|enum(?:\s+class)?)\s+(\w+)[^()=]*$")
ANGLES = re.compile(r"<[^<>]*>")
FUNCTION = re.compile(r"[^(=]*?(?:(?<!:)\b(\w+)|operator\W+|::\w+)\s*\(")
VARIABLE = re.compile(r"\s\W*([A-Za-z]\w*)\s*(?:\[[^\]]*\]\s*)*$")
VALUE = re.compile(r"(?<![=<>!])=(?!=).*", re.DOTALL)
PARAMETER = re.compile(r"\b\w+\s*(?:=[^,)]*)?(?=[,)])")  # its name, and what it is by default
MACRO = re.compile(r"[A-Z_]+$")  # of a test framework, say
COMMAND = re.compile(r"^[ \t]*(\w+)\s*\(([^()]*)\)", re.MULTILINE)


class Name(NamedTuple):
    namespace: str
    name: str
    arguments: str  # empty: no function
    meaning: str = ""  # of an alias


def declared(namespace: str, head: str) -> Name | None:
    """What a declaration declares, told from its text up to a body or a semicolon; None for all that has no name here."""
    head = " ".join(TEMPLATE.sub("", head).split())
    if alias := ALIAS.match(head):
        return Name(namespace, alias.group(1), "", head)
    if head.startswith(("using ", "static_assert", "friend ", "extern ")):
        return None
    if kind := TYPE.match(head):
        return Name(namespace, kind.group(1), "")
    plain = head
    while (shorter := ANGLES.sub("", plain)) != plain:
        plain = shorter
    if function := FUNCTION.match(plain):
        name = function.group(1)
        if not name or MACRO.match(name):
            return None
        return Name(namespace, name, PARAMETER.sub("", re.split(rf"\b{name}\s*(?=\()", head, maxsplit=1)[1]))
    variable = VARIABLE.search(VALUE.sub("", plain))
    return Name(namespace, variable.group(1), "") if variable else None


def names_in(source: str, local: bool) -> dict[Name, int]:
    """All that a source declares in namespaces without a name (local), or in others, and their lines."""
    text = NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), source)
    found: dict[Name, int] = {}
    scopes: list[str | None] = []  # the open namespaces; None: another brace
    start = brackets = 0
    for at, character in enumerate(text):
        brackets += (character in "([") - (character in ")]")
        if brackets or character not in "{};":
            continue
        head = text[start:at]
        namespace = NAMESPACE.search(head) if character == "{" else None
        if character != "}" and not namespace and ("" in scopes) == local and None not in scopes:
            if name := declared("::".join(filter(None, scopes)), head):
                found.setdefault(name, text.count("\n", 0, at - len(head.lstrip())) + 1)
        if character == "{":
            scopes.append(namespace.group(1) if namespace else None)
        elif character == "}" and scopes:
            scopes.pop()
        start = at + 1
    return found


def neighbours(root: pathlib.Path) -> list[set[pathlib.Path]]:
    """Sources that a build may compile together: of a layer, of a test."""
    layers: dict[str, set[pathlib.Path]] = collections.defaultdict(set)
    tests, apart = [], set()
    for path in files.cmake_files(root):
        for command, arguments in COMMAND.findall(path.read_text()):
            named = {path.parent / word for word in arguments.split() if word.endswith(".cpp")}
            if command in ("lockstep_compile_apart", "lockstep_isa_sources"):
                apart |= named
            elif command == "lockstep_test":
                tests.append(named)
    for path in files.cpp_files(root):
        parts = path.relative_to(root).parts
        if parts[0] == "src" and path.suffix == ".cpp":
            layers[parts[1]].add(path)
    return [{path for path in group if path.is_file()} - apart for group in [*layers.values(), *tests]]


def clash(one: Name, other: Name) -> bool:
    if one.arguments and other.arguments:
        return one == other
    return not one.meaning or one != other


def check(root: pathlib.Path) -> list[str]:
    shared: dict[tuple[str, str], list[tuple[Name, str]]] = collections.defaultdict(list)
    for path in files.cpp_files(root):
        if path.suffix == ".h" and path.relative_to(root).parts[0] in ("include", "src"):
            for name, line in names_in(path.read_text(), local=False).items():
                shared[name.namespace, name.name].append((name, f"{path.relative_to(root)}:{line}"))
    problems = []
    for group in neighbours(root):
        seen: dict[tuple[str, str], list[tuple[Name, str]]] = collections.defaultdict(list)
        for path in sorted(group):
            names = names_in(path.read_text(), local=True)
            for name, line in names.items():
                key = name.namespace, name.name
                problems += [f"{path.relative_to(root)}:{line}: '{name.name}' is declared at {place} too, and the two may be "
                             "compiled together; rename one, or share it in a header"
                             for other, place in seen[key] + shared[key] if clash(name, other)]
            for name, line in names.items():
                seen[name.namespace, name.name].append((name, f"{path.relative_to(root)}:{line}"))
    return problems
