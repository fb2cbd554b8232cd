# SPDX-License-Identifier: Apache-2.0
"""The findings as a page that needs nothing else: a timeline of the ranks' steps, the ranks' loss curves, the findings."""
from __future__ import annotations

from html import escape
from typing import Dict

from . import logs, report, trials

WIDTH, MOST = 1000, 120  # pixels, steps of the timeline
PARTS = {"wait": "waiting for the loader", "forward": "forward", "backward": "backward", "collectives": "collectives",
         "optimizer": "optimiser", "rest": "the program's own lines"}  # fmt: skip
_COLOURS = {"wait": "#d1495b", "forward": "#30638e", "backward": "#00798c", "collectives": "#edae49", "optimizer": "#7a5195",
            "rest": "#9a9a9a"}  # fmt: skip
_LINES = ("#30638e", "#d1495b", "#00798c", "#edae49", "#7a5195", "#66a182", "#8d5a2b", "#444444")
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}svg{width:100%;height:auto}text{font-size:12px;fill:currentColor}
article{border-left:4px solid #888;padding:.1em 1em;margin:1em 0}article.error{border-color:#c0392b}
article.warning{border-color:#e08e0b}article.note{border-color:#7f8c8d}pre{overflow-x:auto;padding:.6em;background:#8881}
dt{font-weight:600;float:left;clear:left;width:6em}dd{margin:0 0 0 6.5em}.key i{display:inline-block;width:1em;height:1em;margin:0 .3em 0 1em;
vertical-align:-.1em}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}}"""


def _parts(step: logs.Step) -> Dict[str, float]:
    return {**{kind: step.spans.get(kind, 0.0) for kind in PARTS}, "rest": max(0.0, step.rest)}


def _timeline(run: logs.Run) -> str:
    """A row a rank: its steps side by side, each divided by what it was spent on, in that order."""
    rows = {rank.number: rank.made_steps[:MOST] for rank in run.ranks}
    rows = {number: steps for number, steps in rows.items() if steps}
    if not rows:
        return "<p>No rank made two steps.</p>"
    begin = min(steps[0].begun for steps in rows.values())
    whole = max(steps[-1].begun + steps[-1].seconds for steps in rows.values()) - begin
    drawn = []
    for place, (number, steps) in enumerate(rows.items()):
        top = 24 * place
        drawn.append(f'<text x="0" y="{top + 15}">rank {number}</text>')
        for count, step in enumerate(steps):
            x = 60 + (step.begun - begin) / whole * (WIDTH - 60)
            for kind, seconds in _parts(step).items():
                wide = min(seconds, step.seconds) / whole * (WIDTH - 60)
                if wide > 0.02:
                    drawn.append(f'<rect x="{x:.2f}" y="{top + 2}" width="{wide:.2f}" height="18" fill="{_COLOURS[kind]}"><title>step '
                                 f"{count + 1}: {PARTS[kind]}, {1000 * seconds:.1f} ms of {1000 * step.seconds:.1f} ms</title></rect>")  # fmt: skip
                    x += wide
    key = "".join(f'<i style="background:{_COLOURS[kind]}"></i>{text}' for kind, text in PARTS.items())
    most = max(len(steps) for steps in rows.values())
    return (f'<svg viewBox="0 0 {WIDTH} {24 * len(rows) + 4}" role="img">{"".join(drawn)}</svg><p class="key">{key}</p>'
            f"<p>{most} steps, {whole:.2f} s. A step's parts are drawn in this order, whichever came first; in a gap other programs had the cores.</p>")  # fmt: skip


def _curves(run: logs.Run) -> str:
    """The loss of each backward pass of each rank."""
    curves = {rank.number: [each["loss"] for each in rank.of("backward") if each["loss"] is not None] for rank in run.ranks}
    curves = {number: [y for y in values if y == y and abs(y) < 1e30][:5000] for number, values in curves.items()}
    values = [y for each in curves.values() for y in each]
    if not values:
        return "<p>No loss was seen.</p>"
    low, high, long = min(values), max(values), max(len(each) for each in curves.values())
    high = high if high > low else low + 1
    drawn = [f'<text x="0" y="12">{high:.4g}</text><text x="0" y="236">{low:.4g}</text>']
    for number, each in curves.items():
        colour = _LINES[number % len(_LINES)]
        points = " ".join(f"{60 + i / max(1, long - 1) * (WIDTH - 60):.1f},{8 + (high - y) / (high - low) * 224:.1f}"
                          for i, y in enumerate(each))  # fmt: skip
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"><title>rank {number}</title></polyline>')
    key = "".join(f'<i style="background:{_LINES[number % len(_LINES)]}"></i>rank {number}' for number in curves)
    return f'<svg viewBox="0 0 {WIDTH} 240" role="img">{"".join(drawn)}</svg><p class="key">{key}</p>'


def _findings(judged: trials.Judged) -> str:
    made = []
    for each in judged.findings:
        rows = [("evidence", line) for line in each.evidence]
        rows += [("ranks", ", ".join(map(str, each.ranks))), ("where", each.where), ("costs", each.cost), ("rests on", each.rests_on)]
        listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows if text)
        fix = f"<pre>{escape(each.fix)}</pre>" if each.fix else ""
        made.append(f'<article class="{each.severity}"><h3>{each.severity}: {each.code}</h3><p>{escape(each.summary)}</p>'
                    f"<dl>{listed}</dl>{fix}</article>")  # fmt: skip
    return "".join(made) or "<p>Nothing was found.</p>"


def html(judged: trials.Judged) -> str:
    run = judged.run
    said = [report.watched(run, judged.outcome).removeprefix("doctor: ")] if run.ranks else []
    said += [judged.problem] * bool(judged.problem) + judged.lines
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Doctor</title><style>{_STYLE}</style><h1>What the doctor saw</h1>'
            + "".join(f"<p>{escape(line)}</p>" for line in said)
            + f"<h2>Findings</h2>{_findings(judged)}<h2>Steps</h2>{_timeline(run)}<h2>Losses</h2>{_curves(run)}</html>\n")  # fmt: skip
