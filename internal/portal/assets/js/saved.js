// Filters that are kept in this browser by a name, each list's own. They are links: the filter itself is in the address.
export function savedFilters() {
  const key = (menu) => `filters-${menu.dataset.saved}`;
  const read = (menu) => {
    try {
      const list = JSON.parse(localStorage.getItem(key(menu)) ?? "[]");
      return Array.isArray(list) ? list.filter((f) => typeof f?.name === "string" && typeof f?.query === "string") : [];
    } catch { return []; }
  };
  const make = (tag, more, ...inner) => {
    const e = Object.assign(document.createElement(tag), more);
    e.append(...inner);
    return e;
  };
  const fill = () => {
    for (const menu of document.querySelectorAll("details[data-saved]")) {
      const list = menu.querySelector("[data-saved-list]"), filters = read(menu);
      menu.hidden = false;
      const rows = filters.map((f) => {
        const link = make("a", { href: `/${menu.dataset.saved}?${f.query}`, textContent: f.name });
        const drop = make("button", { type: "button", className: "copy", textContent: "\u00d7", ariaLabel: `Forget the filter ${f.name}` });
        drop.addEventListener("click", (e) => { e.stopPropagation(); keep(menu, read(menu).filter((o) => o.name !== f.name)); });
        return make("li", { className: "row" }, link, drop);
      });
      list.replaceChildren(...rows.length ? rows : [make("li", { className: "faint small", textContent: "No filter is kept yet." })]);
    }
  };
  const keep = (menu, list) => { localStorage.setItem(key(menu), JSON.stringify(list)); fill(); };
  document.addEventListener("submit", (e) => {
    const menu = e.target.closest?.("details[data-saved]");
    if (!menu) return;
    e.preventDefault();
    const name = new FormData(e.target).get("name").trim(), query = new URLSearchParams(location.search);
    query.delete("page");
    query.delete("cols");
    if (!name) return;
    keep(menu, [...read(menu).filter((f) => f.name !== name), { name, query: query.toString() }].slice(-50));
    e.target.reset();
  });
  document.addEventListener("htmx:after:swap", fill);
  fill();
}
