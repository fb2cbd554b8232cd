# SPDX-License-Identifier: Apache-2.0
"""The pages as a site: `./dev docs` runs this in build/docs-venv. With --serve it stays and shows the site on this host.

The pages are written for a reader of the folder; here they are copied to build/docs/pages, with what a site needs
changed: a link to a source becomes a link to a page that shows it, and lists are indented as MkDocs wants them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import cpp_api

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "docs"
PAGES = OUT / "pages"
LINK = re.compile(r"\]\(([^)#\s]+)((?:#[^)\s]+)?)\)")
ITEM = re.compile(r"^( *)([-*]|\d+\.) +")
PICTURES = (".png", ".svg")
LANGUAGE = {".cpp": "cpp", ".h": "cpp", ".cu": "cpp", ".py": "python", ".cmake": "cmake", ".toml": "toml", ".sh": "sh"}


def indented(text: str) -> str:
    """GitHub nests below an item's text, MkDocs by four spaces; and a list wants an empty line before it there."""
    out: list[str] = []
    levels: list[int] = []  # where the text of each open item begins
    fence = False
    for line in text.split("\n"):
        spaces = len(line) - len(line.lstrip(" "))
        if line.strip() and not fence:
            while levels and spaces < levels[-1]:
                levels.pop()
        shift = 4 * len(levels) - (levels[-1] if levels else 0)
        item = None if fence else ITEM.match(line)
        if line.lstrip().startswith("```"):
            fence = not fence
        if item and (spaces - (levels[-1] if levels else 0)) < 4:
            if out and out[-1].strip() and not ITEM.match(out[-1]):
                starts = not levels and not re.match(r" {4}", out[-1])
                if starts:
                    out.append("")
            out.append(" " * shift + line)
            levels.append(item.end())
        else:
            out.append(" " * shift + line if line.strip() else line)
    return "\n".join(out)


def staged(path: pathlib.PurePath, text: str, shown: set[str]) -> str:
    """A page with its links turned to what is on the site; `shown` collects the sources that need a page."""
    def link(found: re.Match[str]) -> str:
        name, anchor = found.groups()
        if "://" in name or name.startswith("mailto:"):
            return found.group(0)
        target = pathlib.PurePath(os.path.normpath(path.parent / name))
        if (ROOT / target).is_dir():
            return f"]({name.rstrip('/')}/README.md)" if (ROOT / target / "README.md").is_file() else "](#)"
        if target.suffix == ".md" or target.suffix in PICTURES:
            return found.group(0)
        shown.add(str(target))
        return f"]({name}.md{anchor})"

    parts = re.split(r"(```.*?```|`[^`\n]*`)", text, flags=re.S)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return indented("".join(parts))


def tracked() -> list[pathlib.PurePath]:
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\n")
    return [pathlib.PurePath(name) for name in sorted(set(names)) if name and (ROOT / name).is_file()]


def write(name: str, text: str) -> None:
    (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / name).write_text(text)


def stage_pages() -> None:
    shutil.copyfile(ROOT / "tools/docs/site.css", PAGES / "site.css")
    shown: set[str] = set()
    for path in tracked():
        if path.suffix == ".md":
            # The search lists it after the pages that have the thing itself.
            front = "---\nsearch:\n  boost: 0.1\n---\n" if path.name == "CHANGELOG.md" else ""
            write(str(path), front + staged(path, (ROOT / path).read_text(), shown))
        elif path.suffix in PICTURES and path.parts[0] == "docs":
            (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, PAGES / path)
    for name in shown:
        language = LANGUAGE.get(pathlib.PurePath(name).suffix, "text")
        write(name + ".md", f"# {name}\n\n````{language}\n{(ROOT / name).read_text().rstrip()}\n````\n")


def stage_python() -> None:
    """A page a module of the package lockstep, made from its docstrings."""
    modules = sorted(path.stem for path in (ROOT / "python" / "lockstep").glob("*.py") if not path.stem.startswith("_"))
    modules += sorted(f.parent.name for f in (ROOT / "python" / "lockstep").glob("*/__init__.py"))
    text = "# Python: the package lockstep\n\n::: lockstep\n\n## Modules\n\n"
    for name in modules:
        text += f"- [lockstep.{name}]({name}.md)\n"
        write(f"api/python/{name}.md", f"# lockstep.{name}\n\n::: lockstep.{name}\n")
    write("api/python/README.md", text)


def stage_cpp() -> None:
    settings = (ROOT / "tools/docs/Doxyfile").read_text() + f"OUTPUT_DIRECTORY = {OUT}\n"
    subprocess.run(["doxygen", "-"], cwd=ROOT, input=settings, text=True, check=True)
    cpp_api.write_pages(ROOT, OUT / "xml", PAGES / "api" / "cpp")


def listed(folder: pathlib.Path, indent: str) -> list[str]:
    """The lines of the navigation for a folder's pages: README.md first, then the others, then the folders in it."""
    pages = sorted(folder.glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
    lines = [f"{indent}- {page.relative_to(PAGES)}" for page in pages]
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        lines += [f"{indent}- {inner.name}:", *listed(inner, indent + "    ")]
    return lines


def write_settings() -> pathlib.Path:
    """mkdocs.yml with the pages of the folders that its navigation names; as deep in the tree, since its paths are relative."""
    lines: list[str] = []
    for line in (ROOT / "tools/docs/mkdocs.yml").read_text().split("\n"):
        found = re.fullmatch(r"( +)- (.+): (\S+)/", line)
        lines += [f"{found[1]}- {found[2]}:", *listed(PAGES / found[3], found[1] + "    ")] if found else [line]
    (OUT / "mkdocs.yml").write_text("\n".join(lines))
    return OUT / "mkdocs.yml"


def main() -> int:
    shutil.rmtree(OUT, ignore_errors=True)
    PAGES.mkdir(parents=True)
    stage_pages()
    stage_python()
    stage_cpp()
    verb = ["serve"] if sys.argv[1:] == ["--serve"] else ["build", "--strict", "--quiet"]
    command = [sys.executable, "-m", "mkdocs", *verb, "--config-file", str(write_settings())]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


sys.exit(main())
