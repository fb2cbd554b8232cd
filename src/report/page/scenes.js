// SPDX-License-Identifier: Apache-2.0
// Scenes of points in WebGL; it stands behind page.js. Mouse, touch and arrow keys turn a scene; the wheel, two
// fingers, + and - bring it nearer or move it away. One canvas shows one scene at a time. Where there is no WebGL the
// pictures on the page stay.

const vertexShader = `
attribute vec3 place, ink;
uniform vec3 middle, right, up, ahead;
uniform float far, end, lens, aspect, size, top;
varying vec3 colour;
void main() {
  vec3 from = place - middle;
  float depth = dot(from, ahead) + far;
  gl_Position = vec4(lens / aspect * dot(from, right), lens * dot(from, up), (2. * depth / end - 1.) * depth, depth);
  if (place.z > top || depth < .05 * far) gl_Position = vec4(2., 2., 2., 1.);
  gl_PointSize = max(1., size * lens / depth);
  colour = ink;
}`;
const fragmentShader = `
precision mediump float;
varying vec3 colour;
void main() { gl_FragColor = vec4(colour, 1.); }`;

const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const added = (parent, name, properties) => parent.appendChild(Object.assign(document.createElement(name), properties));

function programOf(gl) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, vertexShader], [gl.FRAGMENT_SHADER, fragmentShader]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  return gl.getProgramParameter(program, gl.LINK_STATUS) ? program : null;
}

// A scene's numbers as the canvas takes them: [low, high] of each axis, and three bytes of colour a voxel for each way
// to show it.
function sceneOf(item, palette) {
  const voxels = new Uint16Array(bytes(item.dataset.voxels).buffer), box = [0, 1, 2].map(() => [Infinity, -Infinity]);
  voxels.forEach((v, i) => {
    const range = box[i % 3];
    if (v < range[0]) range[0] = v;
    if (v > range[1]) range[1] = v;
  });
  const painted = labels => {
    const out = new Uint8Array(3 * labels.length), unknown = palette.length / 3 - 1;
    labels.forEach((label, i) => {
      const at = 3 * Math.min(label, unknown);
      out.set(palette.subarray(at, at + 3), 3 * i);
    });
    return out;
  };
  const inks = {truth: painted(bytes(item.dataset.truth)), prediction: painted(bytes(item.dataset.prediction))};
  if (item.dataset.colour) inks.colour = bytes(item.dataset.colour);
  return {voxels, inks, box, mark: +item.dataset.mark, name: item.dataset.name, found: item.dataset.found};
}

function choice(parent, label, names, choose) {
  const group = added(parent, 'div', {className: 'choice', role: 'group', ariaLabel: label});
  const buttons = names.map(name => added(group, 'button', {type: 'button', textContent: name}));
  const press = at => {
    buttons.forEach((button, i) => button.setAttribute('aria-pressed', i === at));
    choose(at);
  };
  buttons.forEach((button, i) => button.addEventListener('click', () => press(i)));
  press(0);
}

