// Forms that show what their values would do: while they are filled in, the parts that depend on the values are renewed.
export function renewals() {
  let wait, asked = 0;
  const renew = async (form) => {
    const mine = ++asked;
    const values = new URLSearchParams(new FormData(form));
    values.set("preview", "1");
    const answer = await fetch(form.action, { method: "POST", body: values }).catch(() => null);
    if (!answer?.ok || mine !== asked) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of form.closest("dialog, main").querySelectorAll("[data-renew]")) {
      const now = page.getElementById(old.id);
      if (!now || now.innerHTML === old.innerHTML) continue;
      const focus = old.contains(document.activeElement) && document.activeElement.id;
      old.replaceChildren(...document.importNode(now, true).childNodes);
      if (focus) document.getElementById(focus)?.focus();
    }
  };
  document.addEventListener("input", (e) => {
    const form = e.target.closest?.("form[data-renews]");
    if (!form) return;
    clearTimeout(wait);
    wait = setTimeout(() => renew(form), 200);
  });
}
