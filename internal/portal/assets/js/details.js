// What was opened stays open when the page refreshes.
export function details() {
  let open = [];
  document.addEventListener("htmx:before:swap", () => { open = [...document.querySelectorAll("main details[id][open]")].map((d) => d.id); });
  document.addEventListener("htmx:after:swap", () => { for (const id of open) document.getElementById(id)?.setAttribute("open", ""); });
  // An open menu, which the server does not know of, stays too, with what is chosen in it.
  htmx.registerExtension("menus", {
    htmx_before_morph_attr: (e, { attrName, newValue }) => !(attrName === "open" && newValue === null && e.matches("details.menu")),
  });
}
