// One client in a browser (or in Node): encodes a value and masks it, for keepers or for other clients.
// WebCrypto only. The messages are those of ostraka.collect in Python, byte for byte.

const PRIME = 2n ** 31n - 1n;
const PKCS8 = fromHex("302e020100300506032b656e04220420"); // what precedes 32 bytes of an X25519 secret
const LITTLE = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1; // as every browser's machine is today
const text = (string) => new TextEncoder().encode(string);
const random = (size) => crypto.getRandomValues(new Uint8Array(size));

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

// Encodings: as in encodings.py

function clippedNumber(value, low, high) {
  if (typeof value !== "number" || Number.isNaN(value)) throw new Error("the value must be a number");
  return Math.min(Math.max(value, low), high);
}

function cellOf(value, low, high, cells) {
  return Math.min(Math.floor(((clippedNumber(value, low, high) - low) * cells) / (high - low)), cells - 1);
}

function itemsOf(value, limit, atMost) {
  if (!Array.isArray(value)) throw new Error("the value must be a list of item numbers");
  for (const item of value) {
    if (!Number.isSafeInteger(item) || item < 0 || item >= limit) throw new Error("an item number is out of range");
  }
  return [...new Set(value)].slice(0, atMost);
}

function pointsOf(value) {
  if (!Array.isArray(value)) throw new Error("the value must be one point [x, y] or a list of points");
  const points = value.length && !Array.isArray(value[0]) ? [value] : value;
  if (points.some((point) => !Array.isArray(point) || point.length !== 2)) throw new Error("a point must be two numbers");
  return points;
}

export function treeSizes(encoding) {
  const sizes = [encoding.high - encoding.low];
  for (let above; (above = Math.ceil(sizes[0] / encoding.fanout)) > 1;) sizes.unshift(above);
  return sizes;
}

// Each kind of encoding: how many cells it has, and how a value becomes a vector. A page can register others.
const KINDS = {};

export function register(kind, { cells, encode }) { // encode(encoding, value, vector, key) adds to a vector of zeros
  if (kind in KINDS) throw new Error(`there is an encoding ${kind}`);
  KINDS[kind] = { cells, encode };
}

function kindOfEncoding(encoding) {
  if (!Object.hasOwn(KINDS, encoding.kind)) throw new Error("this page does not know the encoding of the task");
  return KINDS[encoding.kind];
}

export function cellsOf(encoding) { return kindOfEncoding(encoding).cells(encoding); }

