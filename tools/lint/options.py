# SPDX-License-Identifier: Apache-2.0
"""Every option of the program stands on docs/reference/commands.md, and the pages' commands and sentences use no other."""

import pathlib
import re

import files

PAGE = "docs/reference/commands.md"
# add_option("-n,--processes", ...), add_flag("--json", ...) and a configuration's fields: {"save-every", kOutput, ...
ADDED = re.compile(r'add_(?:option|flag)\w*\(\s*"((?:-\w,)?--[\w-]+)"')
FIELD = re.compile(r'\{"([a-z][\w-]*)",\s*k[A-Z]')
COMMAND = re.compile(r"^ +(?:\w\$ )?(?:\S*/)?lockstep (?:train|evaluate|predict|verify|speedup|sweep|report|hash|convert) .*$", re.M)
INLINE = re.compile(r"`(--[a-z][^`\n]*)`")  # in a sentence or a table
DOCTORS = re.compile(r'add_argument\(\s*"(--[\w-]+)"')
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def options_of(sources: list[str]) -> set[str]:
    added = {name for source in sources for found in ADDED.findall(source) for name in OPTION.findall(found)}
    return added | {f"--{name}" for source in sources for name in FIELD.findall(source)}


def check_pages(known: set[str], pages: dict[str, str], others: frozenset[str] = frozenset()) -> list[str]:
    """`others`: options of other programs of ours, which sentences may name."""
    listed = set(OPTION.findall(pages.get(PAGE, "")))
    listed |= {f"--{word[5:]}" for word in listed if word.startswith("--no-")}  # one that is on unless it is switched off
    problems = [f"{PAGE}: has no {option}, expected every option of the program" for option in sorted(known - listed)]
    usable = known | {f"--no-{word[2:]}" for word in known} | {"--help", "--version"}
    for name, content in pages.items():
        for command in COMMAND.findall(content.replace("\\\n", " ")):
            for option in OPTION.findall(command.partition(" -- ")[0]):
                if option not in usable:
                    problems.append(f"{name}: a command with {option}, which the program does not have")
        if name == "README.md" or (name.startswith("docs/") and not name.startswith("docs/decisions/")):
            named = {option for code in INLINE.findall(content) for option in OPTION.findall(code)}
            problems += [f"{name}: names {option}, which no program of ours has" for option in sorted(named - usable - others)]
    return problems


def check(root: pathlib.Path) -> list[str]:
    sources = [*sorted((root / "src/cli").rglob("*.cpp")), root / "src/run/config_fields.cpp"]
    pages = {str(path.relative_to(root)): path.read_text() for path in files.project_files(root) if path.suffix == ".md"}
    pages = {name: text for name, text in pages.items() if not name.startswith(("CHANGELOG", "bench/"))}
    doctor = [path.read_text() for path in sorted((root / "python/lockstep/doctor").rglob("*.py"))]
    others = frozenset(name for source in doctor for name in DOCTORS.findall(source))
    return check_pages(options_of([path.read_text() for path in sources]), pages, others)
