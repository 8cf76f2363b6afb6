// A log that is followed: new rows come above the others, until the reader scrolls down, selects text or opens a row.
const most = 1000; // rows that are kept
const period = 2000; // milliseconds between two requests

export function followLog() {
  let mode = "on", failed = false, asking = false;
  const button = () => document.getElementById("follow");
  const log = () => document.getElementById("log");
  const show = () => {
    for (const e of document.querySelectorAll("[data-needs-script]")) e.hidden = false;
    const b = button(), is = document.getElementById("follow-is");
    if (!b) return;
    b.textContent = mode === "on" ? "Following" : "Resume";
    b.setAttribute("aria-pressed", mode === "on");
    b.classList.toggle("p", mode === "on");
    is.hidden = false;
    is.dataset.is = mode !== "on" ? "paused" : failed ? "off" : "on";
    is.textContent = mode !== "on" ? "paused" : failed ? "reconnecting" : "live";
  };
  const set = (next) => { if (mode !== next) { mode = next; show(); } };
  const ask = async () => {
    const b = button();
    if (!b || mode !== "on" || document.hidden || asking) return;
    asking = true;
    const address = b.dataset.address, to = new URL(address, location.href);
    to.searchParams.set("since", log().querySelector("li[data-time]")?.dataset.time ?? b.dataset.now);
    try {
      const answer = await fetch(to, { headers: { "HX-Request": "true" } });
      const login = answer.headers.get("HX-Redirect");
      if (login) return void location.assign(login);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const rows = page.getElementById("log");
      failed = !answer.ok || !rows;
      if (rows && mode === "on" && button()?.dataset.address === address) {
        add([...rows.children].reverse(), "full" in rows.dataset, address);
      }
    } catch {
      failed = true;
    } finally {
      asking = false;
    }
    show();
  };
  const add = (rows, full, address) => {
    const list = log();
    if (full && !rows.some((row) => document.getElementById(row.id))) { // else the answer reaches the rows that are here
      const gap = document.createElement("li"), link = document.createElement("a");
      link.href = address;
      link.textContent = "Rows are omitted here: reload";
      gap.append(link);
      list.prepend(gap);
    }
    for (const row of rows) if (!document.getElementById(row.id)) list.prepend(document.importNode(row, true));
    while (list.childElementCount > most) list.lastElementChild.remove();
    if (list.childElementCount) document.getElementById("norows")?.remove();
    const count = document.getElementById("row-count"), n = list.querySelectorAll("li[id]").length;
    if (count) count.textContent = n + (n === 1 ? " row" : " rows");
    document.dispatchEvent(new Event("rows-added"));
  };
  document.addEventListener("click", (e) => {
    if (!e.target.closest?.("#follow")) return;
    if (mode === "on") return set("paused");
    getSelection().removeAllRanges();
    for (const d of log().querySelectorAll("details[open]")) d.open = false;
    scrollTo(0, 0);
    set("on");
    ask();
  });
  document.addEventListener("scroll", () => { if (button() && scrollY > 60) set("paused"); }, { passive: true });
  document.addEventListener("selectionchange", () => {
    const s = getSelection();
    if (button() && !s.isCollapsed && log()?.contains(s.anchorNode)) set("paused");
  });
  document.addEventListener("toggle", (e) => { if (e.target.open && log()?.contains(e.target)) set("paused"); }, true);
  document.addEventListener("htmx:after:swap", show);
  const row = location.hash && log() && document.getElementById(location.hash.slice(1));
  if (row) { row.firstElementChild.open = true; row.scrollIntoView({ block: "center" }); }
  show();
  setInterval(ask, period);
}
