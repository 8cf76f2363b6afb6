// Theme, rows and time zone: each click takes the next one, and it is kept.
const lists = { theme: ["auto", "light", "dark"], density: ["compact", "comfortable"], zone: ["UTC", "local"] };
const words = { theme: "Theme", density: "Rows", zone: "Times" };

export function choices() {
  const root = document.documentElement;
  const show = () => {
    for (const name of Object.keys(lists))
      for (const b of document.querySelectorAll(`[data-${name}-next]`)) b.textContent = `${words[name]}: ${root.dataset[name] || lists[name][0]}`;
    zones(root.dataset.zone === "local");
  };
  document.addEventListener("click", (e) => {
    for (const [name, list] of Object.entries(lists)) {
      if (!e.target.closest?.(`[data-${name}-next]`)) continue;
      const next = list[(list.indexOf(root.dataset[name] || list[0]) + 1) % list.length];
      root.dataset[name] = next;
      localStorage.setItem(name, next);
      show();
    }
  });
  for (const event of ["htmx:after:swap", "rows-added"]) document.addEventListener(event, show);
  show();
}

const local = (o) => new Intl.DateTimeFormat("sv-SE", o);
const whole = { dateStyle: "short", timeStyle: "medium" };

// zones writes absolute times in the time zone of the browser, or in UTC.
function zones(here) {
  for (const t of document.querySelectorAll("main time[datetime]")) {
    const at = new Date(t.dateTime);
    if (isNaN(at) || (!here && !t.dataset.utc)) continue;
    t.dataset.utc ??= t.title;
    t.title = here ? local({ ...whole }).format(at) : t.dataset.utc;
    if (t.dataset.clock === undefined) continue;
    t.dataset.clock ||= t.textContent;
    const text = t.dataset.clock, timeStyle = /:.*:/.test(text) ? "medium" : "short", hasDate = /[A-Z][a-z]|\d-\d/.test(text);
    t.textContent = !here ? text : !text.includes(":") ? at.toLocaleDateString("en", { day: "numeric", month: "short" })
      : local(hasDate ? { dateStyle: "short", timeStyle } : { timeStyle }).format(at);
  }
}
