// The screen of an instance, drawn by noVNC. The controller passes on what the screen says; why a
// console ends is in the frame that closes its WebSocket. A connection that breaks is made again, for as long as the
// controller does not refuse it.
import RFB from "../vendor/novnc/core/rfb.js";
import KeyTable from "../vendor/novnc/core/input/keysym.js";
import { toast } from "./dialogs.js";
import { initLogging } from "../vendor/novnc/core/util/logging.js";

const el = (id) => document.getElementById(id);
const shifted = /[A-Z~!@#$%^&*()_+{}|:"<>?]/;
const most = 60; // tries in a row: about a quarter of an hour
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export function showConsole() {
  const screen = el("screen");
  let rfb, turn = 0, tries = 0, retry, password = "", copied = "";
  initLogging("none"); // what fails is said on the page

  const say = (is, word) => { el("console-is").dataset.is = is; el("console-is").textContent = word; };
  const why = (text) => { el("console-why").hidden = !text; el("console-why").textContent = text; };
  const usable = (on) => { for (const id of ["console-full", "console-cad", "console-paste"]) el(id).disabled = !on; if (!on) el("console-copy").disabled = true; };
  const ask = (on) => { el("password").hidden = !on; el("password-text").value = ""; if (on) el("password-text").focus(); };

  const connect = async () => {
    const mine = ++turn;
    let opened = false, refused = "";
    const now = (f) => (e) => { if (mine === turn) f(e); };
    clearTimeout(retry);
    rfb?.disconnect();
    screen.replaceChildren();
    ask(false);
    usable(false);
    say("paused", tries ? "reconnecting" : "asking the node");
    const no = await reason(); // of a WebSocket that is refused a browser does not tell why
    if (mine !== turn) return;
    if (no.text) return void end(no, no.text);
    const address = new URL(screen.dataset.address, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    rfb = new RFB(screen, socket, { shared: true });
    rfb.scaleViewport = true;
    rfb.background = "rgb(40, 40, 40)";
    socket.addEventListener("open", () => { opened = true; });
    socket.addEventListener("close", now(async (e) => {
      ask(false);
      usable(false);
      if (refused) return void end({ final: true }, refused);
      say("paused", "disconnected");
      const no = await reason();
      if (mine !== turn) return;
      const blocked = !opened && !no.text; // the controller would open it, and something before it does not
      end({ final: no.final || blocked }, e.reason || no.text || (blocked ? "The WebSocket connection was refused; a proxy in front of the controller may not forward WebSockets." : "The connection to the controller broke."));
    }));
    rfb.addEventListener("connect", now(() => {
      tries = 0;
      why("");
      ask(false);
      usable(true);
      say("on", "connected");
      screen.querySelector("canvas").tabIndex = 0;
      rfb.focus();
    }));
    rfb.addEventListener("credentialsrequired", now(() => {
      if (password && tries) return void rfb.sendCredentials({ password });
      say("paused", "asking for the password");
      ask(true);
    }));
    rfb.addEventListener("securityfailure", now((e) => { password = ""; refused = `The VM's screen refused the password: ${e.detail.reason || "the password is wrong"}`; }));
    rfb.addEventListener("clipboard", now((e) => { copied = e.detail.text; el("console-copy").disabled = !copied; }));
  };

  // end shows why the screen is gone, and connects again later unless that is final.
  const end = (no, text) => {
    if (no.final || tries >= most) {
      say("off", "not connected");
      why(text);
      tries = 0;
      return void el("console-again").focus();
    }
    let left = Math.min(15, 2 ** tries++);
    why(`${text.replace(/[^.]$/, "$&.")} It is connected again automatically.`);
    const count = () => {
      if (left <= 0) return void connect();
      say("off", `reconnecting in ${left--} s`);
      retry = setTimeout(count, 1000);
    };
    count();
  };

  // reason returns why no console is available, with an empty text when one is. It is final when waiting does not help.
  const reason = async () => {
    try {
      const answer = await fetch(screen.dataset.address, { signal: AbortSignal.timeout(10000) });
      const body = await answer.json();
      return body.status === "OK" ? { text: "" } : { text: body.message, final: answer.status < 500 && answer.status !== 429 && !/try again/.test(body.message) };
    } catch {
      return { text: "The controller cannot be reached." };
    }
  };

  const type = async (text) => {
    const to = rfb;
    for (const c of text.replace(/\r\n?/g, "\n")) {
      if (to !== rfb) return;
      const symbol = c === "\n" ? KeyTable.XK_Return : c === "\t" ? KeyTable.XK_Tab : c.codePointAt(0) < 256 ? c.codePointAt(0) : 0x01000000 | c.codePointAt(0);
      const shift = shifted.test(c);
      if (shift) to.sendKey(KeyTable.XK_Shift_L, "ShiftLeft", true);
      to.sendKey(symbol, null);
      if (shift) to.sendKey(KeyTable.XK_Shift_L, "ShiftLeft", false);
      await pause(8); // guests lose keys that come faster
    }
  };
  const paste = (open) => {
    el("paste").hidden = !open;
    el("console-paste").setAttribute("aria-expanded", String(open));
    if (open) el("paste-text").focus();
  };

  el("console-again").addEventListener("click", () => { tries = 0; why(""); connect(); });
  el("console-copy").addEventListener("click", () => navigator.clipboard?.writeText(copied).then(() => toast("Copied"), () => prompt("The text", copied)) ?? prompt("The text", copied));
  el("paste-read").hidden = !navigator.clipboard?.readText;
  el("paste-read").addEventListener("click", () => navigator.clipboard.readText().then((text) => { el("paste-text").value = text; el("paste-text").focus(); }, () => toast("The browser does not allow it")));
  el("console-full").addEventListener("click", () => screen.requestFullscreen().then(() => rfb.focus(), () => {}));
  el("console-cad").addEventListener("click", () => { rfb.sendCtrlAltDel(); rfb.focus(); });
  el("console-paste").addEventListener("click", () => paste(el("paste").hidden));
  el("paste").addEventListener("submit", (e) => {
    e.preventDefault();
    const text = el("paste-text").value;
    el("paste-text").value = "";
    paste(false);
    rfb.focus();
    type(text);
  });
  el("password").addEventListener("submit", (e) => {
    e.preventDefault();
    password = el("password-text").value;
    rfb.sendCredentials({ password });
    ask(false);
    say("paused", "logging in");
  });
  screen.addEventListener("keydown", (e) => { // the one key that the guest does not get
    if (!e.ctrlKey || !e.altKey || e.code !== "KeyB") return;
    e.preventDefault();
    e.stopPropagation();
    rfb.sendKey(KeyTable.XK_Control_L, "ControlLeft", false);
    rfb.sendKey(KeyTable.XK_Alt_L, "AltLeft", false);
    rfb.blur();
    el("console-again").focus();
  }, true);

  for (const e of document.querySelectorAll("[data-needs-script]")) e.hidden = false;
  connect();
}