export async function encode(encoding, value, key = random(32)) { // the key rounds numbers between two steps
  const vector = new Uint32Array(cellsOf(encoding));
  await kindOfEncoding(encoding).encode(encoding, value, vector, key);
  return vector;
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

register("Histogram", { cells: (encoding) => encoding.cells, encode: ({ low, high, cells }, value, vector) => {
  vector[cellOf(value, low, high, cells)] = 1;
} });

register("Histograms", { cells: ({ parts }) => parts.reduce((sum, part) => sum + part[2], 0), encode: ({ parts }, value, vector) => {
  if (!Array.isArray(value) || value.length !== parts.length) throw new Error(`the value must be a list of ${parts.length} numbers`);
  let start = 0;
  parts.forEach(([low, high, cells], at) => { vector[start + cellOf(value[at], low, high, cells)] = 1; start += cells; });
} });

register("Tree", { cells: (encoding) => treeSizes(encoding).reduce((a, b) => a + b, 0), encode: (encoding, value, vector) => {
  const sizes = treeSizes(encoding);
  const leaf = cellOf(value, encoding.low, encoding.high, encoding.high - encoding.low);
  let start = 0;
  sizes.forEach((size, level) => {
    vector[start + Math.floor(leaf / encoding.fanout ** (sizes.length - 1 - level))] = 1;
    start += size;
  });
} });

const gridCells = ({ shape }) => shape[0] * shape[1];
const gridPlaces = ({ x, y, shape }, value) => pointsOf(value).map(([one, other]) => cellOf(one, ...x, shape[0]) * shape[1]
  + cellOf(other, ...y, shape[1]));

register("Grid", { cells: gridCells, encode: (encoding, value, vector) => {
  for (const cell of [...new Set(gridPlaces(encoding, value))].slice(0, encoding.at_most)) vector[cell] = 1;
} });

register("Visits", { cells: gridCells, encode: (encoding, value, vector) => {
  for (const cell of gridPlaces(encoding, value).slice(0, encoding.at_most)) vector[cell] += 1;
} });

register("Pairs", { cells: ({ items }) => (items * (items + 1)) / 2, encode: (encoding, value, vector) => {
  const items = itemsOf(value, encoding.items, encoding.at_most);
  items.forEach((one, number) => items.slice(number).forEach((other) => { vector[pairCell(encoding, one, other)] = 1; }));
} });

export function pairCell({ items }, one, other) {
  const low = Math.min(one, other), high = Math.max(one, other);
  return low * items - (low * (low - 1)) / 2 + high - low;
}

for (const kind of ["CountMin", "CountSketch"]) register(kind, { cells: ({ width, depth }) => width * depth, encode: sketched });

// Numbers in whole steps: each is rounded to one of both nearest at random, by a stream of AES
async function rounded(scaled, key, turn) {
  const base = await crypto.subtle.importKey("raw", key, "AES-CTR", false, ["encrypt"]);
  const words = await streamOf(base, scaled.length, turn * Math.ceil(scaled.length / 4));
  return scaled.map((value, at) => { const whole = Math.floor(value); return whole + (words[at] < (value - whole) * 2 ** 32); });
}

register("Sum", { cells: () => 1, encode: async ({ low, high, bits }, value, vector, key) => {
  const clipped = clippedNumber(value, low, high), steps = 2 ** bits - 1;
  [vector[0]] = await rounded(Float64Array.of(((clipped - low) * steps) / (high - low)), key, 0);
} });

const REDO = 20, FURTHEST_ENTRY = 1e150;

register("Vector", { cells: (encoding) => encoding.cells, encode: async ({ cells, clip, grid }, value, vector, key) => {
  const good = (Array.isArray(value) || ArrayBuffer.isView(value)) && value.length === cells
    && value.every((entry) => typeof entry === "number" && Number.isFinite(entry));
  if (!good) throw new Error(`the value must be a vector of ${cells} finite numbers`);
  const entries = Float64Array.from(value, (entry) => Math.min(Math.max(entry, -FURTHEST_ENTRY), FURTHEST_ENTRY));
  const norm = Math.sqrt(entries.reduce((sum, entry) => sum + entry * entry, 0)), factor = grid / Math.max(norm, clip);
  const scaled = entries.map((entry) => entry * factor), bound = Math.floor((17 * grid) / 16);
  for (let turn = 0; turn < REDO; turn++) {
    const whole = await rounded(scaled, key, turn);
    if (whole.reduce((sum, entry) => sum + entry * entry, 0) <= bound ** 2) { vector.set(Int32Array.from(whole)); return; }
  }
  vector.set(Int32Array.from(scaled, Math.trunc)); // which never lengthens
} });

// Masks: as in secure/keys.py and secure/masks.py

export async function newSecret() {
  const pair = await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
  const key = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  return { secret: pair.privateKey, key };
}

export async function secretOf(bytes, extractable = false) {
  return crypto.subtle.importKey("pkcs8", joined(PKCS8, bytes), { name: "X25519" }, extractable, ["deriveBits"]);
}

async function sharedKey(secret, peerKey, transcript, pair, { purpose, cipher, uses }) {
  const peer = await crypto.subtle.importKey("raw", peerKey, { name: "X25519" }, false, []);
  const shared = await crypto.subtle.deriveBits({ name: "X25519", public: peer }, secret, 256);
  const base = await crypto.subtle.importKey("raw", shared, "HKDF", false, ["deriveKey"]);
  const info = text(["ostraka/parties/1", purpose, ...[...pair].sort()].join("\0"));
  return crypto.subtle.deriveKey({ name: "HKDF", hash: "SHA-256", salt: transcript, info }, base,
    { name: cipher, length: 256 }, false, uses);
}

async function streamOf(key, size, block = 0) { // block: where in the stream it starts
  const counter = new Uint8Array(16);
  new DataView(counter.buffer).setUint32(12, block);
  const stream = await crypto.subtle.encrypt({ name: "AES-CTR", counter, length: 64 }, key,
    new Uint8Array(4 * size));
  if (LITTLE) return new Uint32Array(stream);
  const view = new DataView(stream);
  return Uint32Array.from({ length: size }, (_, at) => view.getUint32(4 * at, true));
}

export async function pairMask(secret, peerKey, transcript, pair, size) {
  const use = { purpose: "mask", cipher: "AES-CTR", uses: ["encrypt"] };
  return streamOf(await sharedKey(secret, peerKey, transcript, pair, use), size);
}

function added(sums, mask, sign = 1) {
  for (let at = 0; at < sums.length; at++) sums[at] += sign * mask[at]; // modulo 2^32
}

const TOGETHER = 64; // masks that the browser computes at one time

export async function addMasks(sums, secret, peers, transcript) { // peers: { key, pair, sign }
  for (let at = 0; at < peers.length; at += TOGETHER) {
    const some = peers.slice(at, at + TOGETHER);
    const masks = await Promise.all(some.map(({ key, pair }) => pairMask(secret, key, transcript, pair, sums.length)));
    masks.forEach((mask, number) => added(sums, mask, some[number].sign));
  }
}

function littleEndian(words) {
  const view = new DataView(new ArrayBuffer(4 * words.length));
  words.forEach((word, at) => view.setUint32(4 * at, word, true));
  return new Uint8Array(view.buffer);
}

// The task: what Python refuses is refused here, too

const whole = (value, least, most) => Number.isSafeInteger(value) && value >= least && value <= most;
const hexadecimal = (value, digits) => typeof value === "string" && value.length === digits && /^[0-9a-f]*$/.test(value);

function checkedTask(taskText, trust, round) {
  const task = JSON.parse(taskText);
  if (task.ostraka_task !== ("checked" in task ? 3 : "question" in task ? 2 : 1) || task.trust !== trust) throw new Error(`this needs a task that trusts ${trust}`);
  const keys = [task.tally, ...(task.enrolment === null ? [] : [task.enrolment])];
  const shares = [task.colluding, task.missing], kept = trust === "keepers";
  if (!keys.every((key) => hexadecimal(key, 64)) || !task.keepers.every((key) => hexadecimal(key, 128))) throw new Error("a key of the task is malformed");
  for (const key of task.keepers) keys.push(key.slice(0, 64), key.slice(64));
  const good = new Set(keys).size === keys.length && whole(task.least, 3, 1e8) && whole(task.most, task.least, 1e8)
    && whole(task.rounds, 1, 2 ** 53 - 1) && task.sigma > 0 && shares.every((share) => share >= 0 && share < 1)
    && [trust, "tally"].includes(task.noise) && (kept ? whole(task.keepers.length, 2, 100) : task.keepers.length === 0)
    && whole(task.honest, 1, Math.max(1, task.keepers.length)) && whole(cellsOf(task.encoding), 1, 2 ** 22)
    && (kept ? !task.lying : task.least > Math.ceil(task.colluding * task.most - 1e-9) && (!task.lying || task.enrolment !== null));
  if (!good || (task.checked && !(kept && formOf(task.encoding)))) throw new Error("the task has a field out of range");
  if (!whole(round, 0, task.rounds - 1)) throw new Error("the task has no such round");
  return task;
}

// Signatures: as in secure/keys.py

const signedBody = (purpose, body) => joined(text(`ostraka/parties/1\0${purpose}\0`), body);

async function signedBy(key, purpose, signature, body) {
  if (signature.length !== 64) return false;
  const publicKey = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]).catch(() => null);
  return publicKey !== null && crypto.subtle.verify({ name: "Ed25519" }, publicKey, signature, signedBody(purpose, body));
}

