// Notifications of the browser about an instance that is watched, while its page is open.
export function watch() {
  let watched = "";
  const button = () => document.querySelector("[data-watch]");
  const show = () => {
    const b = button();
    if (!b) return;
    b.hidden = !("Notification" in window);
    b.setAttribute("aria-pressed", watched !== "");
    b.textContent = watched ? "Notifying" : "Notify me";
  };
  document.addEventListener("click", async (e) => {
    if (!e.target.closest?.("[data-watch]")) return;
    if (watched) watched = "";
    else if (await Notification.requestPermission() === "granted") watched = button().dataset.watch;
    show();
  });
  document.addEventListener("htmx:after:swap", () => {
    const b = button(), state = b?.dataset.watch ?? "Terminated";
    if (watched && state !== watched) {
      new Notification(`${b?.dataset.name ?? document.querySelector("h1")?.textContent}: ${state}`, { tag: location.pathname });
      watched = b ? state : "";
    }
    show();
  });
  show();
}
