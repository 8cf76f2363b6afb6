import { closable, unanswered } from "./dialogs.js";

// Small forms within a page: what they ask for is done without leaving it. What is refused is
// said in a dialog; without this the form forwards to the page that says so.
export function quietForms() {
  document.addEventListener("submit", async (e) => {
    const form = e.target;
    if (!form.matches?.("[data-quiet]")) return;
    e.preventDefault();
    const said = document.getElementById("said");
    try {
      const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { "HX-Request": "true" } });
      const to = answer.headers.get("HX-Redirect");
      if (to?.startsWith("/login")) return void location.assign(to);
      if (to) {
        document.activeElement?.blur();
        said.textContent = "Saved";
        htmx.trigger(document.body, "changed");
        return;
      }
      tell(new DOMParser().parseFromString(await answer.text(), "text/html"), form);
    } catch {
      unanswered();
      document.getElementById("dialog").showModal();
    }
  });
}

// tell shows what the answer's page says.
function tell(page, form) {
  const dialog = document.getElementById("dialog"), body = document.getElementById("dialog-body");
  const main = page.getElementById("main");
  if (main) body.replaceChildren(...main.childNodes);
  else unanswered(); // a proxy has
  closable();
  form.reset();
  dialog.showModal();
}