async function enrolled(task, sha, round, claim, certificate) {
  if (task.enrolment === null) return;
  const body = joined(await transcriptOf(sha, round, "enrolment"), claim);
  if (!await signedBy(fromHex(task.enrolment), "enrolment", certificate, body)) throw new Error("the enrolment did not sign the claim of this client");
}

// The report: as in client.py

export async function transcriptOf(sha, round, purpose) {
  return sha256(text(`["${sha}",${round},"${purpose}"]`));
}

export async function report(taskText, value, { round = 0, own = null, certificate = new Uint8Array(0), proofKey = random(32) } = {}) {
  const task = checkedTask(taskText, "keepers", round), sha = toHex(await sha256(text(taskText)));
  const vector = await encode(task.encoding, value);
  const sums = task.checked ? await proved(task.encoding, vector, proofKey) : vector;
  const { secret, key } = own ?? await newSecret();
  await enrolled(task, sha, round, key, certificate);
  const transcript = await transcriptOf(sha, round, "report");
  const peers = task.keepers.map((keeper) => ({ key: fromHex(keeper.slice(64)), pair: [toHex(key), keeper], sign: 1 }));
  await (task.checked ? addResidues : addMasks)(sums, secret, peers, transcript);
  const shown = task.enrolment === null ? new Uint8Array(0) : certificate;
  return joined(transcript.slice(0, 16), key, shown, littleEndian(sums));
}

// What keepers check: as in validity.py. Numbers are modulo the prime.

const P = Number(PRIME), TIMES = 2, SPARE = 64, MOST_BLOCKS = 100_000;

export function formOf(encoding) { // null: nothing can be checked
  switch (encoding.kind) {
    case "Histogram": return { sizes: [encoding.cells] };
    case "Histograms": return { sizes: encoding.parts.map((part) => part[2]) };
    case "Tree": return { sizes: treeSizes(encoding) };
    case "Grid": return encoding.at_most === 1 ? { sizes: [cellsOf(encoding)] } : null;
    case "Sum": return { sizes: new Array(encoding.bits).fill(1), binary: true };
    case "Vector": {
      const bound = Math.floor((17 * encoding.grid) / 16), bits = bitLength(bound) + 1, restBits = bitLength(bound ** 2);
      const blocks = encoding.cells * (1 + bits) + restBits;
      if (blocks > MOST_BLOCKS || encoding.cells * 4 ** (bits - 1) + 2 ** restBits > P) return null;
      return { sizes: new Array(blocks).fill(1), bound, bits, restBits };
    }
    default: return null;
  }
}

const bitLength = (number) => number.toString(2).length;

function vectorMarks({ bound, bits, restBits }, vector) { // entries modulo the prime, their bits, and those of what the norm lacks
  const entries = Array.from(vector, (one) => one | 0), lowest = 2 ** (bits - 1);
  const rest = bound ** 2 - entries.reduce((sum, one) => sum + one * one, 0);
  const bitsOf = (number, many) => Array.from({ length: many }, (_, bit) => (number >>> bit) & 1);
  return [...entries.map((one) => (one < 0 ? P + one : one)), ...entries.flatMap((one) => bitsOf(one + lowest, bits)), ...bitsOf(rest, restBits)];
}

function residues(words, size) { // uniform: a number that is the prime itself is left out
  const numbers = new Uint32Array(size);
  for (let at = 0, from = 0; at < size; from++) if (words[from] >>> 1 !== P) numbers[at++] = words[from] >>> 1;
  return numbers;
}

const product = (one, other) => Number((BigInt(one) * BigInt(other)) % PRIME);

export async function proved(encoding, vector, key) { // the answer, its secret multiples, and what opens squares
  const form = formOf(encoding), { sizes, binary, bound } = form, n = TIMES * sizes.length, blocks = sizes.length;
  const marks = bound ? vectorMarks(form, vector) : binary ? sizes.map((_, bit) => (vector[0] >>> bit) & 1) : vector;
  const seed = await crypto.subtle.importKey("raw", await sha256(joined(text("ostraka/proof/1"), key)), "AES-CTR", false, ["encrypt"]);
  const drawn = residues(await streamOf(seed, 2 * n + SPARE), 2 * n), multiples = drawn.slice(0, n), masks = drawn.slice(n);
  const cells = marks.length, all = new Uint32Array((1 + TIMES) * cells + 4 * n);
  all.set(marks);
  for (let time = 0; time < TIMES; time++) {
    let at = 0;
    for (let block = 0; block < blocks; block++) {
      const multiple = multiples[time * blocks + block];
      for (const end = at + sizes[block]; at < end; at++) if (marks[at]) all[(1 + time) * cells + at] = product(multiple, marks[at]);
    }
  }
  const opening = [multiples, masks, masks.map((one) => product(one, one)), multiples.map((one, at) => product(one, masks[at]))];
  opening.forEach((part, number) => all.set(part, (1 + TIMES) * cells + number * n));
  return all;
}

