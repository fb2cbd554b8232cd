# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of the manual out of --help: manual.py PROGRAM FOLDER makes FOLDER/lockstep.1 and one page a command."""

import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HEADING = re.compile(r"(\S.*):$")
ENTRY = re.compile(r" {1,4}(\S.*)$")


def roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def sections(text: str) -> tuple[str, str, list[tuple[str, list[tuple[str, str]]]]]:
    """What a --help says: the description, the usage, and under each heading the entries, a term and what it is for."""
    description, usage = [], ""
    out: list[tuple[str, list[tuple[str, str]]]] = []
    for line in text.splitlines():
        heading, entry = HEADING.match(line), ENTRY.match(line)
        if line.startswith("Usage: "):
            usage = line.removeprefix("Usage: ")
        elif heading and usage:
            out.append((heading.group(1), []))
        elif not usage:
            description.append(line)
        elif entry and out:
            term, _, meaning = entry.group(1).partition("  ")
            out[-1][1].append((term.strip(), meaning.strip()))
        elif line.strip() and out and out[-1][1]:
            term, meaning = out[-1][1][-1]
            out[-1][1][-1] = (term, f"{meaning} {line.strip()}".strip())
    return " ".join(description).strip(), usage, out


def page(name: str, text: str, version: str, others: list[str]) -> str:
    description, usage, parts = sections(text)
    if not description or not usage or not parts:
        sys.exit(f"manual.py: {name} --help has no description, no usage or no options, expected all three:\n{text}")
    lines = [
        f'.TH "{name.upper().replace(" ", "-")}" 1 "" "{version}" "Lockstep"',
        ".ad l",
        ".SH NAME",
        f"{roff(name.replace(' ', '-'))} \\- {roff(description)}",
        ".SH SYNOPSIS",
        f".B {roff(usage)}",
    ]
    for heading, entries in parts:
        lines.append(f'.SH "{roff(heading.upper())}"')
        for term, meaning in entries:
            lines += [".TP", f".B {roff(term)}", roff(meaning)]
    lines += [".SH SEE ALSO", ",\n".join(f".BR {roff(other)} (1)" for other in others if other != name.replace(" ", "-"))]
    return "\n".join(lines) + "\n"


def main() -> None:
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])

    def ask(*words: str) -> str:
        return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout

    text, version = ask("--help"), ask("--version").strip()
    (commands,) = [entries for heading, entries in sections(text)[2] if heading.lower() == "subcommands"]
    names = [term.split()[0] for term, _ in commands]
    pages = ["lockstep", *(f"lockstep-{name}" for name in names)]
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(lambda name: ask(name, "--help"), names))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lockstep.1").write_text(page("lockstep", text, version, pages))
    for name, said in zip(names, texts, strict=True):
        (folder / f"lockstep-{name}.1").write_text(page(f"lockstep {name}", said, version, ["lockstep"]))


if __name__ == "__main__":
    main()
