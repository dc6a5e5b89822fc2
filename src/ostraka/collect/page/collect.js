// One client in a browser (or in Node): encodes a value, masks it for each keeper, and makes the report.
// WebCrypto only. The messages are those of ostraka.collect in Python, byte for byte.

const PRIME = 2n ** 31n - 1n;
const PKCS8 = fromHex("302e020100300506032b656e04220420"); // what precedes 32 bytes of an X25519 secret
const text = (string) => new TextEncoder().encode(string);

export function fromHex(digits) {
  if (!/^([0-9a-f]{2})*$/.test(digits)) throw new Error("not hexadecimal");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function joined(...parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) { all.set(part, at); at += part.length; }
  return all;
}

export async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

// Encodings: as in encodings.py and sketches.py

function cellOf(value, low, high, cells) {
  if (typeof value !== "number" || Number.isNaN(value)) throw new Error("the value must be a number");
  const clipped = Math.min(Math.max(value, low), high);
  return Math.min(Math.floor(((clipped - low) * cells) / (high - low)), cells - 1);
}

function itemsOf(value, limit, atMost) {
  if (!Array.isArray(value)) throw new Error("the value must be a list of item numbers");
  for (const item of value) {
    if (!Number.isSafeInteger(item) || item < 0 || item >= limit) throw new Error("an item number is out of range");
  }
  return [...new Set(value)].slice(0, atMost);
}

export function treeSizes(encoding) {
  const sizes = [encoding.high - encoding.low];
  for (let above; (above = Math.ceil(sizes[0] / encoding.fanout)) > 1;) sizes.unshift(above);
  return sizes;
}

export function cellsOf(encoding) {
  switch (encoding.kind) {
    case "Histogram": return encoding.cells;
    case "Tree": return treeSizes(encoding).reduce((a, b) => a + b, 0);
    case "Grid": return encoding.shape[0] * encoding.shape[1];
    case "Pairs": return (encoding.items * (encoding.items + 1)) / 2;
    case "CountMin": case "CountSketch": return encoding.width * encoding.depth;
    default: throw new Error("this page does not know the encoding of the task");
  }
}

async function hashed(encoding, purpose, items, width) {
  const rows = [];
  for (let row = 0; row < encoding.depth; row++) {
    const digest = toHex(await sha256(joined(text(`ostraka/sketch/1/${purpose}/${row}/`), fromHex(encoding.key))));
    const a = 1n + (BigInt("0x" + digest.slice(0, 32)) % (PRIME - 1n));
    const b = BigInt("0x" + digest.slice(32)) % PRIME;
    rows.push(items.map((item) => Number((((a * BigInt(item) + b) % PRIME) % BigInt(width)))));
  }
  return rows;
}

async function sketched(encoding, value, vector) {
  const items = itemsOf(value, Number(PRIME), encoding.at_most);
  const columns = await hashed(encoding, "place", items, encoding.width);
  const signs = encoding.kind === "CountSketch" ? await hashed(encoding, "sign", items, 2) : null;
  columns.forEach((row, number) => row.forEach((column, item) => {
    vector[number * encoding.width + column] += signs ? 2 * signs[number][item] - 1 : 1; // modulo 2^32
  }));
}

export async function encode(encoding, value) {
  const vector = new Uint32Array(cellsOf(encoding));
  if (encoding.kind === "Histogram") {
    vector[cellOf(value, encoding.low, encoding.high, encoding.cells)] = 1;
  } else if (encoding.kind === "Tree") {
    const sizes = treeSizes(encoding);
    const leaf = cellOf(value, encoding.low, encoding.high, encoding.high - encoding.low);
    let start = 0;
    sizes.forEach((size, level) => {
      vector[start + Math.floor(leaf / encoding.fanout ** (sizes.length - 1 - level))] = 1;
      start += size;
    });
  } else if (encoding.kind === "Grid") {
    const points = Array.isArray(value) && Array.isArray(value[0]) ? value : value.length ? [value] : [];
    const cells = points.map(([x, y]) => cellOf(x, ...encoding.x, encoding.shape[0]) * encoding.shape[1]
      + cellOf(y, ...encoding.y, encoding.shape[1]));
    for (const cell of [...new Set(cells)].slice(0, encoding.at_most)) vector[cell] = 1;
  } else if (encoding.kind === "Pairs") {
    const items = itemsOf(value, encoding.items, encoding.at_most);
    items.forEach((one, number) => items.slice(number).forEach((other) => {
      const low = Math.min(one, other), high = Math.max(one, other);
      vector[low * encoding.items - (low * (low - 1)) / 2 + high - low] = 1;
    }));
  } else {
    await sketched(encoding, value, vector);
  }
  return vector;
}

