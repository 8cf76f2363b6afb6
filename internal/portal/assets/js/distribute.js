// While something goes on that tells of no changes, such as a pull, the page is asked for often.
export function hurry() {
  setInterval(() => {
    if (!document.hidden && document.querySelector("main [data-quick]") && !document.querySelector("dialog[open]")) htmx.trigger(document.body, "changed");
  }, 2000);
}
