# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over what changed since the base: LOCKSTEP_LINT_BASE (a commit, or "all"), else the merge base with
origin/main, else the last commit. A header that changed is checked through a source that includes it. Most of the time
goes into torch's headers, so a run reads several sources of a target. The number of runs is bounded: what changed last
comes first."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import files

MAX_RUNS = 6
TOGETHER = 8  # sources in a run


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
    """Source -> the command that compiles it. The preset is configured when a list of sources changed."""
    folder = root / "build" / "tidy"
    torch = [f"-DLOCKSTEP_TORCH={os.environ['LOCKSTEP_TORCH']}"] if "LOCKSTEP_TORCH" in os.environ else []
    configured = subprocess.run(["cmake", "--preset", "tidy", *torch], cwd=root, capture_output=True, text=True)
    if configured.returncode != 0:
        raise files.MissingTool(f"configuring the preset tidy failed:\n{configured.stderr}")
    entries = json.loads((folder / "compile_commands.json").read_text())
    # A file that is compiled for several instruction sets has an entry for each: one will do.
    commands = {os.path.relpath(entry["file"], root): entry["command"] for entry in reversed(entries)}
    return {name: re.sub(r" -fpch-preprocess| -Werror", "", command) for name, command in commands.items()
            if not name.startswith("build/")}  # what the build makes itself


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
    history = files.git(root, "ls-files", "--others", "--exclude-standard")
    history += files.git(root, "diff", "--name-only", "HEAD")
    history += files.git(root, "log", "-n", "500", "--name-only", "--format=")
    place = {name: age for age, name in reversed(list(enumerate(history)))}
    return sorted(sources, key=lambda source: place.get(source, len(history)))


def in_runs(sources: list[str], commands: dict[str, str]) -> list[list[str]]:
    """Runs of sources of one target, which unity builds compile together as well; the first sources' if not all fit."""
    runs: dict[str, list[list[str]]] = {}
    for source in sources:
        flags, _, output = commands[source].partition(" -o ")
        of_target = runs.setdefault(output.partition(".dir/")[0] + flags, [])
        if of_target and len(of_target[-1]) < TOGETHER:
            of_target[-1].append(source)
        elif sum(map(len, runs.values())) < MAX_RUNS:
            of_target.append([source])
    return sorted((run for of_target in runs.values() for run in of_target), key=len, reverse=True)


def run(root: pathlib.Path, tidy: str, sources: list[str], commands: dict[str, str]) -> list[str]:
    build = root / "build" / "tidy"
    with tempfile.TemporaryDirectory(dir=build) as folder:
        together = pathlib.Path(folder) / "together.cpp"
        together.write_text("".join(f'#include "{root / source}"\n' for source in sources))
        command = commands[sources[0]].replace(str(root / sources[0]), str(together))
        entry = {"directory": str(build), "file": str(together), "command": command}
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps([entry]))
        result = subprocess.run([tidy, "-p", folder, "--quiet", "--checks=-bugprone-suspicious-include", str(together)],
                                cwd=root, capture_output=True, text=True)
    if result.returncode == 0:
        return []
    lines = [line.replace(f"{root}/", "") for line in (result.stdout + result.stderr).splitlines()]
    if len(sources) > 1 and any("[clang-diagnostic-error" in line for line in lines):  # they do not go together
        return [problem for source in sources for problem in run(root, tidy, [source], commands)]
    problems = [line for line in lines if re.search(r": (error|warning|fatal error): ", line)]
    return problems or [f"{' '.join(sources)}: {lines[-1:]}"]


def check(root: pathlib.Path) -> list[str]:
    tidy = files.tool("clang-tidy")
    changed = changed_files(root)
    if not changed:
        return []
    commands = compile_commands(root)
    sources = latest_first(root, sources_for(root, changed, commands))
    runs = in_runs(sources, commands)
    looked_at = sum(map(len, runs))
    if looked_at < len(sources):
        print(f"lint: tidy: {len(sources)} sources, looking at {looked_at} that changed last", file=sys.stderr)
    jobs = int(os.environ.get("LOCKSTEP_JOBS") or os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda names: run(root, tidy, names, commands), runs)
        problems = {problem for lines in found for problem in lines}
    print(f"lint: tidy: {looked_at} sources in {len(runs)} runs")
    return sorted(problems)
