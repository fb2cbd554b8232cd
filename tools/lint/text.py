# SPDX-License-Identifier: Apache-2.0
"""Licence lines, stray white space, loops that would not be parallel, names declared for nothing, files that grew too
long, links and files in the pages that are not there, examples there that differ from their file, and examples that no
page links to."""

import pathlib
import re
import sys

import files

LINES = 400
PAGE = {".js", ".css"}  # which no formatter lays out
WIDTH = 120
CODE = files.CPP | PAGE | {".py", ".cmake", ".sh"}


def is_code(path: pathlib.Path) -> bool:
    return path.suffix in CODE or path.name in ("CMakeLists.txt", "dev") or path.parent.name == ".ci"


# clang-tidy's own check for these looks at the main file alone, and ours include several sources (tidy.py).
BROUGHT_IN = re.compile(r"^ *(?:using (?:typename )?(?:\w*::)+(\w+);|using (\w+) = .*|namespace (\w+) = .*;)", re.M)
NO_NAMES = re.compile(r'//.*|^ *#.*|"(?:[^"\\\n]|\\.)*"', re.M)


def names_for_nothing(path: pathlib.PurePath, content: str) -> list[str]:
    """Names that a source brings in or gives, and never uses."""
    content = NO_NAMES.sub("", content)
    problems = []
    for found in BROUGHT_IN.finditer(content):
        name = found.group(1) or found.group(2) or found.group(3)
        if len(re.findall(rf"\b{name}\b", content)) == 1:
            problems.append(f"{path}:{content.count(chr(10), 0, found.start()) + 1}: {name} is never used")
    return problems


def check_file(path: pathlib.PurePath, content: str) -> list[str]:
    lines = content.split("\n")
    problems = []
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:2]):
        problems.append(f"{path}:1: no licence line, expected 'SPDX-License-Identifier: Apache-2.0'")
    if path.suffix in (".h", ".cuh") and "#pragma once" not in lines[:12]:
        problems.append(f"{path}:1: no '#pragma once' near its top")
    for number, line in enumerate(lines, 1):
        if "at::parallel_for(" in line and path.name != "parallel_for.cpp" and path.suffix in files.CPP:
            problems.append(f"{path}:{number}: at::parallel_for is a plain loop here, expected lockstep::parallel_for")
        if line == "#include <ATen/ATen.h>":
            problems.append(f"{path}:{number}: all of torch's operators (10 s to parse), expected <ATen/ops/...> by name")
        if path.suffix in PAGE and len(line) > WIDTH:
            problems.append(f"{path}:{number}: {len(line)} characters in a line, expected no more than {WIDTH}")
        if line != line.rstrip():
            problems.append(f"{path}:{number}: white space at the end of the line")
        if "\t" in line:
            problems.append(f"{path}:{number}: a tab, expected spaces")
    if path.suffix in (".cpp", ".cu"):
        problems += names_for_nothing(path, content)
    if not content.endswith("\n") or content.endswith("\n\n"):
        problems.append(f"{path}:{len(lines)}: expected one line end at the end of the file")
    return problems


# A page that shows a file says so before the block: <!-- file: examples/x/main.cpp -->. The licence and the comment
# that head the file are left out of the page.
SHOWN = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", re.S)