async function addResidues(sums, secret, peers, transcript) {
  for (const { key, pair } of peers) {
    const mask = residues(await pairMask(secret, key, transcript, pair, sums.length + SPARE), sums.length);
    for (let at = 0; at < sums.length; at++) sums[at] = (sums[at] + mask[at]) % P;
  }
}

// How many neighbours mask with a client, and how many shares give a secret: as in _graph.py

function logFactorials(most) {
  const found = new Float64Array(most + 1);
  for (let at = 2; at <= most; at++) found[at] = found[at - 1] + Math.log(at);
  return found;
}

function chances(logs, all, marked, drawn) { // hypergeometric: how many of those drawn are marked
  const log = (of, some) => logs[of] - logs[some] - logs[of - some];
  return Array.from({ length: drawn + 1 }, (_, some) => some > marked || drawn - some > all - marked ? 0
    : Math.exp(log(marked, some) + log(all - marked, drawn - some) - log(all, drawn)));
}

const sum = (values) => values.reduceRight((total, value) => total + value, 0); // the smallest come first

function thresholdOf(logs, n, colluding, k, lying) {
  const chance = chances(logs, n - 1, Math.min(colluding, n - 1), k);
  let most = 0;
  while (n * sum(chance.slice(most)) > 2 ** -40) most++;
  return lying ? Math.floor((k + most + 1) / 2) : Math.max(most, 1);
}

function starved(logs, n, missing, k, t) {
  return n * sum(chances(logs, n - 1, Math.max(0, n - 1 - missing), k).slice(0, t).reverse());
}

function apart(logs, n, colluding, missing, k, t, lying) { // cut in two places: runs of k / 2 clients
  if (lying) return n ** 2 / 2 * sum(chances(logs, n, Math.min(colluding, n), k / 2).slice(t - k / 2)) ** 2;
  const bad = colluding + missing;
  return bad < k ? 0 : n ** 2 / 2 * Math.exp(Math.min(0, logs[bad] - logs[bad - k] - logs[n] + logs[n - k]));
}

export function degreeOf(task, n) {
  const colluding = Math.ceil(task.colluding * n - 1e-9), missing = -Math.floor(-task.missing * n);
  const logs = logFactorials(n);
  for (let k = 2; k < n - 1; k += 2) {
    let t = thresholdOf(logs, n, colluding, k, task.lying);
    while (t <= k && apart(logs, n, colluding, missing, k, t, task.lying) > 2 ** -40) t++;
    if (t <= k && starved(logs, n, missing, k, t) <= 2 ** -20) return [k, t];
  }
  const k = n - 1, t = task.lying ? Math.floor((k + colluding) / 2) + 1 : colluding + 1; // everybody
  if (t > k - missing) throw new Error("no number of neighbours gives both secrecy and completion");
  return [k, Math.max(t, Math.min(k - missing, Math.floor((colluding + k - missing + 1) / 2)))];
}

// The ring of neighbours: as in _graph.py. Its order comes from SHAKE-256, which WebCrypto does not have.

const LANE = 2n ** 64n - 1n;
const turned = (lane, by) => ((lane << by) | (lane >> (64n - by))) & LANE;

function roundNumbers() { // FIPS 202, section 3.2.5: bits of a shift register
  let register = 1;
  return Array.from({ length: 24 }, () => {
    let number = 0n;
    for (let j = 0; j < 7; j++) {
      if (register & 1) number |= 1n << BigInt(2 ** j - 1);
      register = (register << 1) ^ (register & 0x80 ? 0x171 : 0);
    }
    return number;
  });
}
const ROUND_NUMBERS = roundNumbers();

function permuted(lanes) {
  for (const number of ROUND_NUMBERS) {
    const columns = Array.from({ length: 5 }, (_, x) => lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20]);
    for (let at = 0; at < 25; at++) lanes[at] ^= columns[(at + 4) % 5] ^ turned(columns[(at + 1) % 5], 1n);
    let [x, y, lane] = [1, 0, lanes[1]];
    for (let step = 0; step < 24; step++) {
      [x, y] = [y, (2 * x + 3 * y) % 5];
      const next = lanes[x + 5 * y];
      lanes[x + 5 * y] = turned(lane, BigInt((((step + 1) * (step + 2)) / 2) % 64));
      lane = next;
    }
    for (let row = 0; row < 25; row += 5) {
      const old = lanes.slice(row, row + 5);
      for (let at = 0; at < 5; at++) lanes[row + at] = old[at] ^ (~old[(at + 1) % 5] & LANE & old[(at + 2) % 5]);
    }
    lanes[0] ^= number;
  }
}

