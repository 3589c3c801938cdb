'use strict';
// Draws the page from the JSON in #data. Text from files only ever becomes textContent.
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const root = document.documentElement;
const color = (name) => getComputedStyle(root).getPropertyValue('--' + name).trim();
let plan = data.plans[0];
// The plan to open on: the shortest step of those that fit.
const best = data.plans.reduce((a, p, i) => {
  const b = data.plans[a];
  return p.feasible !== b.feasible ? (p.feasible ? i : a) : p.step < b.step ? i : a;
}, 0);

// ---- text ----
const milliseconds = (ns) => {
  const ms = ns / 1e6;
  return (ms >= 100 ? ms.toFixed(1) : ms >= 1 ? ms.toFixed(2) : ms.toFixed(3)) + ' ms';
};
const bytes = (n) => {
  for (const [unit, size] of [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]]) {
    if (n >= size) return (n / size).toFixed(2) + ' ' + unit;
  }
  return n + ' B';
};
const rate = (step) => {
  const n = data.batch / (step / 1e9);
  return n >= 100 ? Math.round(n).toLocaleString('en') : n.toPrecision(3);
};
const percent = (part, whole) => (whole > 0 ? (100 * part / whole).toFixed(0) : '0') + ' %';

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'style') Object.assign(node.style, value);
    else if (value !== undefined) node[key] = value;
  }
  node.append(...children.map((c) => c instanceof Node ? c : document.createTextNode(c)));
  return node;
}
const replace = (id, ...children) => byId(id).replaceChildren(...children);

// ---- tooltip ----
const tip = byId('tip');
function showTip(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + 'px';
  tip.style.top = (event.clientY + 18 + box.height > innerHeight
    ? event.clientY - box.height - 10 : event.clientY + 18) + 'px';
}

// A canvas at the resolution of the screen; its width is that of its box.
function prepare(canvas, height) {
  const scale = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (height) canvas.style.height = height + 'px';
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round((height || canvas.clientHeight) * scale);
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height || canvas.clientHeight);
  context.font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  return [context, width, height || canvas.clientHeight];
}

function legend(id, entries) {
  replace(id, ...entries.map(([name, label]) => element('span', {},
    element('i', {style: {background: `var(--${name})`}}), label)));
}

// rows: {name, value, parts: [[colour name, number, what]], of}
function bars(id, rows) {
  replace(id, ...rows.map((row) => {
    const track = element('div', {className: 'track'}, ...row.parts.map(([name, part]) =>
      element('span', {style: {width: Math.max(0, 100 * part / row.of) + '%', background: `var(--${name})`}})));
    const line = element('div', {className: 'bar'},
      element('span', {className: 'name', title: row.name}, row.name), track,
      element('span', {className: 'value'}, row.value));
    line.onmousemove = (e) => showTip(e, row.tip || row.name + '\n' + row.value);
    line.onmouseleave = () => showTip(null, '');
    return line;
  }));
}

// ---- header and planners ----
function drawTiles() {
  const step = plan.step;
  const best = data.planners.filter((p) => p.baseline && p.feasible)
    .reduce((a, b) => (!a || b.step < a.step ? b : a), null);
  const fullest = plan.devices.reduce((a, b) => b.peak / b.capacity > a.peak / a.capacity ? b : a);
  const bound = plan.bounds.step;
  const busy = plan.devices.reduce((sum, d) => sum + d.busy, 0) / plan.devices.length;
  const tiles = [
    ['step', milliseconds(step), plan.feasible ? 'fits in memory' : 'does not fit in memory', !plan.feasible],
    ['samples a second', rate(step), plan.measured ? 'measured: ' + rate(plan.measured) : `batch ${data.batch}`],
    ['over the best baseline', best ? (best.step - step >= 0 ? '+' : '') + (100 * (best.step - step) / step).toFixed(1) + ' %' : '–',
      best ? best.name + ', ' + milliseconds(best.step) : 'no baseline fits'],
    ['devices compute', percent(busy, step), 'of the step, on average'],
    ['fullest memory', percent(fullest.peak, fullest.capacity), fullest.name, fullest.peak > fullest.capacity],
    ['above the bound of any order', '+' + (100 * (step - bound) / bound).toFixed(1) + ' %', milliseconds(bound)],
  ];
  replace('tiles', ...tiles.map(([label, value, note, bad]) => element('div', {className: 'tile'},
    element('span', {className: 'muted'}, label), element('b', {className: bad ? 'bad' : ''}, value),
    element('span', {className: 'muted'}, note))));
  byId('title').textContent = data.graph + ' on ' + data.cluster;
  byId('subtitle').textContent = `batch ${data.batch} · plan of ${plan.planner} · order ${plan.order} · ` +
    `${plan.tasks.kind.length.toLocaleString('en')} tasks`;
}

