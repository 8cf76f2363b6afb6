// Menus close when something else is used.
export function menus() {
  const close = (but) => { for (const m of document.querySelectorAll("details.menu[open]")) if (m !== but) m.open = false; };
  document.addEventListener("click", (e) => {
    const menu = e.target.closest?.("details.menu");
    close(e.target.closest?.("summary") ? menu : e.target.closest?.(".pop a, .pop button") ? null : menu);
    if (e.target.closest?.("[data-help]")) document.getElementById("help")?.showModal();
  });
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") close(null); });
}
