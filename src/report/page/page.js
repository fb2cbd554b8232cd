// SPDX-License-Identifier: Apache-2.0
// Tooltips on charts (mouse, touch, arrow keys), and buttons that hide runs. All values are in the charts' own
// elements.

'use strict';
const all = (root, what) => [...root.querySelectorAll(what)];
const numbers = text => text.split(' ').map(Number);
const ns = 'http://www.w3.org/2000/svg';
const shown = v => !isFinite(v) ? 'nan' : v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e6) ? v.toExponential(2)
  : String(+v.toPrecision(4));

function element(name, attributes, parent) {
  const made = document.createElementNS(ns, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  return parent.appendChild(made);
}

function scale(range, log, from, to) {
  const f = log ? Math.log : v => v, low = f(range[0]), high = f(range[1]);
  return v => from + (f(v) - low) / (high - low) * (to - from);
}

function equip(svg) {
  const [left, top, right, bottom] = numbers(svg.dataset.plot);
  const toX = scale(numbers(svg.dataset.xRange), 'xLog' in svg.dataset, left, right);
  const toY = scale(numbers(svg.dataset.yRange), 'yLog' in svg.dataset, bottom, top);
  const stacked = 'stacked' in svg.dataset;
  const lines = all(svg, 'g[data-series]').map(g => ({
    g, name: g.dataset.series, ink: g.dataset.ink, x: numbers(g.dataset.x), y: numbers(g.dataset.y)}));
  const stops = [...new Set(lines.flatMap(line => line.x))].sort((a, b) => a - b);
  const marks = element('g', {}, svg), tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  svg.parentNode.appendChild(tip);
  let at = -1;

  function hide() {
    tip.hidden = true;
    marks.replaceChildren();
  }
  function show(stop) {
    at = Math.max(0, Math.min(stops.length - 1, stop));
    const x = stops[at], rows = [];
    hide();
    element('line', {x1: toX(x), x2: toX(x), y1: top, y2: bottom, class: 'ink-axis', stroke: 'currentColor'}, marks);
    for (const line of lines) {
      if (line.g.hasAttribute('hidden') || !line.x.length) continue;
      let near = 0;
      line.x.forEach((value, i) => { if (Math.abs(value - x) < Math.abs(line.x[near] - x)) near = i; });
      if (Math.abs(toX(line.x[near]) - toX(x)) > 12) continue;
      if (!stacked && isFinite(line.y[near]))
        element('circle', {cx: toX(line.x[near]), cy: toY(line.y[near]), r: 4, class: line.ink, fill: 'currentColor'},
          marks);
      rows.push([line, line.y[near]]);
    }
    tip.replaceChildren();
    const row = (ink, words) => {
      const div = tip.appendChild(document.createElement('div'));
      if (ink) div.appendChild(Object.assign(document.createElement('span'), {className: 'swatch ' + ink}));
      div.append(words);
    };
    row('', svg.dataset.xLabel + ' ' + shown(x));
    for (const [line, y] of rows) row(line.ink, line.name + ' ' + shown(y));
    tip.hidden = false;
    const box = svg.getBoundingClientRect(), outer = svg.parentNode.getBoundingClientRect();
    const here = box.left - outer.left + toX(x) / svg.viewBox.baseVal.width * box.width;
    const room = outer.width - tip.offsetWidth - 4;
    const beside = here > outer.width / 2 ? here - tip.offsetWidth - 12 : here + 12;
    tip.style.left = Math.max(4, Math.min(room, beside)) + 'px';
    tip.style.top = box.top - outer.top + 8 + 'px';
  }
  function follow(event) {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    let near = 0;
    stops.forEach((value, i) => { if (Math.abs(toX(value) - x) < Math.abs(toX(stops[near]) - x)) near = i; });
    show(near);
  }
  if (!stops.length) return;
  svg.setAttribute('tabindex', 0);
  svg.addEventListener('pointermove', follow);
  svg.addEventListener('pointerdown', follow);
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('blur', hide);
  svg.addEventListener('keydown', event => {
    const move = {ArrowLeft: -1, ArrowRight: 1, Home: -stops.length, End: stops.length}[event.key];
    if (event.key === 'Escape') hide();
    if (!move) return;
    event.preventDefault();
    show(at + move);
  });
}

all(document, 'svg[data-plot]').forEach(equip);
all(document, '.runs button').forEach(button => button.addEventListener('click', () => {
  const on = button.getAttribute('aria-pressed') !== 'true';
  button.setAttribute('aria-pressed', on);
  for (const part of all(document, '[data-group="' + button.dataset.toggles + '"]'))
    part.toggleAttribute('hidden', !on);
}));
all(document, '.runs button').forEach(button => { button.disabled = false; });