function drawPlanners() {
  const longest = Math.max(...data.planners.map((p) => p.step));
  const best = data.planners.filter((p) => p.baseline && p.feasible).map((p) => p.step);
  const base = best.length ? Math.min(...best) : null;
  const head = element('tr', {}, element('th', {}, 'planner'), element('th', {className: 'number'}, 'step'),
    element('th', {className: 'number'}, 'samples/s'), element('th', {className: 'wide', style: {width: '40%'}}, ''), element('th', {className: 'number'}, 'over the best baseline'),
    element('th', {}, 'memory'));
  const rows = [...data.planners].sort((a, b) => b.feasible - a.feasible || a.step - b.step).map((p) =>
    element('tr', {className: p.baseline ? '' : 'given'},
      element('td', {}, p.name),
      element('td', {className: 'number'}, milliseconds(p.step)),
      element('td', {className: 'number'}, rate(p.step)),
      element('td', {className: 'wide'}, element('div', {className: 'track'}, element('span',
        {style: {width: 100 * p.step / longest + '%', background: p.feasible ? (p.baseline ? 'var(--combine)' : 'var(--accent)') : 'var(--line)'}}))),
      element('td', {className: 'number'}, p.feasible && base !== null ? (base >= p.step ? '+' : '') + (100 * (base - p.step) / p.step).toFixed(1) + ' %' : '–'),
      element('td', {className: p.feasible ? 'memory' : 'memory no'}, p.feasible ? 'fits' : 'lacks ' + bytes(p.missing))));
  replace('planners', element('thead', {}, head), element('tbody', {}, ...rows));
}

// ---- time line ----
const kindColors = ['forward', 'backward', 'update', 'combine', 'transfer', 'combine', 'all-reduce', 'push', 'pull', 'combine'];
const kindNames = ['forward', 'backward', 'update', 'merge', 'transfer', 'sum', 'all-reduce', 'push', 'pull', 'overhead'];
const timeline = byId('timeline');
const laneHeight = 20, laneGap = 3, axisHeight = 24;
let gutter = 128;
let view = {from: 0, to: 1};
let lanes = [];

function chooseLanes() {
  const all = byId('show-idle').checked;
  lanes = plan.lanes.filter((lane) => lane.start.length || lane.kind === 'device' || lane.kind === 'measured' || (all && lane.kind === 'link'));
}

// What was measured, where it is drawn as long as what was predicted: how much shorter.
const aligned = () => Boolean(plan.measured) && byId('align').checked;
const scaleOf = (lane) => lane.kind === 'measured' && aligned() ? plan.step / plan.measured : 1;

function niceStep(span, count) {
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
}

