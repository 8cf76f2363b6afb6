// Applies the chosen theme and row height before the page is drawn.
(() => {
  for (const name of ["theme", "density", "zone"]) {
    const kept = localStorage.getItem(name);
    if (kept) document.documentElement.dataset[name] = kept;
  }
})();
