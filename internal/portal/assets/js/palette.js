// Search and commands over every page (Ctrl-K), and completion of filters.
export function palette() {
  const dialog = document.getElementById("palette"), field = document.getElementById("palette-q"), list = document.getElementById("palette-found");
  let asked = 0, wait;
  const links = () => [...list.querySelectorAll("a")];
  const select = (i) => {
    const all = links();
    for (const a of all) a.setAttribute("aria-selected", "false");
    const a = all[(i + all.length) % all.length];
    a?.setAttribute("aria-selected", "true");
    a?.scrollIntoView({ block: "nearest" });
  };
  const at = () => links().findIndex((a) => a.getAttribute("aria-selected") === "true");
  const find = async () => {
    const mine = ++asked;
    const answer = await fetch("/search?" + new URLSearchParams({ q: field.value }), { headers: { "HX-Request": "true" } }).catch(() => null);
    if (mine !== asked || !answer) return;
    if (answer.headers.get("HX-Redirect")) return void location.assign(answer.headers.get("HX-Redirect"));
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("found");
    if (!found) return;
    list.replaceChildren(...found.childNodes);
    select(0);
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
    if (e.key === "ArrowDown" || e.key === "ArrowUp") { e.preventDefault(); select(at() + (e.key === "ArrowDown" ? 1 : -1)); }
    if (e.key === "Enter") { e.preventDefault(); const a = links()[Math.max(at(), 0)]; if (a) e.ctrlKey ? window.open(a.href) : a.click(); }
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
  const close = () => { const b = box(); if (b) b.hidden = true; field()?.setAttribute("aria-expanded", "false"); };
  const options = () => [...(box()?.querySelectorAll("a") ?? [])];
  const at = () => options().findIndex((a) => a.getAttribute("aria-selected") === "true");
  const select = (i) => {
    const all = options();
    all.forEach((a, k) => a.setAttribute("aria-selected", k === (i + all.length) % all.length));
    all[at()]?.scrollIntoView({ block: "nearest" });
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
    q.setAttribute("aria-expanded", String(!b.hidden));
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
    if (e.target !== field() || box()?.hidden !== false) return;
    if (e.key === "ArrowDown" || e.key === "ArrowUp") { e.preventDefault(); select(at() + (e.key === "ArrowDown" ? 1 : -1)); }
    if (e.key === "Tab" || (e.key === "Enter" && at() >= 0)) { e.preventDefault(); take(options()[Math.max(at(), 0)]); }
    if (e.key === "Escape") { e.stopPropagation(); close(); }
    if (e.key === "Enter") { asked++; close(); }
  }, true);
  document.addEventListener("click", (e) => {
    const a = e.target.closest?.("[data-complete]");
    if (a) { e.preventDefault(); take(a); } else close();
  });
}
