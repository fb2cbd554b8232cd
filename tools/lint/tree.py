# SPDX-License-Identifier: Apache-2.0
"""The shape of the tree: how many files lie in a folder, and which headers layers share.

What is promised to users lies in include/lockstep/LAYER/, what layers share among themselves in its detail/. A header
that only its own layer uses lies in src/.
"""

import collections
import pathlib
import re

import files
import layers

MANY = 15
# Folders with more files than that, and why.
MAY_HOLD_MANY = {
    "bench/results": "a file a measuring campaign; README.md is its index",
    "docs/decisions": "a file a decision; README.md is its index",
    "python/MinkowskiEngine": "programs import its modules by MinkowskiEngine's own names",
}
TREES = ("bench", "cmake", "docs", "examples", "include", "python", "src", "tests", "tools")
# Those who use Lockstep as users do.
USERS = ("examples", "python/examples", "tests/package", "docs", "README.md")
DETAIL = re.compile(r'#\s*include\s*[<"](lockstep/(\w+)/detail/[^">]+)[">]')


def must_be_a_folder(folder: pathlib.PurePath) -> bool:
    """include/lockstep/LAYER, and its detail/: the rules of layers ask for them whatever they hold."""
    parts = folder.parts
    return parts[:2] == ("include", "lockstep") and (len(parts) == 3 or (len(parts) == 4 and parts[3] == "detail"))


def check_folders(paths: list[pathlib.PurePath]) -> list[str]:
    held: dict[pathlib.PurePath, int] = collections.Counter(path.parent for path in paths)
    with_folders = {above for folder in held for above in folder.parents}
    problems = []
    for folder, count in sorted(held.items()):
        if folder.parts[:1] == () or folder.parts[0] not in TREES:
            continue
        name = str(folder)
        if count > MANY and name not in MAY_HOLD_MANY:
            problems.append(f"{name}: {count} files, expected no more than {MANY}; divide it by what the files are about")
        if count == 1 and folder not in with_folders and not must_be_a_folder(folder):
            problems.append(f"{name}: a single file, which could lie in {folder.parent}")
    return problems


def check_details(contents: dict[pathlib.PurePath, str]) -> list[str]:
    """Detail headers that nothing outside of their layer needs, and users' programs and pages that include one."""
    problems: list[str] = []
    users: dict[str, set[str]] = collections.defaultdict(set)  # a detail header -> the headers and sources that include it
    for path, content in contents.items():
        for found in DETAIL.finditer(content):
            users[found.group(1)].add(str(path))
            if any(path.is_relative_to(user) for user in USERS):
                line = content.count("\n", 0, found.start()) + 1
                problems.append(f"{path}:{line}: includes {found.group(1)}, which is for layers among themselves")

    def is_needed(header: str, seen: frozenset[str]) -> bool:
        """By another layer or a public header, at once or through other detail headers of its own layer."""
        layer = header.split("/")[1]
        for user in users[header] - seen:
            where = layers.place(pathlib.PurePath(user))
            if where == ("public", layer) and "/detail/" in user:
                if is_needed(user.removeprefix("include/"), seen | {user}):
                    return True
            elif user.startswith("python/src/") or (where and (where[0] == "public" or where[0] == "src" and where[1] != layer)):
                return True
        return False

    for path in contents:
        header = str(path).removeprefix("include/")
        if must_be_a_folder(path.parent) and path.parent.name == "detail" and not is_needed(header, frozenset()):
            problems.append(f"{path}: only {path.parts[2]} uses it, so it belongs to src/{path.parts[2]}/")
    return problems


def check(root: pathlib.Path) -> list[str]:
    paths = [path.relative_to(root) for path in files.project_files(root)]
    contents = {path: (root / path).read_text() for path in paths if path.suffix in files.CPP | {".md"}}
    return check_folders(paths) + check_details(contents)
