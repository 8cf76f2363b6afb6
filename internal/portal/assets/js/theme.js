// Sets colours and rows as they were chosen, before anything is drawn.
(() => {
  for (const name of ["theme", "density"]) {
    const kept = localStorage.getItem(name);
    if (kept) document.documentElement.dataset[name] = kept;
  }
})();
