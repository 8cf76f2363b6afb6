// Keeps the page fresh: the server says that something has changed, and the page's main part is
// asked for again. What is selected, typed or scrolled to stays, and so does the order of the rows
// while the pointer is over them.
import { heldRows, knownRows, mergeRows } from "./rows.js";

const say = (is, word) => {
  for (const e of document.querySelectorAll("[data-live-is]")) { e.dataset.is = is; e.textContent = word; }
};

export function followChanges() {
  let source, retry, tries = 0, last = ["on", "live"];
  const set = (is, word) => { last = [is, word]; say(is, word); };
  const main = () => document.getElementById("main");
  const open = () => {
    const address = main()?.dataset.live;
    clearTimeout(retry);
    if (!address || document.hidden) return;
    source = new EventSource(address);
    source.onopen = () => { tries = 0; set("on", "live"); refresh(); }; // what changed until now was not told
    source.addEventListener("changed", () => refresh());
    source.onerror = () => {
      source.close();
      const wait = Math.min(30, 2 ** tries++);
      set("off", `reconnecting in ${wait} s`);
      retry = setTimeout(open, wait * 1000);
    };
  };
  const refresh = () => { if (!document.querySelector("dialog[open]")) htmx.trigger(document.body, "changed"); };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(retry); source?.close(); source = null; set("paused", "paused"); } else if (!source) { open(); refresh(); }
  });
  document.addEventListener("htmx:config:request", (e) => {
    const { ctx } = e.detail;
    if (ctx.target === main()) ctx.request.headers["Buildyard-Rows"] = knownRows();
  });
  document.addEventListener("htmx:after:request", (e) => {
    const { ctx } = e.detail;
    if (ctx.target === main() && ctx.text?.includes('<main id="main"')) ctx.text = mergeRows(ctx.text);
  });
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