function drawTimeline() {
  const height = axisHeight + lanes.length * (laneHeight + laneGap) + 4;
  const [g, width] = prepare(timeline, height);
  gutter = Math.min(128, Math.round(width * 0.3));
  const plot = width - gutter, span = view.to - view.from;
  const x = (t) => gutter + (t - view.from) / span * plot;
  const onlyCritical = byId('only-critical').checked;
  const colors = kindColors.map(color), ink = color('ink'), muted = color('muted'), track = color('track');
  g.textBaseline = 'middle';
  const tick = niceStep(span, Math.max(2, plot / 110));
  for (let t = Math.ceil(view.from / tick) * tick; t <= view.to; t += tick) {
    g.fillStyle = color('line');
    g.fillRect(x(t), axisHeight - 6, 1, height);
    g.fillStyle = muted;
    const label = +(t / 1e6).toFixed(4) + ' ms';
    if (x(t) + 3 + g.measureText(label).width < width) g.fillText(label, x(t) + 3, 9);
  }
  lanes.forEach((lane, row) => {
    const y = axisHeight + row * (laneHeight + laneGap), scale = scaleOf(lane);
    g.fillStyle = lane.kind === 'device' ? ink : muted;
    g.save();
    g.beginPath();
    g.rect(0, y, gutter - 6, laneHeight);
    g.clip();
    g.fillText(lane.name, 0, y + laneHeight / 2);
    g.restore();
    g.fillStyle = track;
    g.fillRect(gutter, y, plot, laneHeight);
    g.save();
    g.beginPath();
    g.rect(gutter, y, plot, laneHeight);
    g.clip();
    // Rectangles narrower than a pixel: one a pixel and colour.
    let drawnTo = -1, drawnKind = -1;
    for (let i = firstVisible(lane); i < lane.start.length && lane.start[i] * scale < view.to; ++i) {
      const task = lane.task[i], critical = plan.tasks.critical[task];
      const left = x(lane.start[i] * scale), right = x((lane.start[i] + lane.length[i]) * scale);
      const kind = plan.tasks.kind[task];
      if (right <= drawnTo && kind === drawnKind && !critical) continue;
      const w = Math.max(right - left, 0.75);
      g.globalAlpha = onlyCritical && !critical ? 0.12 : 1;
      g.fillStyle = colors[kind];
      g.fillRect(left, y, w > 3 ? w - 0.5 : w, laneHeight);
      if (critical && !onlyCritical) {
        g.globalAlpha = 1;
        g.fillStyle = ink;
        g.fillRect(left, y, w, 2);
        g.fillRect(left, y + laneHeight - 2, w, 2);
      }
      if (w > 46 && g.globalAlpha === 1) {
        g.fillStyle = '#fff';
        g.save();
        g.beginPath();
        g.rect(left, y, w - 3, laneHeight);
        g.clip();
        g.fillText(plan.strings[plan.tasks.name[task]], Math.max(left, gutter) + 4, y + laneHeight / 2 + 0.5);
        g.restore();
      }
      if (right > drawnTo) { drawnTo = Math.ceil(right); drawnKind = kind; }
    }
    g.globalAlpha = 1;
    g.restore();
  });
}

// The first task of a lane that ends after the left edge; tasks of a lane follow one another.
function firstVisible(lane) {
  const scale = scaleOf(lane);
  let low = 0, high = lane.start.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((lane.start[middle] + lane.length[middle]) * scale > view.from) high = middle; else low = middle + 1;
  }
  return low;
}

// The step, or what was measured of it where that took longer.
const whole = () => aligned() ? plan.step : Math.max(plan.step, plan.measured || 0);

