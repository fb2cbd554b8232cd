# SPDX-License-Identifier: Apache-2.0
"""The direction of includes: a layer sees those that it stands on, and no others.

Checked for include/lockstep/LAYER, src/LAYER, tests/LAYER and bench/LAYER, and against the link line (USES) of
src/LAYER/CMakeLists.txt. A header in src/ is private to its layer.
"""

import pathlib
import re

import files

# The diagram of docs/inside/architecture.md: what a layer uses directly. What those use, it may use too.
USES = {
    "base": [],
    "numerics": ["base"],
    "comm": ["numerics"],
    "context": ["numerics"],
    "norm": ["context"],
    "dense": ["context"],
    "parallel": ["archive", "comm", "norm", "dense"],
    "points": ["base"],
    "sparse": ["norm", "points"],
    "archive": ["base"],
    "pictures": ["base"],
    "data": ["archive", "numerics", "pictures", "points"],
    "metrics": ["numerics"],
    "models": ["dense", "sparse"],
    "run": ["data", "parallel"],
    "report": ["run"],
    "train": ["parallel", "data", "metrics", "models", "report"],
    "launch": ["comm"],
    "trials": ["launch", "train"],
    "cli": ["trials"],
}
# What tests and benchmarks of a layer see besides: networks, sparse ones too, are there to be trained by a team.
TESTS_USE = {"models": ["parallel"], "sparse": ["parallel"], "norm": ["parallel"], "archive": ["run"], "base": ["numerics"]}
# Public headers of these stay narrow: <torch/torch.h> takes half a minute to parse.
NARROW = {"archive", "base", "comm", "context", "data", "dense", "metrics", "norm", "numerics", "pictures", "points", "report", "run",
          "sparse"}

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def below(layer: str) -> set[str]:
    """The layer and all that it stands on."""
    return {layer}.union(*(below(used) for used in USES[layer]))


def place(path: pathlib.PurePath) -> tuple[str, str] | None:
    """(kind, layer) of a file: ("public", "numerics") for include/lockstep/numerics/tree.h; None outside the layers."""
    parts = path.parts
    if parts[:2] == ("include", "lockstep") and len(parts) > 3:
        return "public", parts[2]
    if parts[0] in ("src", "tests", "bench") and len(parts) > 2:
        return parts[0], parts[1]
    return None


def included_layer(name: str, quote: str) -> tuple[str, bool] | None:
    """(layer, is it public) of an include, None when it is not one of ours."""
    parts = name.split("/")
    if parts[0] == "lockstep" and len(parts) > 2:
        return parts[1], True
    if quote == '"' and len(parts) > 1 and parts[0] in USES:
        return parts[0], False
    return None


def check_file(path: pathlib.PurePath, lines: list[str]) -> list[str]:
    where = place(path)
    if where is None or where[1] not in USES:
        if where and where[0] in ("public", "src"):
            return [f"{path}: '{where[1]}' is no layer, expected one of {', '.join(USES)} (tools/lint/layers.py)"]
        return []
    kind, layer = where
    visible = below(layer)
    if kind in ("tests", "bench"):
        visible = visible.union(*(below(used) for used in TESTS_USE.get(layer, [])))
    problems = []
    for number, line in enumerate(lines, 1):
        if not (match := INCLUDE.match(line)):
            continue
        quote, name = match.groups()
        if kind == "public" and layer in NARROW and name == "torch/torch.h":
            problems.append(f"{path}:{number}: <torch/torch.h> in a public header of {layer}, expected narrow headers")
        if not (target := included_layer(name, quote)):
            continue
        used, is_public = target
        if used not in visible:
            seen = ", ".join(sorted(visible - {layer})) or "no other layer"
            problems.append(f"{path}:{number}: {layer} includes {name} of {used}, expected only {seen}")
        elif not is_public and kind == "public":
            problems.append(f"{path}:{number}: a public header includes the private {name}")
        elif not is_public and used != layer:
            problems.append(f"{path}:{number}: {layer} includes {name}, which is private to {used}")
    return problems


def check_links(path: pathlib.PurePath, content: str) -> list[str]:
    """The link line of a layer: src/LAYER/CMakeLists.txt."""
    layer = path.parts[1]
    if layer not in USES:
        return []
    content = re.sub(r"#.*", "", content)
    linked = set(re.findall(r"\blockstep::(\w+)", content)) & USES.keys() - {layer}
    return [f"{path}: {layer} links to {used}, expected only what stands below it" for used in sorted(linked - below(layer))]


# A line of the table in docs/inside/architecture.md: | `comm` | numerics | groups of ... |
ROW = re.compile(r"^\| `(\w+)` \| ([\w, ]*?) ?\| ", re.M)


def check_page(content: str) -> list[str]:
    """The diagram as readers have it."""
    page = {layer: [used for used in re.split(r", ", uses) if used] for layer, uses in ROW.findall(content)}
    return [f"docs/inside/architecture.md: {layer} stands on {', '.join(page.get(layer, [])) or 'nothing'}, expected "
            f"{', '.join(uses) or 'nothing'} as in tools/lint/layers.py"
            for layer, uses in USES.items() if set(page.get(layer, ["no line of the table"])) != set(uses)]


def check(root: pathlib.Path) -> list[str]:
    page = root / "docs" / "architecture.md"
    problems = check_page(page.read_text()) if page.exists() else []
    for path in files.project_files(root):
        short = path.relative_to(root)
        if path.suffix in files.CPP:
            problems += check_file(short, path.read_text().splitlines())
        elif short.parts[0] == "src" and len(short.parts) == 3 and path.name == "CMakeLists.txt":
            problems += check_links(short, path.read_text())
    return problems
