// Tables: what is selected, what is filtered while it is typed, what is new.
export function tables() {
  let known = null;
  document.documentElement.classList.add("scripted");
  const boxes = () => [...document.querySelectorAll("main tbody input[type=checkbox][name=chosen]:not(:disabled)")];
  const count = () => {
    const all = boxes(), n = all.filter((b) => b.checked).length;
    for (const b of all) b.closest("tr")?.setAttribute("aria-selected", b.checked);
    for (const e of document.querySelectorAll("[data-chosen]")) e.textContent = n ? `${n} selected` : "None selected";
    for (const e of document.querySelectorAll(".bulk")) e.classList.toggle("some", n > 0);
    for (const e of document.querySelectorAll("[data-needs-chosen]:not([title])")) e.disabled = n === 0 && !document.getElementById("all-fit")?.checked;
    const whole = document.querySelector("[data-all]");
    if (whole) { whole.checked = n > 0 && n === all.length; whole.indeterminate = n > 0 && n < all.length; }
  };
  document.addEventListener("change", (e) => {
    if (e.target.matches?.("[data-all]")) for (const b of boxes()) b.checked = e.target.checked;
    count();
  });
  let wait;
  document.addEventListener("input", (e) => {
    if (e.target.id !== "q") return;
    clearTimeout(wait);
    wait = setTimeout(() => go(e.target.form, false), 300);
  });
  document.addEventListener("submit", (e) => {
    if (e.target.id !== "filter") return;
    e.preventDefault();
    clearTimeout(wait);
    go(e.target, true);
  });
  document.addEventListener("htmx:before:swap", (e) => {
    if (typing && e.detail.ctx.target?.id === "main" && e.detail.ctx.text.includes('id="wrong"')) return void e.preventDefault(); // its end is not typed yet
    known = new Set([...document.querySelectorAll("main tbody tr[id]")].map((r) => r.id));
  });
  document.addEventListener("htmx:after:swap", () => {
    if (known?.size) for (const r of document.querySelectorAll("main tbody tr[id]")) if (!known.has(r.id)) r.classList.add("new");
    count();
  });
  count();
}

const shown = () => location.pathname + location.search;
let here = shown();

// go shows what the form asks for. Only what was finished becomes a step back. What the page has
// asked for before is not waited for, and it refreshes by the new address from now on.
let typing = false; // the newest request is for a filter that is not finished

function go(form, finished) {
  typing = !finished;
  const q = new URLSearchParams([...new FormData(form)].filter(([, v]) => v !== ""));
  const to = form.action.split("?")[0] + (q.size ? "?" + q : "");
  history[finished ? "pushState" : "replaceState"](null, "", to);
  here = shown();
  const main = document.getElementById("main");
  main.setAttribute("hx-sync", "this:replace");
  if (main.hasAttribute("hx-get")) main.setAttribute("hx-get", to);
  htmx.ajax("GET", to, { target: "#main", swap: "outerMorph", source: "#main" });
}
addEventListener("popstate", () => { if (shown() !== here) location.reload(); }); // else it is another place of the same page