function setView(from, to) {
  const span = Math.min(Math.max(to - from, 1000), whole());
  from = Math.min(Math.max(from, 0), whole() - span);
  view = {from, to: from + span};
  requestAnimationFrame(drawTimeline);
}
function zoom(factor, at) {
  const span = (view.to - view.from) * factor;
  const middle = at === undefined ? (view.from + view.to) / 2 : at;
  const share = (middle - view.from) / (view.to - view.from);
  setView(middle - share * span, middle + (1 - share) * span);
}
const timeAt = (event) => {
  const box = timeline.getBoundingClientRect();
  return view.from + (event.clientX - box.left - gutter) / (box.width - gutter) * (view.to - view.from);
};
function taskAt(event) {
  const y = event.clientY - timeline.getBoundingClientRect().top - axisHeight;
  const lane = lanes[Math.floor(y / (laneHeight + laneGap))];
  if (!lane || y < 0) return '';
  // A finger is no wider than a few pixels of a lane, and no narrower.
  const near = event.pointerType === 'touch' ? 8 : 1;
  const scale = scaleOf(lane), time = timeAt(event) / scale;
  const slack = near * (view.to - view.from) / timeline.clientWidth / scale;
  for (let i = firstVisible(lane); i < lane.start.length && lane.start[i] <= time + slack; ++i) {
    if (lane.start[i] + lane.length[i] < time - slack) continue;
    const task = lane.task[i], t = plan.tasks;
    let text = `${kindNames[t.kind[task]]} ${plan.strings[t.name[task]]}\n` +
      `${milliseconds(lane.length[i])} from ${milliseconds(lane.start[i])}` +
      `, samples ${t.begin[task]} to ${t.end[task]}`;
    if (t.bytes[task]) text += `, ${bytes(t.bytes[task])}`;
    if (t.critical[task]) text += '\non the critical path';
    return lane.name + '\n' + text;
  }
  return '';
}
timeline.addEventListener('wheel', (e) => {
  e.preventDefault();
  if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
    const move = e.deltaX / timeline.clientWidth * (view.to - view.from);
    setView(view.from + move, view.to + move);
  } else {
    zoom(1.0015 ** e.deltaY, timeAt(e));
  }
}, {passive: false});
// Pointers that are down: one drags, two zoom about what is between them.
const pointers = new Map();
let drag = null, pinch = null;
const between = () => {
  const [a, b] = [...pointers.values()];
  return {clientX: (a.clientX + b.clientX) / 2, distance: Math.max(24, Math.abs(a.clientX - b.clientX))};
};
timeline.addEventListener('pointerdown', (e) => {
  pointers.set(e.pointerId, e);
  timeline.setPointerCapture(e.pointerId);
  drag = pointers.size === 1 ? {x: e.clientX, y: e.clientY, from: view.from, to: view.to, moved: false} : null;
  if (pointers.size === 2) {
    const {clientX, distance} = between();
    pinch = {at: timeAt({clientX}), distance, span: view.to - view.from};
  }
  timeline.classList.add('dragging');
});
timeline.addEventListener('pointermove', (e) => {
  if (pointers.has(e.pointerId)) pointers.set(e.pointerId, e);
  if (pinch && pointers.size === 2) {
    const {clientX, distance} = between(), box = timeline.getBoundingClientRect();
    const span = pinch.span * pinch.distance / distance;
    const from = pinch.at - (clientX - box.left - gutter) / (box.width - gutter) * span;
    return setView(from, from + span);
  }
  if (!drag) return showTip(e, taskAt(e));
  if (Math.abs(e.clientX - drag.x) > 4) drag.moved = true;
  const move = (drag.x - e.clientX) / (timeline.clientWidth - gutter) * (drag.to - drag.from);
  setView(drag.from + move, drag.to + move);
});
function release(e) {
  pointers.delete(e.pointerId);
  if (e.type === 'pointerup' && drag && !drag.moved) showTip(e, taskAt(e));
  drag = pinch = null;
  if (!pointers.size) timeline.classList.remove('dragging');
}
timeline.addEventListener('pointerup', release);
timeline.addEventListener('pointercancel', release);
timeline.addEventListener('pointerleave', (e) => { if (e.pointerType !== 'touch') showTip(null, ''); });
// A tap elsewhere, or scrolling, puts away what a tap has shown.
addEventListener('pointerdown', (e) => { if (e.pointerType === 'touch') showTip(null, ''); }, true);
addEventListener('scroll', () => showTip(null, ''), {passive: true});
timeline.addEventListener('dblclick', () => setView(0, whole()));
timeline.addEventListener('keydown', (e) => {
  const move = (view.to - view.from) / 8;
  if (e.key === 'ArrowLeft') setView(view.from - move, view.to - move);
  else if (e.key === 'ArrowRight') setView(view.from + move, view.to + move);
  else if (e.key === '+' || e.key === '=') zoom(0.7);
  else if (e.key === '-') zoom(1 / 0.7);
  else if (e.key === '0') setView(0, whole());
  else return;
  e.preventDefault();
});
byId('zoom-in').onclick = () => zoom(0.6);
byId('zoom-out').onclick = () => zoom(1 / 0.6);
byId('zoom-all').onclick = () => setView(0, whole());
byId('only-critical').onchange = drawTimeline;
byId('align').onchange = () => { drawAligned(); setView(0, whole()); };
byId('show-idle').onchange = () => { chooseLanes(); drawTimeline(); };

