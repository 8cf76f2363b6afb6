// Theme and rows: each click takes the next one, and it is kept.
const lists = { theme: ["auto", "light", "dark"], density: ["compact", "comfortable"] };
const words = { theme: "Theme", density: "Rows" };

export function choices() {
  const root = document.documentElement;
  const show = () => {
    for (const name of Object.keys(lists))
      for (const b of document.querySelectorAll(`[data-${name}-next]`)) b.textContent = `${words[name]}: ${root.dataset[name] || lists[name][0]}`;
  };
  document.addEventListener("click", (e) => {
    for (const [name, list] of Object.entries(lists)) {
      if (!e.target.closest?.(`[data-${name}-next]`)) continue;
      const next = list[(list.indexOf(root.dataset[name] || list[0]) + 1) % list.length];
      root.dataset[name] = next;
      localStorage.setItem(name, next);
      dispatchEvent(new Event("colors"));
      show();
    }
  });
  document.addEventListener("htmx:after:swap", show);
  show();
}
