// The screen of an instance, drawn by noVNC. The controller passes on what the screen says; why a
// console ends is in the frame that closes its WebSocket.
import RFB from "../vendor/novnc/core/rfb.js";
import KeyTable from "../vendor/novnc/core/input/keysym.js";
import { initLogging } from "../vendor/novnc/core/util/logging.js";

const el = (id) => document.getElementById(id);
const shifted = /[A-Z~!@#$%^&*()_+{}|:"<>?]/;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export function showConsole() {
  const screen = el("screen");
  let rfb, turn = 0;
  initLogging("none"); // what fails is said on the page

  const say = (is, word) => { el("console-is").dataset.is = is; el("console-is").textContent = word; };
  const why = (text) => { el("console-why").hidden = !text; el("console-why").textContent = text; };
  const usable = (on) => { for (const id of ["console-full", "console-cad", "console-paste"]) el(id).disabled = !on; };
  const ask = (on) => { el("password").hidden = !on; el("password-text").value = ""; if (on) el("password-text").focus(); };

  const connect = async () => {
    const mine = ++turn;
    let opened = false, shown = false, refused = "";
    rfb?.disconnect();
    screen.replaceChildren();
    why("");
    ask(false);
    usable(false);
    say("paused", "asking the node");
    const no = await reason(); // of a WebSocket that is refused a browser does not tell why
    if (mine !== turn) return;
    if (no) { say("off", "not connected"); why(no); return; }
    const address = new URL(screen.dataset.address, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    rfb = new RFB(screen, socket, { shared: true });
    rfb.scaleViewport = true;
    rfb.background = "rgb(40, 40, 40)";
    const now = (f) => (e) => { if (mine === turn) f(e); };
    socket.addEventListener("open", () => { opened = true; });
    socket.addEventListener("close", now(async (e) => {
      ask(false);
      usable(false);
      say("off", shown ? "ended" : "not connected");
      el("console-again").focus();
      const text = refused || e.reason || (opened ? "The connection to the controller broke." : await reason() || "The controller takes no WebSocket; a proxy before it may not let them through.");
      if (mine === turn) why(text);
    }));
    rfb.addEventListener("connect", now(() => {
      shown = true;
      ask(false);
      usable(true);
      say("on", "connected");
      screen.querySelector("canvas").tabIndex = 0;
      rfb.focus();
    }));
    rfb.addEventListener("credentialsrequired", now(() => { say("paused", "asking for the password"); ask(true); }));
    rfb.addEventListener("securityfailure", now((e) => { refused = `The screen does not let you in: ${e.detail.reason || "the password is wrong"}`; }));
  };

  // reason returns why no console is available, "" when one is.
  const reason = async () => {
    try {
      const answer = await (await fetch(screen.dataset.address)).json();
      return answer.status === "OK" ? "" : answer.message;
    } catch {
      return "The controller cannot be reached.";
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

  el("console-again").addEventListener("click", connect);
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
    rfb.sendCredentials({ password: el("password-text").value });
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