// ---- why ----
function drawWhy() {
  const step = plan.step;
  replace('path', ...plan.path.map((line) => {
    const item = element('li', {},
      element('span', {className: 'time'}, milliseconds(line.length),
        element('span', {className: 'length', style: {width: 100 * line.length / step + '%'}})),
      element('span', {}, element('div', {className: 'what'}, line.what),
        element('div', {className: 'why'}, line.why ? line.why : 'with the step')));
    item.onclick = () => {
      const margin = Math.max(line.length * 0.1, 1000);
      setView(line.begin - margin, line.begin + line.length + margin);
      timeline.scrollIntoView({behavior: 'smooth', block: 'center'});
    };
    return item;
  }));
  const bound = (name, value, what) => ({name, value: milliseconds(value), of: step,
    parts: [['accent', value]], tip: what + '\n' + milliseconds(value) + ', ' + percent(value, step) + ' of the step'});
  const b = plan.bounds;
  bars('bounds', [
    bound('this step', step, 'The simulated step'),
    bound('its longest chain', b.plan_chain, 'Tasks of this plan that follow one another'),
    bound('its busiest device', b.plan_device, 'Work that this plan gives to one device'),
    bound('its busiest link', b.plan_link, 'Bytes over bandwidth of one link'),
    bound('its collectives', b.plan_collectives, 'Collectives of this plan that exclude one another'),
    bound('one resource', b.plan_one_machine, 'What one stream, channel or link does, after what comes before and before what follows'),
    bound('two resources', b.plan_two_machines, 'A stream and the link that it feeds'),
  ]);
  bars('kinds', plan.by_kind.map((k) => ({name: k.name, value: milliseconds(k.time), of: step,
    parts: [[kindColors[kindNames.indexOf(k.name)], k.time]]})));
  const useful = plan.upgrades.filter((u) => step - u.step >= step / 1000).slice(0, 8);
  byId('no-upgrade').hidden = useful.length > 0;
  bars('upgrades', useful.map((u) => ({name: u.name, of: step,
    value: (u.step <= step ? '−' : '+') + milliseconds(Math.abs(step - u.step)), parts: [['good', Math.max(0, step - u.step)]],
    tip: `${u.name} twice as fast\nstep ${milliseconds(u.step)}, ${percent(step - u.step, step)} less`})));
  const spent = [['computing', 'forward', 'computes'], ['moving', 'transfer', 'what it needs is on its way'],
    ['queued', 'all-reduce', 'that waits for a link'], ['waiting', 'update', 'that is not made yet'],
    ['done', 'reserve', 'nothing left to do']];
  legend('times-legend', spent.map(([, name, label]) => [name, label]));
  bars('times', plan.times.map((t) => ({name: t.name, value: percent(t.computing, step), of: step,
    parts: spent.map(([key, name]) => [name, t[key]]),
    tip: t.name + '\n' + spent.map(([key, , label]) => `${label}: ${milliseconds(t[key])}`).join('\n') +
      (t.waits_for ? `\nwaits most for ${t.waits_for}` : '')})));
}

