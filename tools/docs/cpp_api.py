# SPDX-License-Identifier: Apache-2.0
"""A page for each promised header, made from Doxygen's XML: its comment, its classes, its functions."""

import html
import pathlib
import re
import xml.etree.ElementTree as ET

# What stands above a header's first namespace says what the header is for; Doxygen would join those of all headers.
HEAD = re.compile(r"((?:^///.*\n)+)(?:inline )?namespace ", re.M)


def flat(element: ET.Element | None) -> str:
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def prose(element: ET.Element | None) -> str:
    """Markdown of a description: paragraphs, code, lists."""
    if element is None:
        return ""
    out = html.escape(element.text or "", quote=False)
    for child in element:
        if child.tag == "computeroutput":
            out += f"`{''.join(child.itertext())}`"
        elif child.tag in ("programlisting", "verbatim"):
            lines = [re.sub(r"\s+$", "", "".join(line.itertext())) for line in child.iter("codeline")]
            out += "\n\n```cpp\n" + ("\n".join(lines) or "".join(child.itertext())) + "\n```\n\n"
        elif child.tag == "listitem":
            out += "- " + " ".join(prose(child).split()) + "\n"
        elif child.tag == "itemizedlist":
            out += "\n\n" + prose(child) + "\n"
        elif child.tag == "sp":
            out += " "
        else:
            out += prose(child) + ("\n\n" if child.tag == "para" else "")
        out += html.escape(child.tail or "", quote=False)
    return out


def described(member: ET.Element) -> str:
    parts = [prose(member.find(name)) for name in ("briefdescription", "detaileddescription")]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def signature(member: ET.Element) -> str:
    kind, text = member.get("kind"), flat(member.find("definition")) + flat(member.find("argsstring"))
    parameters = member.find("templateparamlist")
    if parameters is not None:
        names = [f"{flat(p.find('type'))} {flat(p.find('declname'))}".strip() for p in parameters.findall("param")]
        text = f"template <{', '.join(names)}>\n{text}"
    if kind == "enum":
        text = f"enum {flat(member.find('name'))} {{ {', '.join(flat(v.find('name')) for v in member.findall('enumvalue'))} }}"
    if kind == "variable":
        text += (" " + flat(member.find("initializer"))).rstrip()
    return re.sub(rf"(?:\w+::)+(?={re.escape(flat(member.find('name')))})", "", text.replace("lockstep::", "")) + ";"


def members(compound: ET.Element) -> str:
    out = ""
    for member in compound.iter("memberdef"):
        name = flat(member.find("name"))
        if member.get("prot") != "public" or member.get("kind") == "friend" or name.startswith("@"):
            continue
        out += f"```cpp\n{signature(member)}\n```\n\n"
        text = described(member)
        out += text + "\n\n" if text else ""
    return out


def page(header: str, source: str, compound: ET.Element, classes: dict[str, ET.Element]) -> str:
    out = f"# {header.removeprefix('lockstep/')}\n\n```cpp\n#include \"{header}\"\n```\n\n"
    if head := HEAD.search(source):
        out += re.sub(r"^/// ?", "", head.group(1), flags=re.M) + "\n"
    for inner in compound.findall("innerclass"):
        if inner.get("prot") in (None, "public") and (one := classes.get(inner.get("refid", ""))) is not None:
            out += f"## {one.get('kind')} {flat(one.find('compoundname')).rpartition('::')[2]}\n\n{described(one)}\n\n{members(one)}"
    free = members(compound)
    return out + (f"## Functions and types\n\n{free}" if free else "")


def write_pages(root: pathlib.Path, xml: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """The pages, a folder a layer, with an index; returns their paths below `folder`."""
    compounds = {c.get("id", ""): c for file in xml.glob("*.xml") if file.name != "index.xml"
                 for c in ET.parse(file).getroot().findall("compounddef")}
    pages = []
    for compound in compounds.values():
        if compound.get("kind") != "file":
            continue
        header = compound.find("location").get("file")  # type: ignore[union-attr]
        header = header if header.startswith("lockstep/") else header.partition("include/")[2]  # type: ignore[union-attr]
        path = pathlib.Path(header).relative_to("lockstep").with_suffix(".md")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(page(header, (root / "include" / header).read_text(), compound, compounds))
        pages.append(str(path))
    pages.sort()
    index, layer = "# C++: the promised headers\n", ""
    for name in pages:
        if name.split("/")[0] != layer:
            layer = name.split("/")[0]
            index += f"\n## {layer}\n\n"
        index += f"- [{name.removesuffix('.md')}.h]({name})\n"
    (folder / "README.md").write_text(index)
    return pages