export function shake256(seed, size) { // of a seed shorter than one block
  const block = new Uint8Array(136), lanes = new Array(25).fill(0n), view = new DataView(block.buffer);
  if (seed.length >= block.length) throw new Error("the seed is too long");
  block.set(seed); block[seed.length] ^= 0x1f; block[135] ^= 0x80;
  for (let at = 0; at < 17; at++) lanes[at] = view.getBigUint64(8 * at, true);
  const out = new Uint8Array(Math.ceil(size / 136) * 136), squeezed = new DataView(out.buffer);
  for (let start = 0; start < size; start += 136) {
    permuted(lanes);
    for (let at = 0; at < 17; at++) squeezed.setBigUint64(start + 8 * at, lanes[at], true);
  }
  return out.slice(0, size);
}

export function neighboursOf(place, n, k, seed) {
  if (k >= n - 1) return Array.from({ length: n }, (_, other) => other).filter((other) => other !== place);
  const view = new DataView(shake256(seed, 16 * n).buffer);
  const word = (row, client) => view.getBigUint64(8 * (row * n + client), true);
  const compared = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const order = Array.from({ length: n }, (_, client) => client)
    .sort((a, b) => compared(word(1, a), word(1, b)) || compared(word(0, a), word(0, b)) || a - b);
  const own = order.indexOf(place), found = [];
  for (let step = 1; step <= k / 2; step++) found.push(order[(own + step) % n], order[(own - step + n) % n]);
  return found.sort((a, b) => a - b);
}

// Shares of secrets: as in secure/shares.py

const SHARES = 2n ** 256n + 297n;
const numberOf = (bytes) => BigInt("0x" + toHex(bytes.slice().reverse()));
const bytesOf = (number, size) => fromHex(number.toString(16).padStart(2 * size, "0")).reverse();

function below(limit) {
  for (;;) {
    const drawn = random(33);
    drawn[32] &= 1;
    const number = numberOf(drawn);
    if (number < limit) return number;
  }
}

export function split(secret, threshold, n) {
  const rest = Array.from({ length: threshold - 1 }, () => below(SHARES)), constant = numberOf(secret);
  return Array.from({ length: n }, (_, at) => {
    const place = BigInt(at + 1);
    return bytesOf((rest.reduce((value, one) => ((value + one) * place) % SHARES, 0n) + constant) % SHARES, 33);
  });
}

// Noise in whole numbers: the difference of two Poisson draws, from tables of 128 bits as in mechanisms/skellam.py

export function poissonTable(mean) {
  const scale = 2n ** 100n, rate = BigInt(mean * 2 ** 100), mode = Math.floor(mean), one = 2n ** 300n;
  const up = [], down = [];
  for (let at = mode, weight = one; weight > 2n ** 150n; weight = (weight * rate) / (scale * BigInt(++at))) up.push(weight);
  for (let at = mode, weight = one; at > 0;) {
    weight = (weight * scale * BigInt(at--)) / rate;
    if (weight <= 2n ** 150n) break;
    down.push(weight);
  }
  const weights = [...down.reverse(), ...up], total = weights.reduce((a, b) => a + b);
  let reached = 0n;
  return { first: mode - down.length, ends: weights.map((weight) => ((reached += weight) << 128n) / total) };
}

function drawn({ first, ends }, word) {
  let low = 0, high = ends.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] <= word) low = middle + 1; else high = middle;
  }
  return first + low;
}

const MOST_TABLE = 1e6; // of a variance

export function skellam(variance, size) {
  if (variance > MOST_TABLE) { // the sum of two draws of half the variance is one of all of it
    const more = skellam(variance / 2, size);
    return skellam(variance / 2, size).map((one, at) => one + more[at]);
  }
  const table = poissonTable(variance / 2);
  const word = () => numberOf(random(16));
  return Int32Array.from({ length: size }, () => drawn(table, word()) - drawn(table, word()));
}

// A client among clients: as in _masking.py. A message that is wrong ends the round for this client.

const SEALED = 2 * 33 + 16, ENTRY = 4 * 32, FIELD = 2n ** 255n - 19n;
const LOW_ORDER = new Set([0n, 1n, FIELD - 1n,
  325606250916557431795983626356110631294008115727848805560023387167927233504n,
  39382357235489614581723060781553021112529911719440698176882885853963445705823n]);
const same = (one, other) => toHex(one) === toHex(other);
const placeBytes = (values) => littleEndian(Uint32Array.from(values));
const placesOf = (bytes) => {
  if (bytes.length % 4) throw new Error("places must have four bytes each");
  const view = new DataView(bytes.slice().buffer);
  return Array.from({ length: bytes.length / 4 }, (_, at) => view.getUint32(4 * at, true));
};
const pieces = (bytes, size) => {
  if (bytes.length % size) throw new Error("a message has another length");
  return Array.from({ length: bytes.length / size }, (_, at) => bytes.slice(at * size, (at + 1) * size));
};
export const kindOf = async (kind, digest) => (await sha256(joined(digest, text(kind)))).slice(0, 16);
const pairNames = (one, other) => [`client ${one}`, `client ${other}`];
const direction = (sender, receiver) => joined(new Uint8Array(11), Uint8Array.of(sender < receiver ? 1 : 0));

function strictKey(key) {
  const number = numberOf(key);
  if (number >= FIELD || LOW_ORDER.has(number)) throw new Error("a key is malformed or of low order");
}

async function rawSecret() { // its bytes are shared out, so the browser cannot keep them to itself
  const bytes = random(32), secret = await secretOf(bytes, true);
  const coded = (await crypto.subtle.exportKey("jwk", secret)).x.replaceAll("-", "+").replaceAll("_", "/");
  return { bytes, secret, key: Uint8Array.from(atob(coded), (letter) => letter.charCodeAt(0)) };
}

