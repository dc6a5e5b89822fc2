/** How a value becomes a vector: the `encoding` of a task. */
export type Encoding =
  | { kind: "Histogram"; low: number; high: number; cells: number }
  | { kind: "Histograms"; parts: [number, number, number][] }
  | { kind: "Tree"; low: number; high: number; fanout: number }
  | { kind: "Sum"; low: number; high: number; bits: number }
  | { kind: "Vector"; cells: number; clip: number; grid: number }
  | { kind: "Grid" | "Visits"; x: [number, number]; y: [number, number]; shape: [number, number]; at_most: number }
  | { kind: "Pairs"; items: number; at_most: number }
  | { kind: "CountMin" | "CountSketch"; width: number; depth: number; key: string; at_most: number }
  | { kind: string; [field: string]: unknown };

/** What a person answers: a number, several, a point or points, item numbers. */
export type Value = number | number[] | number[][] | Float64Array | Float32Array;

/** What people are asked, by language, and at what price. */
export interface Question {
  text: Record<string, string>;
  title: Record<string, string>;
  purpose: Record<string, string>;
  controller: string;
  contact: string;
  epsilon: number;
  series: number;
  delta: number;
  unit: Record<string, string>;
  choices: Record<string, string[]>;
  keep_days: number;
  protects: "client";
}

export interface Task {
  encoding: Encoding;
  sigma: number;
  tally: string;
  keepers: string[];
  trust: "keepers" | "clients";
  noise: "keepers" | "clients" | "tally";
  rounds: number;
  question?: Question | null;
  checked?: true;
  [field: string]: unknown;
}

/** A client with keys of its own, and the task that its tally serves. */
export interface Prepared { task: Task; taskText: string; sha: string; round: number; claim: string }

export interface SendOptions {
  /** The fingerprint that was agreed on; another task is refused. */
  expected?: string | null;
  ready?: Prepared | null;
  /** The enrolment's signature of a claim, where the task asks for one. */
  certify?: ((claim: string) => Uint8Array | Promise<Uint8Array>) | null;
  /** Milliseconds between two looks. */
  pause?: number;
  onStage?: (stage: "share" | "mask" | "confirm" | "unmask") => void;
}

/** Report one value to the tally at an address; returns the task's fingerprint. */
export function send(base: string, value: Value, options?: SendOptions): Promise<string>;
export function prepared(base: string): Promise<Prepared>;
/** What the tally signed beside its task: what is spent, and the result; null if it said nothing. */
export function noticeOf(base: string, one: { task: Task; sha: string }): Promise<Notice | null>;
export interface Notice { task: string; round: number; spent: number; budget: number; result: Record<string, unknown> | null }

/** The one message of a client that trusts keepers. */
export function report(taskText: string, value: Value, options?: {
  round?: number; own?: { secret: CryptoKey; key: Uint8Array } | null; certificate?: Uint8Array; proofKey?: Uint8Array;
}): Promise<Uint8Array>;
/** The vector of a value; `key`, 32 bytes, decides how numbers between two steps are rounded. */
export function encode(encoding: Encoding, value: Value, key?: Uint8Array): Promise<Uint32Array>;
export function cellsOf(encoding: Encoding): number;
/** Teach this module another kind of encoding. */
export function register(kind: string, methods: {
  cells(encoding: Encoding): number;
  encode(encoding: Encoding, value: Value, vector: Uint32Array, key: Uint8Array): void | Promise<void>;
}): void;
/** What a client shares where reports are checked. */
export function proved(encoding: Encoding, vector: Uint32Array, key: Uint8Array): Promise<Uint32Array>;

/** A client in a round among clients. Each exchange is answered once. */
export class Masking {
  constructor(taskText: string, round?: number);
  readonly key: Uint8Array;
  claim(): Promise<Uint8Array>;
  join(certificate?: Uint8Array): Promise<Uint8Array>;
  share(message: Uint8Array): Promise<Uint8Array>;
  mask(value: Value, message: Uint8Array): Promise<Uint8Array>;
  confirm(message: Uint8Array): Promise<Uint8Array>;
  unmask(message: Uint8Array): Promise<Uint8Array>;
}

/** What all answers from this address have cost, over all tasks; it stays in the browser. */
export class OwnLedger {
  constructor(storage?: Pick<Storage, "getItem" | "setItem">);
  budget: number;
  readonly lasts: boolean;
  answered(sha: string, round: number): boolean;
  spent(more?: Charge | null): { epsilon: number; delta: number };
  /** Throws OverBudget, and writes nothing, if the limit would be passed. */
  charge(more: Charge): void;
}
export interface Charge { sha: string; round: number; question: Pick<Question, "epsilon" | "series" | "delta"> }
export class OverBudget extends Error { readonly asked: number; readonly budget: number }

export function fromHex(digits: string): Uint8Array;
export function toHex(bytes: Uint8Array): string;
