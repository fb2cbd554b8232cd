# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/use/rescue.md: the page's program with the functions of one story, before or after its cure.

    rescue.py NUMBER-before|NUMBER-after
"""
import pathlib
import re

import start

PAGE = pathlib.Path(__file__).resolve().parents[4] / "docs" / "use" / "rescue.md"
_BLOCK = re.compile(r'^## (.+?)$|^```python title="(.+?)"\n(.*?)^```', re.M | re.S)


def stories():
    """The page's program, and for each story its heading and its blocks; a block keeps its place in the page."""
    program, found = "", []
    text = PAGE.read_text()
    for each in _BLOCK.finditer(text):
        heading, title, _ = each.groups()
        if heading:
            found.append((heading, {}))
            continue
        block = "\n" * text.count("\n", 0, each.start(3)) + each.group(3)
        if title == "train.py":
            program = block
        else:
            found[-1][1][title] = block
    return program, found


def train(variant, rank, world):
    number, when = variant.split("-")
    program, found = stories()
    names = {}
    for block in (program, found[int(number) - 1][1][when]):
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    names["main"](rank, world)


if __name__ == "__main__":
    start.main(train)
