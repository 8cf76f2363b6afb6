// Charts of the numbers in a table of the same page: each row has its columns in data-row. What
// is drawn again when the page refreshes is drawn from the rows that are there then.
const drawn = new Map(); // element -> { chart, width }
let library;

const load = () => library ??= new Promise((done, fail) => {
  const s = document.createElement("script");
  s.src = new URL("../vendor/uplot/uPlot.iife.min.js", import.meta.url);
  s.onload = done;
  s.onerror = fail;
  document.head.append(s);
});

// color returns a design token in the form that a canvas accepts, for the current theme.
const probe = document.createElement("i");
const color = (name) => {
  if (!probe.isConnected) { probe.hidden = true; document.body.append(probe); }
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const bytes = (v) => { let i = 0; while (v >= 1024 && i < units.length - 1) { v /= 1024; i++; } return `${+v.toFixed(1)} ${units[i]}`; };
const seconds = (v) => v >= 120 ? `${+(v / 60).toPrecision(3)} min` : `${+v.toPrecision(3)} s`;
const words = { n: (v) => `${+v.toFixed(2)}`, s: seconds, B: bytes };

const clock = (long) => {
  const f = new Intl.DateTimeFormat(undefined, long ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return (t) => f.format(new Date(t * 1000));
};
const moment = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

// read gives all columns, with a gap for each step that has no row.
function read(table) {
  const { step, from, to } = table.dataset;
  const rows = new Map();
  for (const r of table.querySelectorAll("[data-row]")) {
    const cells = r.dataset.row.split(",").map((c) => c === "" ? null : Number(c));
    rows.set(cells[0], cells);
  }
  const columns = Array.from({ length: 8 }, () => []);
  for (let t = Number(from); t <= Number(to); t += Number(step)) {
    const row = rows.get(t);
    columns.forEach((c, i) => c.push(i === 0 ? t : row?.[i] ?? null));
  }
  return columns;
}

// least is where an axis ends that has nothing, or little, to show.
const least = { n: 4, s: 1, B: 1024 };

// latest is the newest number of a line, shown while nothing is pointed at.
const latest = (numbers) => numbers?.findLast((v) => v != null);

const powersOfTwo = Array.from({ length: 51 }, (_, i) => 2 ** i); // distances of the ticks of sizes

const looks = [{ stroke: "accent", width: 1.75 }, { stroke: "ink-2", width: 1.25, dash: [4, 3] }];

function make(el, columns, table) {
  const lines = el.dataset.lines.split(",").map((l) => l.split("="));
  const say = words[el.dataset.unit], at = clock(table.dataset.range === "7d");
  const axis = { stroke: () => color("ink-3"), font: "11px Inter, system-ui, sans-serif", grid: { stroke: () => color("line"), width: 1 }, ticks: { show: false } };
  const alone = (u, i) => { // a dot where a line has no neighbor to connect it to
    const d = u.data[i], list = [];
    for (let k = 0; k < d.length; k++) if (d[k] != null && d[k - 1] == null && d[k + 1] == null) list.push(k);
    return list.length ? list : null;
  };
  return new uPlot({
    width: el.clientWidth, height: 150, cursor: { sync: { key: "dashboard" }, y: false, points: { size: 6 }, drag: { x: false, y: false } }, legend: { live: true, markers: { dash: (u, i) => i > 1 ? "dashed" : "solid" } },
    scales: { y: { range: (u, low, high) => [0, Math.max(high * 1.1, least[el.dataset.unit])] } },
    axes: [
      { ...axis, grid: { show: false }, values: (u, all) => all.map(at), space: 64, size: 30 },
      { ...axis, ...(el.dataset.unit === "B" && { incrs: powersOfTwo }), values: (u, all) => all.map((v) => el.dataset.unit === "n" && v % 1 ? "" : say(v)), size: 62, space: 34 },
    ],
    series: [
      { label: "at", value: (u, t) => t == null ? "the latest" : moment.format(new Date(t * 1000)) },
      ...lines.map(([label], i) => ({
        label, width: looks[i].width, dash: looks[i].dash, stroke: () => color(looks[i].stroke),
        points: { show: true, filter: alone, size: 4 }, value: (u, v, s, at) => { v = at == null ? latest(u.data[s]) : v; return v == null ? "-" : say(v); },
      })),
    ],
  }, pick(columns, lines), el);
}

const pick = (columns, lines) => [columns[0], ...lines.map(([, i]) => columns[i])];

async function draw() {
  for (const [el, c] of drawn) if (!el.isConnected) { c.destroy(); sizes.unobserve(el); drawn.delete(el); }
  const table = document.querySelector("table[data-series]");
  if (!table) return;
  await load();
  const columns = read(table);
  for (const el of document.querySelectorAll("[data-chart]")) {
    const had = drawn.get(el);
    if (had && el.dataset.range === table.dataset.range) {
      had.setData(pick(columns, el.dataset.lines.split(",").map((l) => l.split("="))));
      continue;
    }
    had?.destroy();
    el.hidden = false;
    el.dataset.range = table.dataset.range;
    drawn.set(el, make(el, columns, table));
    sizes.observe(el);
  }
}

const sizes = new ResizeObserver((list) => {
  for (const { target } of list) {
    const c = drawn.get(target);
    if (c && target.clientWidth && c.width !== target.clientWidth) c.setSize({ width: target.clientWidth, height: 150 });
  }
});

export function charts() {
  const again = () => { for (const c of drawn.values()) c.redraw(false, true); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("colors", again);
  document.addEventListener("htmx:after:swap", draw);
  document.fonts?.ready.then(again);
  draw();
}
