// Search and commands over every page (Ctrl-K), and completion of filters.

// listbox makes the links of a list the options of a search field. The focus stays in the field.
function listbox(field, list) {
  const name = list.id;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Matches");
  for (const e of list.children) e.setAttribute("role", e.localName === "ul" ? "group" : "none");
  for (const ul of list.querySelectorAll("ul")) ul.setAttribute("aria-label", ul.previousElementSibling?.textContent ?? "");
  for (const li of list.querySelectorAll("li")) li.setAttribute("role", "none");
  list.querySelectorAll("a").forEach((a, i) => {
    a.id = name + "-" + i;
    a.tabIndex = -1;
    a.setAttribute("role", "option");
    a.setAttribute("aria-selected", "false");
  });
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-autocomplete", "list");
  field.setAttribute("aria-controls", name);
  field.setAttribute("aria-expanded", String(!list.hidden));
  field.removeAttribute("aria-activedescendant");
}

const selected = (list) => [...(list?.querySelectorAll("a") ?? [])].findIndex((a) => a.getAttribute("aria-selected") === "true");

// select marks one option of a list, counted from 0 and around its ends.
function select(field, list, i) {
  const all = [...list.querySelectorAll("a")], a = all[(i + all.length) % all.length];
  for (const each of all) each.setAttribute("aria-selected", String(each === a));
  if (!a) return;
  field.setAttribute("aria-activedescendant", a.id);
  a.scrollIntoView({ block: "nearest" });
}

export function palette() {
  const dialog = document.getElementById("palette"), field = document.getElementById("palette-q"), list = document.getElementById("palette-found");
  let asked = 0, wait, shown = "";
  const find = async () => {
    const mine = ++asked, text = field.value;
    const answer = await fetch("/search?" + new URLSearchParams({ q: field.value }), { headers: { "HX-Request": "true" } }).catch(() => null);
    if (mine !== asked || !answer) return;
    if (answer.headers.get("HX-Redirect")) return void location.assign(answer.headers.get("HX-Redirect"));
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("found");
    if (!found) return;
    list.replaceChildren(...found.childNodes);
    shown = text;
    listbox(field, list);
    select(field, list, 0);
  };
  // openMatch opens the selected match of what is typed now.
  const openMatch = async (inNewTab) => {
    clearTimeout(wait);
    if (shown !== field.value) await find();
    const a = shown === field.value && list.querySelectorAll("a")[Math.max(selected(list), 0)];
    if (a) inNewTab ? window.open(a.href) : a.click();
  };
  const open = () => {
    if (dialog.open) return void dialog.close();
    field.value = "";
    dialog.showModal();
    field.focus();
    find();
  };
  document.addEventListener("keydown", (e) => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); open(); return; }
    if (!dialog.open) return;
    if (e.key === "ArrowDown" || e.key === "ArrowUp") { e.preventDefault(); select(field, list, selected(list) + (e.key === "ArrowDown" ? 1 : -1)); }
    if (e.key === "Enter") { e.preventDefault(); openMatch(e.ctrlKey); }
  });
  document.addEventListener("click", (e) => {
    if (e.target.closest?.("[data-palette]")) { e.preventDefault(); open(); }
    if (e.target === dialog || e.target.closest?.("#palette a")) dialog.close();
  });
  field.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(find, 120); });
}

// completion offers fields and values for the last word of a filter.
export function completion() {
  let asked = 0, wait;
  const box = () => document.getElementById("complete");
  const field = () => document.getElementById("q");
  const close = () => {
    const b = box();
    if (!b || b.hidden) return;
    b.hidden = true;
    field().setAttribute("aria-expanded", "false");
    field().removeAttribute("aria-activedescendant");
  };
  const row = (name, text, count, value) => {
    const li = document.createElement("li"), a = document.createElement("a");
    a.href = "#";
    a.dataset.complete = value;
    a.append(Object.assign(document.createElement("code"), { textContent: name }), Object.assign(document.createElement("span"), { className: "faint", textContent: text }));
    if (count) a.append(Object.assign(document.createElement("span"), { className: "num", textContent: count }));
    li.append(a);
    return li;
  };
  const show = (found) => {
    const b = box(), q = field();
    if (!b || document.activeElement !== q) return;
    const parts = [];
    for (const [title, rows] of [["Values", found.values.map((v) => row(v.text, "", v.count, v.value + " "))], ["Fields", found.fields.map((f) => row(f.name + ":", f.text, 0, f.name + ":"))]]) {
      if (!rows.length) continue;
      const ul = document.createElement("ul");
      ul.append(...rows);
      parts.push(Object.assign(document.createElement("h3"), { textContent: title }), ul);
    }
    b.dataset.start = found.start;
    b.replaceChildren(...parts);
    b.hidden = !parts.length;
    listbox(q, b);
  };
  const find = async () => {
    const q = field(), b = box(), mine = ++asked;
    if (!q || !b) return;
    const answer = await fetch("/api/v1/filter/complete?" + new URLSearchParams({ resource: b.dataset.resource, q: q.value, limit: 8 })).catch(() => null);
    if (!answer?.ok || mine !== asked) return close();
    show((await answer.json()).body);
  };
  const take = (a) => {
    const q = field(), bytes = new TextEncoder().encode(q.value).slice(0, Number(box().dataset.start));
    q.value = new TextDecoder().decode(bytes) + a.dataset.complete;
    q.focus();
    close();
    q.dispatchEvent(new Event("input", { bubbles: true }));
  };
  document.addEventListener("input", (e) => {
    if (e.target !== field()) return;
    clearTimeout(wait);
    wait = setTimeout(find, 120);
  });
  document.addEventListener("keydown", (e) => {
    if (e.target !== field()) return;
    if (e.key === "Enter") { clearTimeout(wait); asked++; }
    if (box()?.hidden !== false) return;
    if (e.key === "ArrowDown" || e.key === "ArrowUp") { e.preventDefault(); select(field(), box(), selected(box()) + (e.key === "ArrowDown" ? 1 : -1)); }
    if (e.key === "Tab" || (e.key === "Enter" && selected(box()) >= 0)) { e.preventDefault(); take(box().querySelectorAll("a")[Math.max(selected(box()), 0)]); }
    if (e.key === "Escape") { e.stopPropagation(); close(); }
    if (e.key === "Enter") close();
  }, true);
  document.addEventListener("click", (e) => {
    const a = e.target.closest?.("[data-complete]");
    if (a) { e.preventDefault(); take(a); } else close();
  });
}