function viewScenes(card) {
  const canvas = document.createElement('canvas'), gl = canvas.getContext('webgl'), program = gl && programOf(gl);
  if (!program) return;
  const pictures = card.querySelector('ul'), palette = bytes(card.dataset.palette);
  const scenes = all(pictures, 'li').map(item => sceneOf(item, palette)), kinds = ['truth', 'prediction', 'colour'];
  const viewer = document.createElement('div');
  viewer.className = 'viewer';
  card.prepend(viewer);
  let scene = scenes[0], kind = 'truth', turn, tilt, distance, shown = .75;

  gl.useProgram(program);
  gl.enable(gl.DEPTH_TEST);
  const place = gl.createBuffer(), ink = gl.createBuffer();
  const uniform = (name, ...values) =>
    gl['uniform' + values.length + 'f'](gl.getUniformLocation(program, name), ...values);
  function fill(buffer, name, numbers, type, normalised) {
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, numbers, gl.STATIC_DRAW);
    const at = gl.getAttribLocation(program, name);
    gl.enableVertexAttribArray(at);
    gl.vertexAttribPointer(at, 3, type, normalised, 0, 0);
  }
  function draw() {
    const width = canvas.clientWidth * devicePixelRatio, height = canvas.clientHeight * devicePixelRatio;
    if (canvas.width !== Math.round(width) || canvas.height !== Math.round(height))
      [canvas.width, canvas.height] = [width, height];
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const [s, c, u, v] = [Math.sin(turn), Math.cos(turn), Math.sin(tilt), Math.cos(tilt)], {box} = scene;
    const radius = Math.max(1, Math.hypot(...box.map(([low, high]) => high - low)) / 2);
    uniform('middle', ...box.map(([low, high]) => (low + high) / 2));
    uniform('right', -s, c, 0);
    uniform('up', -u * c, -u * s, v);
    uniform('ahead', -v * c, -v * s, -u);
    uniform('far', distance * radius);
    uniform('end', (distance + 1) * radius);
    uniform('lens', 2);
    uniform('aspect', canvas.width / Math.max(1, canvas.height));
    uniform('size', 1.3 * scene.mark * canvas.height / 2);  // a voxel is wider over its corners
    uniform('top', box[2][0] + shown * (box[2][1] - box[2][0]));
    gl.drawArrays(gl.POINTS, 0, scene.voxels.length / 3);
  }
  function stand() { [turn, tilt, distance] = [-2.2, .8, 2.2]; }
  function move(turned, tilted, nearer) {
    turn += turned;
    tilt = Math.max(-.2, Math.min(Math.PI / 2, tilt + tilted));
    distance = Math.max(.4, Math.min(8, distance * nearer));
    draw();
  }
  function show() {
    fill(place, 'place', scene.voxels, gl.UNSIGNED_SHORT, false);
    fill(ink, 'ink', scene.inks[kind], gl.UNSIGNED_BYTE, true);
    draw();
  }

  stand();
  const heading = added(viewer, 'p', {className: 'muted'}), bar = added(viewer, 'div', {className: 'choices'});
  added(viewer, 'div', {className: 'stage'}).append(canvas);
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'img');
  choice(bar, 'Scene', scenes.map(one => one.name), at => {
    scene = scenes[at];
    if (!scene.inks[kind]) kind = 'truth';
    heading.textContent = scene.found;
    canvas.setAttribute('aria-label', scene.name + ', points that can be turned');
    show();
  });
  choice(bar, 'What is shown', scenes.every(one => one.inks.colour) ? kinds : kinds.slice(0, 2), at => {
    kind = kinds[at];
    show();
  });
  const label = added(bar, 'label', {textContent: 'height shown '});
  const cut = added(label, 'input', {type: 'range', min: 0, max: 1, step: .01, value: shown});
  cut.addEventListener('input', () => { shown = +cut.value; draw(); });
  added(viewer, 'p', {className: 'muted',
    textContent: 'Drag to turn; wheel or two fingers to come nearer; double click to begin again.'});

  const fingers = new Map();
  const spread = () => { const [a, b] = [...fingers.values()]; return Math.hypot(a.x - b.x, a.y - b.y) || 1; };
  canvas.addEventListener('pointerdown', event => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, {x: event.clientX, y: event.clientY});
  });
  canvas.addEventListener('pointermove', event => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = {x: event.clientX, y: event.clientY}, was = fingers.size === 2 ? spread() : 0;
    fingers.set(event.pointerId, now);
    if (fingers.size === 2) move(0, 0, was / spread());
    else move((before.x - now.x) / 150, (now.y - before.y) / 150, 1);
  });
  for (const end of ['pointerup', 'pointercancel'])
    canvas.addEventListener(end, event => fingers.delete(event.pointerId));
  canvas.addEventListener('wheel', event => {
    event.preventDefault();
    move(0, 0, Math.exp(event.deltaY / 600));
  }, {passive: false});
  canvas.addEventListener('dblclick', () => { stand(); draw(); });
  canvas.addEventListener('keydown', event => {
    const step = {
      ArrowLeft: [-.1, 0, 1], ArrowRight: [.1, 0, 1], ArrowUp: [0, .1, 1], ArrowDown: [0, -.1, 1],
      '+': [0, 0, .9], '-': [0, 0, 1 / .9]}[event.key];
    if (!step) return;
    event.preventDefault();
    move(...step);
  });
  canvas.addEventListener('webglcontextlost', () => { viewer.remove(); pictures.hidden = false; });
  new ResizeObserver(draw).observe(canvas);
  pictures.hidden = true;
}

all(document, '.scenes').forEach(viewScenes);
