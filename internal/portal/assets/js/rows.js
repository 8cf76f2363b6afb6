// Rows of tables: a refresh leaves out those that the page has, and no row moves under the pointer.
let held = false;

// heldRows reports whether rows are out of order or missing because the pointer was over them.
export const heldRows = () => held;

// knownRows names the rows that the page has, by their marks.
export function knownRows() {
  return [...document.querySelectorAll("main tr[data-mark]")].slice(0, 1000).map((r) => r.dataset.mark).join(" ");
}

// mergeRows puts the rows that the page has into a refreshed part of the page.
export function mergeRows(text) {
  const part = document.createElement("template");
  part.innerHTML = text;
  for (const row of part.content.querySelectorAll("tr[data-same]")) {
    const own = document.getElementById(row.id);
    if (own) row.replaceWith(document.importNode(own, true));
  }
  held = false;
  for (const table of document.querySelectorAll("main tbody[data-rows]:hover")) {
    const next = part.content.querySelector(`tbody[data-rows="${table.dataset.rows}"]`);
    if (next) keepOrder(table, next);
  }
  return part.innerHTML;
}

// keepOrder puts the rows of now into next, in their order and with their new content.
function keepOrder(now, next) {
  const rows = new Map([...next.rows].map((r) => [r.id, r]));
  const order = [...now.rows].map((r) => rows.get(r.id) ?? document.importNode(r, true));
  held = order.length !== rows.size || [...rows.keys()].some((id, i) => order[i].id !== id);
  if (held) next.replaceChildren(...order);
}

const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

// age is a number of seconds in the two largest units, as the server writes it.
function age(s) {
  const i = Math.max(units.findIndex(([, n]) => s >= n), 0);
  if (s < 60) return `${s} s`;
  const [unit, n] = units[i], [small, m] = units[i + 1];
  return `${Math.floor(s / n)} ${unit} ${String(Math.floor((s % n) / m)).padStart(2, "0")} ${small}`;
}

// ages lets the ages on the page count on.
export function ages() {
  setInterval(() => {
    if (document.hidden) return;
    for (const t of document.querySelectorAll("main time:not([data-clock])")) {
      const found = /^\d+ (?:ms|[dhms])\b.*?( ago)?$/.exec(t.textContent);
      if (!found) continue;
      const s = Math.floor((Date.now() - Date.parse(t.dateTime)) / 1000);
      const text = age(Math.max(s, 0)) + (found[1] ?? "");
      if (s >= 1 && t.textContent !== text) t.textContent = text;
    }
  }, 1000);
}