// ---- memory ----
const purposes = ['parameters', 'optimizer_state', 'gradients', 'activations', 'temporaries', 'buckets', 'workspace', 'buffers', 'reserve'];
function drawMemory() {
  legend('memory-legend', purposes.map((p) => [p, p.replace('_', ' ')]));
  const canvases = [];
  replace('memory', ...plan.devices.map((device, i) => {
    const canvas = element('canvas', {});
    const track = element('div', {className: 'track'}, ...purposes.map((p) => element('span',
      {style: {width: 100 * device.memory[p] / Math.max(device.capacity, device.peak) + '%', background: `var(--${p})`}})));
    track.onmousemove = (e) => showTip(e, `${device.name} at ${milliseconds(device.peak_at)}\n` +
      purposes.filter((p) => device.memory[p]).map((p) => `${p.replace('_', ' ')}: ${bytes(device.memory[p])}`).join('\n') +
      (device.largest.length ? '\n\nlargest\n' + device.largest.map((h) => `${h.name}: ${bytes(h.bytes)}, until ${h.until}`).join('\n') : ''));
    track.onmouseleave = () => showTip(null, '');
    canvases.push([canvas, device, plan.curves[i]]);
    return element('div', {className: 'device'},
      element('div', {className: 'head'}, element('span', {}, device.name),
        element('span', {className: device.peak > device.capacity ? 'no' : ''}, `${bytes(device.peak)} of ${bytes(device.capacity)}`)),
      canvas, track);
  }));
  for (const [canvas, device, curve] of canvases) {
    const [g, width, height] = prepare(canvas, 92);
    const top = Math.max(device.capacity, device.peak) * 1.06;
    const x = (t) => t / plan.step * width, y = (n) => height - n / top * height;
    g.fillStyle = color('track');
    g.fillRect(0, 0, width, height);
    g.beginPath();
    g.moveTo(0, height);
    curve.time.forEach((t, i) => {
      if (i) g.lineTo(x(t), y(curve.bytes[i - 1]));
      g.lineTo(x(t), y(curve.bytes[i]));
    });
    g.lineTo(width, y(curve.bytes[curve.bytes.length - 1]));
    g.lineTo(width, height);
    g.closePath();
    g.fillStyle = color('activations');
    g.globalAlpha = 0.75;
    g.fill();
    g.globalAlpha = 1;
    g.strokeStyle = color('bad');
    g.setLineDash([5, 4]);
    g.beginPath();
    g.moveTo(0, y(device.capacity));
    g.lineTo(width, y(device.capacity));
    g.stroke();
    g.setLineDash([]);
    g.fillStyle = color('ink');
    g.fillRect(x(device.peak_at) - 1, y(device.peak) - 1, 3, 3);
    canvas.onmousemove = (e) => {
      const time = (e.clientX - canvas.getBoundingClientRect().left) / width * plan.step;
      let low = 0, high = curve.time.length;
      while (low < high) { const middle = (low + high) >> 1; if (curve.time[middle] > time) high = middle; else low = middle + 1; }
      showTip(e, `${device.name} at ${milliseconds(time)}\n${bytes(curve.bytes[Math.max(0, low - 1)])}`);
    };
    canvas.onmouseleave = () => showTip(null, '');
  }
}

