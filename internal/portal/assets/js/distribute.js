// While an operation without change events runs, such as a pull, the page is refreshed often.
export function hurry() {
  setInterval(() => {
    if (!document.hidden && document.querySelector("main [data-quick]") && !document.querySelector("dialog[open]")) htmx.trigger(document.body, "changed");
  }, 2000);
}
