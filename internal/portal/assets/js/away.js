// While the controller does not respond: the page is grey and read-only, and a strip over its top bar says how old it is.
const actions = "main button:not([type=button], :disabled), #dialog-body button:not([type=button], :disabled), main a.btn:not([aria-disabled]), main a[data-dialog]:not([aria-disabled])";
const why = "Read-only: the controller does not respond";
let fresh = Date.now(), next = 0, ticking;

const isAway = () => document.documentElement.classList.contains("away");

// seen records that the page shows the state of now.
export const seen = () => { fresh = Date.now(); };

// away shows that the controller does not respond, and when it is asked again.
export function away(again) {
  next = again;
  disable();
  if (isAway()) return void tick();
  document.documentElement.classList.add("away");
  document.getElementById("away").hidden = false;
  document.getElementById("away-said").textContent = "The controller does not respond";
  ticking = setInterval(tick, 1000);
  tick();
}

// back lets the page be used again.
export function back() {
  clearInterval(ticking);
  document.documentElement.classList.remove("away");
  document.getElementById("away").hidden = true;
  document.getElementById("away-said").textContent = "";
  for (const e of document.querySelectorAll("[data-away]")) {
    e.removeAttribute("data-away");
    e.removeAttribute("title");
    if (e.localName === "button") e.disabled = false;
    else e.removeAttribute("aria-disabled");
  }
}

function tick() {
  disable(); // what has come into the page since then, too
  const at = new Date(fresh).toISOString().slice(11, 19), age = Math.round((Date.now() - fresh) / 1000);
  const wait = Math.ceil((next - Date.now()) / 1000);
  document.getElementById("away-age").textContent = `State of ${at} UTC, ${age} s ago, read-only.`;
  document.getElementById("away-next").textContent = wait > 0 ? `Next attempt in ${wait} s.` : "Trying now.";
}

function disable() {
  for (const e of document.querySelectorAll(actions)) {
    if (e.title) continue; // it says why it cannot be used, or what it is
    e.dataset.away = "";
    e.title = why;
    if (e.localName === "button") e.disabled = true;
    else e.setAttribute("aria-disabled", "true");
  }
}

// Links are not followed, and forms not sent, by the keyboard either.
for (const kind of ["click", "submit"]) {
  document.addEventListener(kind, (e) => {
    if (!isAway() || !(kind === "submit" ? e.target.matches("main form, #dialog-body form") : e.target.closest?.("[data-away]"))) return;
    e.preventDefault();
    e.stopImmediatePropagation();
  }, true);
}
