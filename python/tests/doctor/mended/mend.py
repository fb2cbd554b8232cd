# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of a module, puts the fixes that the doctor prints into their sources, and runs them again.

    mend.py FOLDER MODULE ...   # logs as several.py writes them, the mended source in FOLDER/mended_MODULE.py

In a source,

    # fault: CODE [words of the fix = instead]
    the lines that the fix replaces
    # end

are replaced by the fix of the finding with that code, after words of the fix that only its reader can know were
replaced. The body of a loop that a fix ends with ('for batch in loader: ...') follows the end. Lines between '# gone' and
'# end' fall away.
"""
import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "programs"))
import several  # noqa: E402

from lockstep.doctor import compare, logs, rules  # noqa: E402

HOW = {"fixes_runs": [":2:a", ":2:b"], "fixes_ranks": [":1", ":2"]}  # programs that are run twice, and how
_REGION = re.compile(r"^( *)# (fault: ([\w-]+)(?: \[(.*)\])?|gone)\n(.*?)^ *# end\n", re.M | re.S)
_PROGRAM = re.compile(r"^(?=def |class )", re.M)


def faults(module):
    """Program -> the code of its fault."""
    found = {}
    for part in _PROGRAM.split((HERE / f"{module}.py").read_text()):
        region = _REGION.search(part)
        if region is not None and part.startswith("def "):
            code = next(each.group(3) for each in _REGION.finditer(part) if each.group(3))
            found[re.match(r"def (\w+)", part).group(1).replace("_", "-")] = code
    return found


def _spliced(fix, indent, words):
    if words:
        old, new = words.split(" = ", 1)
        assert old in fix, f"the fix has no '{old}':\n{fix}"
        fix = fix.replace(old, new)
    fix = re.sub(r": \.\.\.$", ":", fix)
    assert not re.search(r"^[^#\n]*\.\.\.", fix, re.M), f"the fix has words that nobody replaced:\n{fix}"
    return textwrap.indent(fix, indent) + "\n"


def mended(module, fixes):
    """The source with each program's fix in it; programs without one stay as they are."""
    made = []
    for part in _PROGRAM.split((HERE / f"{module}.py").read_text()):
        name = re.match(r"def (\w+)|", part).group(1)
        fix = fixes.get((name or "").replace("_", "-"))
        if fix is not None:
            part = _REGION.sub(lambda each, fix=fix: "" if each.group(2) == "gone" else _spliced(fix, each.group(1), each.group(4)), part)
        made.append(part)
    return "".join(made)


def _logged(folder, spec):
    """The folders with the logs of a program's runs."""
    module = spec.split(":")[0].removeprefix("mended_")
    return [pathlib.Path(several.folder_of(folder, spec + how)) for how in HOW.get(module, [""])]


def ended(folder, spec):
    """How the runs of a program ended."""
    return {(each / "ended").read_text() for each in _logged(folder, spec)}


def judged(folder, spec):
    """What the doctor finds in the runs of a program."""
    runs = [logs.read(str(each)) for each in _logged(folder, spec)]
    for run, each in zip(runs, _logged(folder, spec)):
        run.ended = (each / "ended").read_text()
    if len(runs) == 1:
        return rules.judge(runs[0])
    one, two = runs
    return compare.runs.judge(runs) if one.world == two.world else compare.ranks.judge(two, one, rules.judge(two))


def main(folder, modules):
    sys.path.append(folder)
    for module in modules:
        codes = faults(module)
        several.run(folder, [f"{module}:{name}{how}" for name in codes for how in HOW.get(module, [""])])
        fixes = {name: each.fix for name, code in codes.items() for each in judged(folder, f"{module}:{name}") if each.code == code}
        pathlib.Path(folder, f"mended_{module}.py").write_text(mended(module, fixes))
        several.run(folder, [f"mended_{module}:{name}{how}" for name in fixes for how in HOW.get(module, [""])])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
