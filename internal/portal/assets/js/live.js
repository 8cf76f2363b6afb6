// Keeps the page fresh: the server says that something has changed, and the page's main part is
// asked for again. What is selected, typed or scrolled to stays, and so does the order of the rows
// while the pointer is over them.
import { away, back, seen } from "./away.js";
import { heldRows, knownRows, mergeRows } from "./rows.js";
import { lookHidden, watching } from "./watch.js";

const say = (is, word) => {
  for (const e of document.querySelectorAll("[data-live-is]")) { e.dataset.is = is; e.textContent = word; }
};

// responds reports whether the controller answers: a stream is also refused where too many pages are open.
const responds = () => fetch("/livez", { cache: "no-store" }).then((answer) => answer.status < 500, () => false);

export function followChanges() {
  let source, retry, isOpen = false, tries = 0, last = ["on", "live"];
  const set = (is, word) => { last = [is, word]; say(is, word); };
  const main = () => document.getElementById("main");
  const lose = () => { if (isOpen) seen(); isOpen = false; };
  const pause = () => { lose(); clearTimeout(retry); source?.close(); source = null; set("paused", "paused"); };
  const changed = () => { if (!document.hidden) refresh(); else if (watching()) lookHidden(); else pause(); };
  const open = () => {
    const address = main()?.dataset.live;
    clearTimeout(retry);
    if (!address || document.hidden && !watching()) return;
    source?.close();
    const mine = source = new EventSource(address);
    mine.onopen = () => { isOpen = true; tries = 0; back(); set("on", "live"); changed(); }; // what changed until now was not told
    mine.addEventListener("changed", changed);
    mine.onerror = () => {
      mine.close();
      lose();
      const wait = Math.min(30, 2 ** tries++), next = Date.now() + wait * 1000;
      set("off", `reconnecting in ${wait} s`);
      retry = setTimeout(open, wait * 1000);
      if (tries > 1) responds().then((ok) => { if (!ok && source === mine) away(next); });
    };
  };
  const refresh = () => { if (!document.querySelector("dialog[open]")) htmx.trigger(document.body, "changed"); };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !source) { open(); refresh(); } else if (!document.hidden) changed();
    else if (!watching()) pause();
  });
  document.addEventListener("click", (e) => { if (e.target.closest?.("[data-try-now]")) open(); });
  document.addEventListener("htmx:config:request", (e) => {
    const { ctx } = e.detail;
    if (ctx.target === main()) ctx.request.headers["Buildyard-Rows"] = knownRows();
  });
  document.addEventListener("htmx:after:request", (e) => {
    const { ctx } = e.detail;
    if (ctx.target === main() && ctx.text?.includes('<main id="main"')) ctx.text = mergeRows(ctx.text);
  });
  document.addEventListener("htmx:after:swap", (e) => { if (e.detail.ctx?.target?.id === "main") { seen(); back(); } });
  document.addEventListener("htmx:after:swap", () => heldRows() ? say("paused", "rows held") : say(...last));
  document.addEventListener("htmx:before:swap", (e) => { // a proxy's answer for an unreachable controller is not a page
    const { target, text } = e.detail.ctx;
    if (target === main() && !text.includes('<main id="main"')) e.preventDefault();
  });
  document.addEventListener("mouseout", (e) => {
    const rows = e.target.closest?.("tbody");
    if (rows && !rows.contains(e.relatedTarget) && heldRows()) refresh();
  });
  const again = () => { if (source && !document.hidden) refresh(); };
  setInterval(again, 10000); // ages, and what nodes use
  setInterval(() => { if (document.querySelector("[data-running]")) again(); }, 2000); // the output of a script, which is not announced
  open();
}
