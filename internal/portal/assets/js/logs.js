// A log that is followed: rows are added as they come, those that do not fit the search are not.
const most = 5000; // rows that are kept

export function followLog() {
  let source;
  const show = () => { for (const e of document.querySelectorAll("[data-needs-script]")) e.hidden = false; };
  const say = (is, text) => {
    const e = document.getElementById("follow-is");
    if (e) { e.hidden = !text; e.dataset.is = is; e.textContent = text; }
  };
  const stop = () => { source?.close(); source = null; say("", ""); };
  const add = (text) => {
    const log = document.getElementById("log");
    if (!log) return stop();
    const find = new URLSearchParams(location.search).get("q")?.trim().toLowerCase();
    if (find && !text.toLowerCase().includes(find)) return;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const row = document.createElement("li");
    row.append(document.createElement("span"), Object.assign(document.createElement("code"), { textContent: text }));
    log.append(row);
    while (log.childElementCount > most) log.firstElementChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  const start = (address) => {
    let first = true;
    source = new EventSource(address);
    source.onopen = () => say("on", "following");
    source.onmessage = (e) => {
      const old = first && document.querySelector("#log li:last-child code")?.textContent === e.data;
      first = false;
      if (!old) add(e.data);
    };
    source.onerror = () => { first = true; say("off", "reconnecting"); };
  };
  document.addEventListener("change", (e) => {
    if (e.target.id !== "follow") return;
    stop();
    if (e.target.checked) start(e.target.dataset.stream);
  });
  document.addEventListener("htmx:after:swap", show);
  const log = document.getElementById("log");
  if (log && !location.hash) log.scrollTop = log.scrollHeight;
  show();
}
