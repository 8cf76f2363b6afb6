// What was opened stays open when the page refreshes.
export function details() {
  let open = [];
  document.addEventListener("htmx:before:swap", () => { open = [...document.querySelectorAll("main details[id][open]")].map((d) => d.id); });
  document.addEventListener("htmx:after:swap", () => { for (const id of open) document.getElementById(id)?.setAttribute("open", ""); });
}
