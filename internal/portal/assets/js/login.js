// The log-in with an API key: the handshake happens here, so that the private key never leaves the browser.
import "./moved.js";

const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/").replace(/=+$/, "")), (c) => c.charCodeAt(0));

// readKey reads a private key: a PEM file, or base64 on one line, in the form PKCS#8 or PKCS#1.
async function readKey(text) {
  const pem = /-----BEGIN ([A-Z ]*)-----([^-]*)-----END/.exec(text);
  if (pem?.[1].includes("ENCRYPTED") || /^Proc-Type:.*ENCRYPTED/m.test(text)) throw new Error("The private key is encrypted with a password: remove the password (openssl rsa -in FILE).");
  if (pem && !pem[1].includes("PRIVATE")) throw new Error("This is not a private key.");
  let der;
  try { der = bytes((pem ? pem[2] : text).replace(/\s+/g, "")); } catch { throw new Error("The private key is neither a PEM file nor base64."); }
  const load = (raw) => crypto.subtle.importKey("pkcs8", raw, { name: "RSA-OAEP", hash: "SHA-256" }, false, ["decrypt"]);
  try { return await load(der); } catch { /* it may be PKCS#1 */ }
  try { return await load(wrap(der)); } catch { throw new Error("The private key is not an RSA key in PKCS#1 or PKCS#8 form, or is damaged."); }
}

// wrap puts a key in PKCS#1 form into one in PKCS#8 form.
function wrap(der) {
  const tlv = (tag, content) => {
    const n = content.length, size = n < 128 ? [n] : n < 256 ? [0x81, n] : [0x82, n >> 8, n & 255];
    return [tag, ...size, ...content];
  };
  const rsa = [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
  return new Uint8Array(tlv(0x30, [0x02, 0x01, 0x00, ...rsa, ...tlv(0x04, [...der])]));
}

// session makes a session of an API key: the key decrypts the secret that the controller has encrypted for it.
async function session(id, text) {
  if (!globalThis.crypto?.subtle) throw new Error("The browser can use keys only over HTTPS, or on localhost.");
  const key = await readKey(text);
  const post = async (path, body) => {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    if (answer.status === 429) throw new Error("Too many failed attempts; try again later.");
    if (!answer.ok) throw new Error("The controller does not accept this key.");
    return answer;
  };
  const cipher = bytes((await (await post("/tap/v1/hand", { id })).text()).trim());
  let secret;
  try { secret = new TextDecoder().decode(await crypto.subtle.decrypt({ name: "RSA-OAEP" }, key, cipher)); } catch { throw new Error("The private key does not belong to this key ID."); }
  const { data } = await (await post("/tap/v1/shake", { id, secret })).json();
  return btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(data))));
}

const form = document.getElementById("key-login"), error = document.getElementById("login-error");
if (form) {
  form.hidden = false;
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    error.hidden = true;
    try {
      const file = document.getElementById("key-file").files[0], text = document.getElementById("key-text");
      const key = file ? await file.text() : text.value;
      if (!key.trim()) throw new Error("Choose the file of the private key, or paste the key.");
      form.elements.session.value = await session(document.getElementById("key-id").value.trim(), key);
      text.value = "";
      form.submit();
    } catch (problem) {
      error.textContent = problem.message;
      error.hidden = false;
    }
  });
}
