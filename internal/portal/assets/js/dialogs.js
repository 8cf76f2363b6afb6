// Forms of changes open over the page that they were asked for from; and commands are copied.
export function dialogs() {
  const dialog = document.getElementById("dialog"), body = document.getElementById("dialog-body");
  const show = async (address) => {
    body.replaceChildren(); // never what was asked for before
    await htmx.ajax("GET", address, { target: "#dialog-body", swap: "innerHTML", select: "#main > *" });
    closable();
    if (!dialog.open) dialog.showModal();
  };
  document.addEventListener("htmx:error", (e) => {
    if (e.detail.ctx?.target === body) unanswered();
  });
  document.addEventListener("htmx:before:swap", (e) => { // a proxy's answer for an unreachable controller is not a form
    const { target, text } = e.detail.ctx;
    if (target !== body || text.includes('<main id="main"')) return;
    e.preventDefault();
    unanswered();
  });
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
    show((e.submitter.hasAttribute("formaction") ? e.submitter.formAction : e.target.action).split("?")[0] + "?" + q);
  });
}

// unanswered shows in the dialog that the controller did not answer.
export function unanswered() {
  const p = Object.assign(document.createElement("p"), { className: "notice bad", role: "alert", textContent: "The controller did not answer. Try again once the page is live." });
  document.getElementById("dialog-body").replaceChildren(p);
  closable();
}

// closable puts a button that closes the dialog below what has none, such as a failure.
export function closable() {
  const body = document.getElementById("dialog-body");
  if (body.querySelector("[data-close]")) return;
  const acts = Object.assign(document.createElement("div"), { className: "acts" });
  acts.append(Object.assign(document.createElement("button"), { className: "btn", type: "button", textContent: "Close" }));
  acts.firstChild.dataset.close = "";
  body.append(acts);
}

async function write(button, text) {
  const said = document.getElementById("said");
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("Copy it by hand");
    prompt("The text", text);
  }
  said.textContent = "Copied";
}

// toast shows a short message for a moment.
export function toast(text) {
  const at = document.getElementById("toasts");
  const t = Object.assign(document.createElement("p"), { className: "toast", textContent: text });
  at.replaceChildren(t);
  setTimeout(() => t.remove(), 2500);
}
