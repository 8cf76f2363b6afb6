// Forms of changes open over the page that they were asked for from; and commands are copied.
export function dialogs() {
  const dialog = document.getElementById("dialog");
  const show = async (address) => {
    await htmx.ajax("GET", address, { target: "#dialog-body", swap: "innerHTML", select: "#main > *" });
    if (!dialog.open) dialog.showModal();
  };
  document.addEventListener("click", (e) => {
    const copy = e.target.closest?.("[data-command]");
    if (copy) return void write(copy, copy.dataset.command);
    if (e.target.closest?.("[data-close]") && dialog.open) { e.preventDefault(); return void dialog.close(); }
    const link = e.target.closest?.("a[data-dialog]");
    if (link && !e.ctrlKey && !e.metaKey && !e.shiftKey) { e.preventDefault(); show(link.href); }
  });
  document.addEventListener("submit", (e) => {
    if (!e.submitter?.matches("[data-dialog]")) return;
    e.preventDefault();
    const q = new URLSearchParams(new FormData(e.target, e.submitter));
    show((e.submitter.formAction || e.target.action).split("?")[0] + "?" + q);
  });
}

async function write(button, text) {
  const was = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copy it by hand";
    prompt("The command", text);
  }
  setTimeout(() => { button.textContent = was; }, 1500);
}