// ---- strategy ----
const wheel = ['#2f7fc1', '#e0961a', '#1f9e77', '#d2542c', '#7a6bd0', '#c565a0', '#94703a', '#4aa3a2', '#b5a642', '#6c7a89'];
const decisionColor = (i) => i < wheel.length ? wheel[i] : `hsl(${(i * 137.5) % 360} 45% 52%)`;
function drawStrategy() {
  const canvas = byId('strategy');
  const [g, width, height] = prepare(canvas, 56);
  const total = plan.groups.reduce((sum, group) => sum + group.seconds, 0);
  const edges = [0];
  plan.groups.forEach((group) => edges.push(edges[edges.length - 1] + group.seconds / total * width));
  g.fillStyle = color('track');
  g.fillRect(0, 0, width, height);
  plan.groups.forEach((group, i) => {
    const w = edges[i + 1] - edges[i];
    g.fillStyle = decisionColor(group.decision);
    g.fillRect(edges[i], 0, w > 3 ? w - 0.6 : Math.max(w, 0.3), height);
  });
  canvas.onmousemove = (e) => {
    const at = e.clientX - canvas.getBoundingClientRect().left;
    const i = Math.max(0, edges.findIndex((edge) => edge > at) - 1);
    const group = plan.groups[i];
    showTip(e, `group ${group.name}\n${percent(group.seconds, total)} of the time\n${plan.decisions[group.decision].text}`);
  };
  canvas.onmouseleave = () => showTip(null, '');
  const head = element('tr', {}, element('th', {}, 'decision'), element('th', {className: 'number'}, 'of the time'),
    element('th', {className: 'number'}, 'groups'));
  replace('decisions', element('thead', {}, head), element('tbody', {}, ...plan.decisions.map((d, i) => {
    const members = plan.groups.filter((group) => group.decision === i);
    return element('tr', {},
      element('td', {}, element('i', {className: 'swatch', style: {background: decisionColor(i)}}), d.text),
      element('td', {className: 'number'}, percent(members.reduce((sum, m) => sum + m.seconds, 0), total)),
      element('td', {className: 'number'}, String(members.length)));
  })));
}

// Lanes that are much longer than their predictions would leave these a stroke.
const kFarOff = 1.5;
function chooseAlignment() {
  const ratio = plan.measured ? plan.measured / plan.step : 1;
  byId('align-label').hidden = !plan.measured;
  byId('align').checked = ratio > kFarOff || ratio < 1 / kFarOff;
}
function drawAligned() {
  const ratio = plan.measured ? plan.measured / plan.step : 1;
  byId('aligned').hidden = !aligned();
  byId('aligned').textContent = `The measured step took ${milliseconds(plan.measured || 0)}, ` +
    `${ratio.toPrecision(3)} times the predicted one. Its lanes are drawn as long as the predicted ones; ` +
    'times at the top are predicted, those of a measured task are its own.';
}

// ---- all ----
function draw() {
  drawTiles();
  drawPlanners();
  chooseLanes();
  const kinds = new Set(plan.tasks.kind.map((kind) => kindColors[kind]));
  legend('legend', [['forward', 'forward'], ['backward', 'backward'], ['update', 'update'], ['combine', 'merge, sum, overhead'],
    ['transfer', 'transfer'], ['all-reduce', 'all-reduce'], ['push', 'push'], ['pull', 'pull']].filter(([name]) => kinds.has(name)));
  byId('legend').append(element('span', {}, element('i', {className: 'outlined'}), 'on the critical path'));
  drawAligned();
  drawTimeline();
  drawWhy();
  drawMemory();
  drawStrategy();
}
function choose(i) {
  plan = data.plans[i];
  byId('plan-picker').value = i;
  chooseAlignment();
  view = {from: 0, to: whole()};
  draw();
}
byId('plan-picker').append(...data.plans.map((p, i) => element('option', {value: i}, p.name)));
byId('plan-picker').onchange = (e) => choose(+e.target.value);
byId('plan-picker').parentElement.hidden = data.plans.length < 2;
const dark = matchMedia('(prefers-color-scheme: dark)');
root.classList.toggle('dark', dark.matches || location.hash === '#dark');
dark.onchange = () => { root.classList.toggle('dark', dark.matches); draw(); };
byId('theme').onclick = () => { root.classList.toggle('dark'); draw(); };
let resizing = 0;
addEventListener('resize', () => { cancelAnimationFrame(resizing); resizing = requestAnimationFrame(draw); });
choose(best);