// Masks: as in secure/keys.py and secure/masks.py

export async function newSecret() {
  const pair = await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
  const key = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  return { secret: pair.privateKey, key };
}

export async function secretOf(bytes) { // only tests know a secret beforehand
  return crypto.subtle.importKey("pkcs8", joined(PKCS8, bytes), { name: "X25519" }, false, ["deriveBits"]);
}

export async function pairMask(secret, peerKey, transcript, pair, size) {
  const peer = await crypto.subtle.importKey("raw", peerKey, { name: "X25519" }, false, []);
  const shared = await crypto.subtle.deriveBits({ name: "X25519", public: peer }, secret, 256);
  const base = await crypto.subtle.importKey("raw", shared, "HKDF", false, ["deriveKey"]);
  const info = text(["ostraka/parties/1", "mask", ...[...pair].sort()].join("\0"));
  const key = await crypto.subtle.deriveKey({ name: "HKDF", hash: "SHA-256", salt: transcript, info }, base,
    { name: "AES-CTR", length: 256 }, false, ["encrypt"]);
  const stream = await crypto.subtle.encrypt({ name: "AES-CTR", counter: new Uint8Array(16), length: 64 }, key,
    new Uint8Array(4 * size));
  const view = new DataView(stream);
  return Uint32Array.from({ length: size }, (_, at) => view.getUint32(4 * at, true));
}

// The report: as in client.py

export async function transcriptOf(sha, round, purpose) {
  return sha256(text(`["${sha}",${round},"${purpose}"]`));
}

export async function report(taskText, value, { round = 0, own = null, certificate = new Uint8Array(0) } = {}) {
  const task = JSON.parse(taskText);
  if (task.ostraka_task !== 1 || task.trust !== "keepers") throw new Error("this page needs a task with keepers");
  if (!Number.isInteger(round) || round < 0 || round >= task.rounds) throw new Error("the task has no such round");
  const sums = await encode(task.encoding, value);
  const { secret, key } = own ?? await newSecret();
  const transcript = await transcriptOf(toHex(await sha256(text(taskText))), round, "report");
  for (const keeper of task.keepers) {
    const pair = [toHex(key), keeper];
    const mask = await pairMask(secret, fromHex(keeper.slice(64)), transcript, pair, sums.length);
    for (let at = 0; at < sums.length; at++) sums[at] += mask[at]; // modulo 2^32
  }
  const body = new DataView(new ArrayBuffer(4 * sums.length));
  sums.forEach((word, at) => body.setUint32(4 * at, word, true));
  return joined(transcript.slice(0, 16), key, certificate, new Uint8Array(body.buffer));
}

export async function send(base, value, expected = null) {
  const taskText = await (await fetch(`${base}/task.json`)).text();
  const sha = toHex(await sha256(text(taskText)));
  if (expected && sha !== expected) throw new Error("this is another task than the one you agreed to");
  const body = await report(taskText, value);
  const answer = await fetch(`${base}/v1/report`, { method: "POST", body });
  if (!answer.ok) throw new Error((await answer.json()).error);
  return sha;
}

// The page itself

async function start() {
  const base = new URL(".", location.href).href.replace(/\/$/, "");
  const said = document.getElementById("said");
  const taskText = await (await fetch(`${base}/task.json`)).text();
  const sha = toHex(await sha256(text(taskText)));
  document.getElementById("task").textContent = JSON.stringify(JSON.parse(taskText).encoding);
  document.getElementById("sha").textContent = sha;

  document.getElementById("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const field = document.getElementById("value"), button = event.target.querySelector("button");
    button.disabled = true;
    try {
      await send(base, JSON.parse(field.value), sha);
      field.value = "";
      said.textContent = "Received. It will be counted once.";
    } catch (error) {
      said.textContent = `Not sent: ${error.message}`;
      button.disabled = false;
    }
  });
}

if (typeof document !== "undefined" && document.getElementById("form")) start();
