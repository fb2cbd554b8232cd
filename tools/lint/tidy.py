# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over what changed since the base: LOCKSTEP_LINT_BASE (a commit, or "all"), else the merge base with
origin/main, else the last commit. A header that changed is checked through a source that includes it. A source takes
about ten seconds, so the number of sources is bounded: those that changed last come first."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

import files

MAX_SOURCES = 16


def changed_files(root: pathlib.Path) -> list[str]:
    base = os.environ.get("LOCKSTEP_LINT_BASE", "")
    if base == "all":
        return [str(path.relative_to(root)) for path in files.cpp_files(root)]
    head = files.git(root, "rev-parse", "HEAD")
    merge_base = [base] if base else files.git(root, "merge-base", "HEAD", "origin/main")
    if not merge_base or merge_base == head:
        merge_base = ["HEAD~1"]
    changed = files.git(root, "diff", "--name-only", "--diff-filter=d", merge_base[0])
    changed += files.git(root, "ls-files", "--others", "--exclude-standard")
    return sorted(name for name in set(changed) if pathlib.Path(name).suffix in files.CPP)


def compile_commands(root: pathlib.Path) -> dict[str, str]:
    """Source -> folder of the database that holds it. The preset is configured when a list of sources changed."""
    folder = root / "build" / "tidy"
    configured = subprocess.run(["cmake", "--preset", "tidy"], cwd=root, capture_output=True, text=True)
    if configured.returncode != 0:
        raise files.MissingTool(f"configuring the preset tidy failed:\n{configured.stderr}")
    entries = json.loads((folder / "compile_commands.json").read_text())
    # A file that is compiled for several instruction sets has an entry for each: one will do.
    single = {entry["file"]: entry for entry in reversed(entries)}
    database = folder / "lint"
    database.mkdir(exist_ok=True)
    for entry in single.values():
        entry["command"] = entry["command"].replace(" -fpch-preprocess", "").replace(" -Werror", "")
    (database / "compile_commands.json").write_text(json.dumps(list(single.values())))
    return {os.path.relpath(name, root): str(database) for name in single}


def includes(root: pathlib.Path, source: str) -> set[str]:
    text = (root / source).read_text()
    return set(re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.M))


def sources_for(root: pathlib.Path, changed: list[str], known: dict[str, str]) -> list[str]:
    """The sources to run over: those that changed, and for each changed header one source that includes it."""
    chosen = {name for name in changed if name in known}
    for header in (name for name in changed if name.endswith(".h")):
        spelled = re.sub(r"^(include|src|tests)/", "", header)
        users = [source for source in known if spelled in includes(root, source)]
        stem = pathlib.Path(header).stem
        users.sort(key=lambda source: (source not in chosen, pathlib.Path(source).stem != stem, source))
        chosen.update(users[:1])
    return sorted(chosen)


def latest_first(root: pathlib.Path, sources: list[str]) -> list[str]:
    history = files.git(root, "log", "-n", "500", "--name-only", "--format=")
    place = {name: age for age, name in reversed(list(enumerate(history)))}
    return sorted(sources, key=lambda source: place.get(source, len(history)))


def run_one(root: pathlib.Path, tidy: str, source: str, database: str) -> list[str]:
    # OpenMP's header is the compiler's own, and clang's need not be there.
    command = [tidy, "-p", database, "--quiet", source]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if result.returncode == 0:
        return []
    lines = [line.replace(f"{root}/", "") for line in (result.stdout + result.stderr).splitlines()]
    return [line for line in lines if re.search(r": (error|warning|fatal error): ", line)] or [f"{source}: {lines[-1:]}"]


def check(root: pathlib.Path) -> list[str]:
    tidy = files.tool(root, "clang-tidy")
    changed = changed_files(root)
    if not changed:
        return []
    known = compile_commands(root)
    sources = sources_for(root, changed, known)
    if len(sources) > MAX_SOURCES:
        print(f"lint: tidy: {len(sources)} sources, looking at the {MAX_SOURCES} that changed last", file=sys.stderr)
        sources = latest_first(root, sources)[:MAX_SOURCES]
    jobs = int(os.environ.get("LOCKSTEP_JOBS") or os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda source: run_one(root, tidy, source, known[source]), sources)
        problems = {problem for lines in found for problem in lines}
    print(f"lint: tidy: {len(sources)} sources")
    return sorted(problems)
