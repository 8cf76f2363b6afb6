// Notifications of the browser about an instance that is watched, while its page is open, in a hidden tab too.
let watched = "";

// watching reports whether the page watches an instance.
export const watching = () => watched !== "";

// tell notifies of the state that a page shows, if it is another one.
function tell(page) {
  const b = page.querySelector("[data-watch]"), state = b?.dataset.watch ?? "Terminated";
  if (!watched || state === watched || !b && !page.querySelector("#raw")) return; // it is a page about an error
  new Notification(`${b?.dataset.name ?? page.querySelector("h1")?.textContent}: ${state}`, { tag: location.pathname });
  watched = b ? state : "";
}

const every = 10000; // that a hidden tab asks for the page, at most
let looked = 0, waiting;

// lookHidden asks for the page while its tab is hidden, where nothing is drawn.
export function lookHidden() {
  if (waiting) return;
  waiting = setTimeout(async () => {
    waiting = 0;
    if (!document.hidden || !watching()) return;
    looked = Date.now();
    const answer = await fetch(location.href, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (answer?.status === 200) tell(new DOMParser().parseFromString(await answer.text(), "text/html"));
  }, Math.max(0, looked + every - Date.now()));
}

export function watch() {
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
  document.addEventListener("htmx:after:swap", () => { tell(document); show(); });
  show();
}
