// Small forms within a page: what they ask for is done without leaving it. What is refused is
// said in a dialog; without this the form leads to the page that says so.
export function quietForms() {
  document.addEventListener("submit", async (e) => {
    const form = e.target;
    if (!form.matches?.("[data-quiet]")) return;
    e.preventDefault();
    const said = document.getElementById("said");
    try {
      const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), redirect: "manual" });
      if (answer.type === "opaqueredirect") {
        document.activeElement?.blur();
        said.textContent = "Saved";
        htmx.trigger(document.body, "changed");
        return;
      }
      tell(new DOMParser().parseFromString(await answer.text(), "text/html"), form);
    } catch {
      said.textContent = "The controller cannot be reached. Nothing was changed.";
      form.submit();
    }
  });
}

// tell shows what the answer's page says.
function tell(page, form) {
  const dialog = document.getElementById("dialog"), body = document.getElementById("dialog-body");
  body.replaceChildren(...(page.getElementById("main")?.childNodes ?? []));
  const close = document.createElement("form");
  close.method = "dialog";
  close.className = "acts";
  close.append(Object.assign(document.createElement("button"), { className: "btn", textContent: "Close" }));
  body.append(close);
  form.reset();
  dialog.showModal();
}