export class Masking {
  #task; #round; #sha; #stage = "join"; #peers = new Map(); #held = new Map(); #senders = new Set(); #pairKeys = new Map();
  #own; #shares; #signer; #seed = random(32); #ticket = random(32); #entry; #n; #place; #digest; #threshold; #survivors;

  constructor(taskText, round = 0) {
    this.#task = checkedTask(taskText, "clients", round);
    this.#round = round; this.#sha = sha256(text(taskText)).then(toHex);
  }

  get key() { return this.#own.key; }

  get used() { return this.#stage !== "join"; }

  async claim() { // what an enrolment signs: all keys of this client in one digest
    if (!this.#entry) {
      this.#own = await rawSecret();
      this.#shares = await newSecret();
      const pair = await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"]);
      const signs = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
      this.#signer = pair.privateKey;
      this.#entry = joined(this.#own.key, this.#shares.key, signs, await sha256(this.#ticket));
    }
    return sha256(this.#entry);
  }

  join(certificate = new Uint8Array(0)) { return this.#answer("join", "share", async () => {
    await enrolled(this.#task, await this.#sha, this.#round, await this.claim(), certificate);
    const shown = this.#task.enrolment === null ? new Uint8Array(0) : certificate;
    return joined(await kindOf("join", await transcriptOf(await this.#sha, this.#round, "join")), this.#entry, shown);
  }); }

  share(message) { return this.#answer("share", "mask", async () => {
    await (this.#task.enrolment === null ? this.#readNeighbours(message) : this.#readRoster(message));
    const secrets = [this.#seed, this.#own.bytes].map((one) => split(one, this.#threshold, this.#peers.size));
    const sealed = [];
    for (const [peer, entry] of this.#peers) {
      const use = { purpose: "shares", cipher: "AES-GCM", uses: ["encrypt", "decrypt"] };
      const names = pairNames(this.#place, peer), number = sealed.length;
      const key = await sharedKey(this.#shares.secret, entry.slice(32, 64), this.#digest, names, use);
      this.#pairKeys.set(peer, key);
      const iv = direction(this.#place, peer);
      const both = joined(secrets[0][number], secrets[1][number]);
      sealed.push(new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, key, both)));
    }
    return joined(await this.#head("share"), await sha256(joined(this.#digest, this.#seed)), ...sealed);
  }); }

  mask(value, message) { return this.#answer("mask", this.#task.lying ? "confirm" : "unmask", async () => {
    for (const piece of pieces(await this.#body("inbox", message), 4 + SEALED)) {
      const [peer] = placesOf(piece.slice(0, 4));
      if (!this.#peers.has(peer) || this.#senders.has(peer)) throw new Error("shares of a client that is no neighbour, or twice of one");
      const iv = direction(peer, this.#place);
      const opened = crypto.subtle.decrypt({ name: "AES-GCM", iv }, this.#pairKeys.get(peer), piece.slice(4));
      this.#senders.add(peer); // one wrong seal ends no round: the mask stays, others hold shares of that neighbour
      await opened.then((both) => this.#held.set(peer, new Uint8Array(both)), () => {});
    }
    this.#atLeast(this.#held.size, "sent shares");
    const sums = await encode(this.#task.encoding, value);
    if (this.#task.noise === "clients") added(sums, skellam(this.#share(), sums.length));
    const seed = await crypto.subtle.importKey("raw", this.#seed, "AES-CTR", false, ["encrypt"]);
    added(sums, await streamOf(seed, sums.length));
    const peers = [...this.#senders].map((peer) => ({ key: this.#peers.get(peer).slice(0, 32),
      pair: pairNames(this.#place, peer), sign: this.#place < peer ? 1 : -1 }));
    await addMasks(sums, this.#own.secret, peers, this.#digest);
    return joined(await this.#head("mask"), littleEndian(sums));
  }); }

  confirm(message) { return this.#answer("confirm", "unmask", async () => {
    this.#survivors = await this.#readSurvivors(message);
    const body = await this.#confirmed();
    const signature = await crypto.subtle.sign({ name: "Ed25519" }, this.#signer, signedBody("survivors", body));
    return joined(await this.#head("confirm"), new Uint8Array(signature));
  }); }

  unmask(message) { return this.#answer("unmask", "done", async () => {
    if (this.#task.lying) await this.#checkConfirmations(await this.#body("confirmations", message));
    else this.#survivors = await this.#readSurvivors(message);
    const alive = new Set(this.#survivors.filter((place) => this.#held.has(place)));
    this.#atLeast(alive.size, "survive");
    const told = [...this.#held].map(([peer, both]) => alive.has(peer)
      ? joined(placeBytes([peer]), Uint8Array.of(1), both.slice(0, 33))
      : joined(placeBytes([peer]), Uint8Array.of(0), both.slice(33)));
    this.#held.clear(); this.#seed = this.#own = this.#signer = null;
    return joined(await this.#head("unmask"), ...told);
  }); }

  #share() { // sized for the fewest who may be honest
    const { sigma, least, colluding } = this.#task;
    return (sigma * sigma) / (least - Math.ceil(colluding * this.#n - 1e-9));
  }

  async #readRoster(message) { // all of it, signed by the enrolment
    const bound = await transcriptOf(await this.#sha, this.#round, "roster");
    if (!same(message.slice(0, 16), await kindOf("roster", bound))) throw new Error("the roster is for another task or round");
    const nonce = message.slice(16, 48), signature = message.slice(48, 112), body = message.slice(112);
    const whole = joined(bound, await sha256(body), nonce);
    if (!await signedBy(fromHex(this.#task.enrolment), "roster", signature, whole)) throw new Error("the enrolment did not sign the roster");
    const entries = pieces(body, ENTRY), keys = new Set(), masks = entries.map((entry) => toHex(entry.slice(0, 32)));
    this.#n = entries.length; this.#digest = await sha256(whole);
    if (!(this.#n >= this.#task.least && this.#n <= this.#task.most)) throw new Error("the roster has too few or too many clients");
    for (const entry of entries) for (const key of [entry.slice(0, 32), entry.slice(32, 64)]) { strictKey(key); keys.add(toHex(key)); }
    if (keys.size !== 2 * this.#n || masks.some((key, at) => at && masks[at - 1] >= key)) throw new Error("the clients of a roster must be in order, with keys of their own");
    this.#place = entries.findIndex((entry) => same(entry, this.#entry));
    if (this.#place < 0) throw new Error("this client is not on the roster");
    const [k, t] = degreeOf(this.#task, this.#n);
    this.#threshold = t;
    for (const peer of neighboursOf(this.#place, this.#n, k, this.#digest)) this.#peers.set(peer, entries[peer]);
  }

  async #readSurvivors(message) { // of a lying tally all of them, else those of the neighbours
    const { lying, least } = this.#task, [n, ...found] = placesOf(await this.#body("survivors", message));
    if (found.some((place, at) => place >= this.#n || (at && found[at - 1] >= place))) throw new Error("survivors must be different clients in order");
    if (!lying && found.some((place) => !this.#peers.has(place))) throw new Error("survivors must be neighbours");
    if (!((lying ? found.length : n) >= least && n <= this.#n)) throw new Error(`a round needs ${least} survivors`);
    if (lying && !found.includes(this.#place)) throw new Error("this client is not among the survivors");
    // whoever survived has sent its shares to all neighbours: without them the tally could open a smaller sum
    const withheld = found.filter((place) => this.#peers.has(place) && !this.#senders.has(place)).length;
    if (withheld) throw new Error(`the shares of ${withheld} neighbours who survived did not arrive`);
    return found;
  }

  async #confirmed() { return joined(this.#digest, await sha256(placeBytes(this.#survivors))); }

  async #checkConfirmations(message) {
    const good = new Set(), body = await this.#confirmed(), survivors = new Set(this.#survivors);
    for (const piece of pieces(message, 4 + 64)) {
      const [peer] = placesOf(piece.slice(0, 4)), entry = survivors.has(peer) && this.#peers.get(peer);
      if (entry && await signedBy(entry.slice(64, 96), "survivors", piece.slice(4), body)) good.add(peer);
    }
    if (good.size < this.#threshold) throw new Error(`${this.#threshold} neighbours must confirm the survivors, and ${good.size} do`);
  }

  async #readNeighbours(message) {
    const bound = await transcriptOf(await this.#sha, this.#round, "roster");
    if (!same(message.slice(0, 16), await kindOf("neighbours", bound))) throw new Error("the roster is for another task or round");
    [this.#n, this.#place] = placesOf(message.slice(16, 24));
    this.#digest = message.slice(24, 56);
    if (!(this.#n >= this.#task.least && this.#n <= this.#task.most && this.#place < this.#n)) throw new Error("the roster has too few or too many clients");
    const [k, t] = degreeOf(this.#task, this.#n), entries = pieces(message.slice(56), 4 + ENTRY);
    if (entries.length !== k) throw new Error(`the roster must name ${k} neighbours`);
    this.#threshold = t;
    const keys = new Set([this.#entry.slice(0, 32), this.#entry.slice(32, 64)].map(toHex));
    for (const piece of entries) {
      const [peer] = placesOf(piece.slice(0, 4)), entry = piece.slice(4);
      if (this.#peers.has(peer) || peer === this.#place || peer >= this.#n) throw new Error("neighbours must be different clients");
      for (const key of [entry.slice(0, 32), entry.slice(32, 64)]) { strictKey(key); keys.add(toHex(key)); }
      this.#peers.set(peer, entry);
    }
    if (keys.size !== 2 * k + 2) throw new Error("neighbours must have keys of their own");
  }

  #atLeast(n, what) {
    if (n < this.#threshold) throw new Error(`${this.#threshold} neighbours are needed, and ${n} ${what}`);
  }

  async #body(kind, message) {
    if (!same(message.slice(0, 16), await kindOf(kind, this.#digest))) throw new Error(`the message is not the ${kind} of this round`);
    return message.slice(16);
  }

  async #head(kind) { return joined(await kindOf(kind, this.#digest), placeBytes([this.#place]), this.#ticket); }

  async #answer(stage, then, work) {
    if (this.#stage !== stage) throw new Error(`the client answers '${stage}' once, and is at '${this.#stage}'`);
    this.#stage = "done";
    const answer = await work();
    this.#stage = then;
    return answer;
  }
}

// Sending: all messages of one client to a tally

const RESENDS = 4; // a message that is repeated counts once

async function asked(base, verb, body, pause = 500) {
  for (let tries = 0; ; tries++) {
    try {
      const answer = await fetch(`${base}/v1/${verb}`, { method: "POST", body });
      const found = new Uint8Array(await answer.arrayBuffer());
      if (answer.ok) return found;
      throw new Error(JSON.parse(new TextDecoder().decode(found)).error, { cause: answer.status });
    } catch (error) {
      if (error.cause !== undefined || tries === RESENDS) throw error; // refused, or out of reach for long
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}

async function nextOf(base, key, last, pause) {
  for (;;) {
    const message = await asked(base, "outbox", key);
    if (message.length && !same(message, last)) return message;
    await new Promise((done) => setTimeout(done, pause));
  }
}

async function exchanged(base, { task, client }, value, certificate, { pause = 500, onStage = () => {} } = {}) {
  await encode(task.encoding, value); // a value that is refused is refused before anybody counts on it
  await asked(base, "message", await client.join(certificate));
  const { key } = client;
  let last = new Uint8Array(0);
  for (const stage of ["share", "mask", ...(task.lying ? ["confirm"] : []), "unmask"]) {
    onStage(stage);
    last = await nextOf(base, key, last, pause);
    await asked(base, "message", stage === "mask" ? await client.mask(value, last) : await client[stage](last));
  }
}

export async function prepared(base) { // a client with its keys, and the claim that an enrolment signs
  const taskText = await (await fetch(`${base}/task.json`)).text(), task = JSON.parse(taskText);
  const one = { taskText, task, sha: toHex(await sha256(text(taskText))), message: null, round: 0 };
  if (task.rounds > 1) one.round = (await noticeOf(base, one))?.round ?? 0;
  if (task.trust === "clients") one.client = new Masking(taskText, one.round); else one.own = await newSecret();
  return { ...one, claim: toHex(one.client ? await one.client.claim() : one.own.key) };
}

export async function send(base, value, { expected = null, ready = null, certify = null, ...options } = {}) {
  const one = ready ?? await prepared(base), { taskText, task, own } = one;
  if (expected && one.sha !== expected) throw new Error("this is another task than the one you agreed to");
  if (task.enrolment !== null && !certify) throw new Error("this task needs an enrolled client: the enrolment must sign its claim");
  const certificate = task.enrolment === null ? new Uint8Array(0) : await certify(one.claim);
  if (one.client) await exchanged(base, one, value, certificate, options);
  else await asked(base, "report", one.message ??= await report(taskText, value, { own, certificate, round: one.round }));
  return one.sha;
}

// What a tally says beside its task, signed: what of the budget is spent, and in the end the result

export async function noticeOf(base, { task, sha }) {
  const sealed = await asked(base, "notice", new Uint8Array(0));
  if (!sealed.length) return null;
  const body = sealed.slice(64);
  if (!await signedBy(fromHex(task.tally), "notice", sealed.slice(0, 64), body)) throw new Error("the tally did not sign its notice");
  const notice = JSON.parse(new TextDecoder().decode(body));
  if (notice.task !== sha) throw new Error("the notice is for another task");
  return notice;
}

// A person's own ledger: what all answers from pages of this address have cost, over all tasks. It stays here.

const STORED = "ostraka-own-ledger", USUAL_BUDGET = 8;

export class OwnLedger {
  #storage; #memory = null;

  constructor(storage) { // localStorage, unless the browser has none: then it lasts as long as the page
    try { this.#storage = storage ?? globalThis.localStorage ?? null; } catch { this.#storage = null; }
  }

  get lasts() { return this.#storage !== null; }

  #read() {
    const text = this.#storage === null ? this.#memory : this.#storage.getItem(STORED);
    const { budget, tasks } = text === null ? { budget: USUAL_BUDGET, tasks: {} } : JSON.parse(text);
    if (!(budget > 0) || typeof tasks !== "object" || tasks === null) throw new Error("the ledger of this browser is damaged: nothing is sent");
    return { budget, tasks };
  }

  #write(book) {
    const text = JSON.stringify(book);
    if (this.#storage === null) this.#memory = text; else this.#storage.setItem(STORED, text);
  }

  get budget() { return this.#read().budget; }

  set budget(epsilon) {
    if (!(epsilon > 0 && Number.isFinite(epsilon))) throw new Error("the limit must be a number above 0");
    this.#write({ ...this.#read(), budget: epsilon });
  }

  answered(sha, round) { return this.#read().tasks[sha]?.rounds.includes(round) ?? false; }

  // Epsilon and delta of all answers together, by adding what each task states: of its answered rounds or of all its
  // rounds, whichever is less. With { sha, round, question } as if that round were answered, too.
  spent(more = null) {
    const { tasks } = this.#read();
    if (more) tasks[more.sha] = withRound(tasks[more.sha], more);
    let epsilon = 0, delta = 0;
    for (const one of Object.values(tasks)) {
      const times = one.rounds.length, once = new Set(one.rounds).size === times && times * one.epsilon > one.series;
      epsilon += once ? one.series : times * one.epsilon;
      delta += once ? one.delta : times * one.delta;
    }
    return { epsilon, delta };
  }

  charge(more) { // before anything is sent; an error if the limit would be passed
    const book = this.#read(), { epsilon } = this.spent(more);
    if (!(epsilon <= book.budget)) throw new OverBudget(epsilon, book.budget);
    book.tasks[more.sha] = withRound(book.tasks[more.sha], more);
    this.#write(book);
  }
}

export class OverBudget extends Error {
  constructor(asked, budget) {
    super(`this answer would bring all of yours to epsilon ${asked}, above your limit of ${budget}`);
    this.asked = asked; this.budget = budget;
  }
}

const withRound = (task, { round, question: { epsilon, series, delta } }) =>
  ({ epsilon, series, delta, rounds: [...(task?.rounds ?? []), round] });
