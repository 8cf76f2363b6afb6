// The form that starts instances: the command next to it has the current values of the fields.
export function sameCommand() {
  let wait, asked = 0;
  const renew = async (form) => {
    const mine = ++asked;
    const values = new URLSearchParams(new FormData(form));
    values.set("preview", "1");
    const answer = await fetch(form.action, { method: "POST", body: values }).catch(() => null);
    if (!answer?.ok || mine !== asked) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const same = page.getElementById("same");
    if (!same) return;
    document.getElementById("same").textContent = same.textContent;
    document.getElementById("same-copy").dataset.command = same.textContent;
    document.getElementById("tags").replaceChildren(...page.getElementById("tags").childNodes);
  };
  document.addEventListener("input", (e) => {
    const form = e.target.closest?.("#start");
    if (!form) return;
    clearTimeout(wait);
    wait = setTimeout(() => renew(form), 200);
  });
}
