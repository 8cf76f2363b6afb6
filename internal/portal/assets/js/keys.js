// The keyboard. Keys that are typed into a field are that field's.
const typing = (e) => e.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

// Elements that Enter already activates; for a moment a button of a closed dialog may have the focus.
const pressable = (e) => e.target.closest?.("a, button, summary, input")?.checkVisibility();

let at = ""; // id of the row of the cursor; its class is away for a moment while the page refreshes

export function keys() {
  let went = 0; // when g was pressed
  document.addEventListener("htmx:after:swap", () => document.getElementById(at)?.classList.add("at"));
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
    if (typing(e)) { if (e.key === "Escape") e.target.blur(); return; }
    if (Date.now() - went < 1500) {
      went = 0;
      const to = document.querySelector(`#areas [data-key="${CSS.escape(e.key)}"]`);
      if (to) { e.preventDefault(); to.click(); return; }
    }
    const row = document.getElementById(at);
    switch (e.key) {
      case "g": went = Date.now(); break;
      case "/": e.preventDefault(); document.getElementById("q")?.focus(); document.getElementById("q")?.select(); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "x": row?.querySelector("input[type=checkbox]")?.click(); break;
      case "Enter": if (row && !pressable(e)) row.querySelector("a[href]")?.click(); break;
      case "?": document.getElementById("help")?.showModal(); break;
      default: return;
    }
  });
}

function move(by) {
  const rows = [...document.querySelectorAll("main tbody tr[id]")];
  if (!rows.length) return;
  const now = rows.findIndex((r) => r.id === at);
  const next = rows[Math.max(0, Math.min(rows.length - 1, now < 0 ? 0 : now + by))];
  rows[now]?.classList.remove("at");
  at = next.id;
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
}