# A fenced block of C++ claims to be whole, so a file has it, which a build compiles. (Python's are run by
# python/tests/pages, where no file has them.) An excerpt is indented.
FENCED_CPP = re.compile(r"(<!-- file: \S+ -->\n)?^```(?:cpp|c\+\+)$", re.M)

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(content: str) -> set[str]:
    """The names under which GitHub's pages have a page's headings."""
    headings = re.findall(r"^#+ (.*)$", content, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(root: pathlib.Path, path: pathlib.PurePath, content: str) -> list[str]:
    problems = []
    for name, anchor in LINK.findall(re.sub(r"```.*?```|`[^`\n]*`", "", content, flags=re.S)):
        if "://" in name or name.startswith("mailto:"):
            continue
        file = root / path.parent / name if name else root / path
        if not file.exists():
            problems.append(f"{path}: links to {name}, which is not there")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            problems.append(f"{path}: links to {name}#{anchor}, a heading that is not there")
    return problems


# A file of the tree that a page names: `src/numerics/tree.cpp`, or shorter as an include has it, `numerics/tree.h`. What
# stands for a name of the reader's own is foo or in capitals.
NAMED = re.compile(r"`([a-z][\w.-]*(?:/[a-z0-9][\w.-]*)+/?)`")
BASES = ("", "src", "include", "include/lockstep", "tests", "python")
FILE = re.compile(r"\.(h|cpp|cu|cuh|py|js|css|cmake|md|txt|sh)$")
HISTORY = ("CHANGELOG.md", "bench/results")


def check_names(root: pathlib.Path, path: pathlib.PurePath, content: str) -> list[str]:
    problems = []
    for name in NAMED.findall(content):
        of_tree = name.split("/")[0] in ("src", "include", "tests", "bench", "cmake", "tools")
        if "foo" in name or name.startswith("torch/") or not (of_tree or FILE.search(name)):
            continue
        if not any((root / base / name).exists() for base in BASES):
            problems.append(f"{path}: names {name}, which is not there")
    return problems


def check_page(root: pathlib.Path, path: pathlib.PurePath, content: str) -> list[str]:
    problems = check_links(root, path, content)
    if not any(path.is_relative_to(history) for history in HISTORY):
        problems += check_names(root, path, content)
    if any(not shown for shown in FENCED_CPP.findall(content)):
        problems.append(f"{path}: a fenced block of C++ that no file has, expected <!-- file: NAME --> before it")
    for name, block in SHOWN.findall(content):
        file = root / name
        if not file.is_file():
            problems.append(f"{path}: shows {name}, which is not there")
        elif re.sub(r"\A(//.*\n)+", "", file.read_text()) != block:
            problems.append(f"{path}: shows {name} as it no longer is")
    return problems


def check_decisions(root: pathlib.Path) -> list[str]:
    """docs/decisions: the numbers go 001, 002, ..., each once, and the index names each file."""
    folder, problems = root / "docs" / "decisions", []
    index = (folder / "README.md").read_text() if folder.is_dir() else ""
    for expected, file in enumerate(sorted(folder.glob("[0-9]*.md")), 1):
        if not file.name.startswith(f"{expected:03}-") or not file.read_text().startswith(f"# {expected:03}: "):
            problems.append(f"docs/decisions/{file.name}: expected the number {expected:03} in its name and its title")
        if f"]({file.name})" not in index:
            problems.append(f"docs/decisions/README.md: does not name {file.name}")
    return problems


EXAMPLES = ("examples", "python/examples")
PROGRAM = re.compile(r"^int main\(|^if __name__ == ", re.M)


def check_examples(root: pathlib.Path) -> list[str]:
    """Programs among the examples that no page links to or shows."""
    named = set()
    for page in (path for path in files.project_files(root) if path.suffix == ".md" and path.name != "CHANGELOG.md"):
        content = page.read_text()
        named |= {(page.parent / name).resolve() for name, _ in LINK.findall(content) if "://" not in name}
        named |= {(root / name).resolve() for name, _ in SHOWN.findall(content)}
    return [f"{path.relative_to(root)}: an example that no page links to" for path in files.project_files(root)
            if any(path.is_relative_to(root / folder) for folder in EXAMPLES) and path.suffix in (".cpp", ".py")
            and PROGRAM.search(path.read_text()) and path.resolve() not in named]


def check(root: pathlib.Path) -> list[str]:
    problems = check_decisions(root) + check_examples(root)
    for path in filter(is_code, files.project_files(root)):
        short, content = path.relative_to(root), path.read_text()
        problems += check_file(short, content)
        if path.suffix in files.CPP and (length := content.count("\n")) > LINES:
            print(f"{short}: warning: {length} lines; past {LINES}, split by concept", file=sys.stderr)
    for path in files.project_files(root):
        if path.suffix == ".md":
            problems += check_page(root, path.relative_to(root), path.read_text())
    return problems
