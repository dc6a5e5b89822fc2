// Items to recommend, computed here from the released counts of items and pairs and from a person's own items, which
// never leave this page. As in estimate.py: neighbours of items, with what is mostly noise drawn to independence.

import { pairCell } from "./collect.js";

const FLOOR = 1e-12, POWER = 1.5;

function signal(full, expected, noise, items) { // the variance of co-counts, fitted as a power of what is expected
  let above = 0, below = 0;
  for (let at = 0; at < full.length; at++) {
    if (Math.floor(at / items) === at % items) continue;
    const shape = expected[at] ** POWER, weight = shape / noise[at] ** 2;
    above += weight * ((full[at] - expected[at]) ** 2 - noise[at]);
    below += weight * shape;
  }
  const scale = Math.max(above / below, 0);
  return expected.map((one) => scale * one ** POWER);
}

// The likelihood of each column's item given the row's item; popularity on the diagonal
export function similarity(sums, encoding, nClients, variance) {
  const { items } = encoding, size = items * items, full = new Float64Array(size);
  for (let row = 0; row < items; row++) for (let column = 0; column < items; column++) full[row * items + column] = sums[pairCell(encoding, row, column)];
  const least = Math.sqrt(variance) + FLOOR, own = Float64Array.from({ length: items }, (_, item) => Math.max(full[item * (items + 1)], least));
  const table = (cell) => Float64Array.from({ length: size }, (_, at) => cell(Math.floor(at / items), at % items, at));
  const popularity = pooled(full, own, nClients, variance, items, table).map((one) => Math.max(one, least));
  const expected = table((row, column) => (popularity[row] * popularity[column]) / nClients);
  const noise = expected.map((one) => variance + one + FLOOR), spread = signal(full, expected, noise, items);
  return table((row, column, at) => row === column ? popularity[row]
    : (expected[at] + (spread[at] / (spread[at] + noise[at])) * (full[at] - expected[at])) / popularity[row]);
}

function pooled(full, popularity, nClients, variance, items, table) { // counts of items, from their co-counts, too
  const share = popularity.map((one) => one / nClients), expected = table((row, column) => popularity[row] * share[column]);
  const noise = expected.map((one) => variance + one + FLOOR);
  let above = 0, below = 0;
  for (let at = 0; at < full.length; at++) {
    if (Math.floor(at / items) === at % items) continue;
    above += (expected[at] / noise[at]) * full[at];
    below += (expected[at] / noise[at]) * expected[at];
  }
  const lift = Math.max(above / below, 0), spread = signal(full, expected.map((one) => lift * one), noise, items);
  return popularity.map((one, column) => {
    let precision = 0, evidence = 0;
    for (let row = 0; row < items; row++) {
      if (row === column) continue;
      const at = row * items + column, weight = 1 / (noise[at] + spread[at]);
      precision += share[row] ** 2 * weight;
      evidence += share[row] * weight * full[at];
    }
    return (one + variance * lift * evidence) / (1 + variance * lift ** 2 * precision);
  });
}

export function ranked(likelihood, basket, n) { // the items that are likeliest with those of a basket, best first
  const items = Math.sqrt(likelihood.length), chosen = new Set(basket);
  for (const item of chosen) if (!Number.isInteger(item) || item < 0 || item >= items) throw new Error("an item number is out of range");
  const score = Float64Array.from({ length: items }, (_, item) => chosen.size
    ? [...chosen].sort((a, b) => a - b).reduce((sum, one) => sum + likelihood[one * items + item], 0) : likelihood[item * (items + 1)]);
  return Array.from({ length: items }, (_, item) => item).filter((item) => !chosen.has(item))
    .sort((a, b) => score[b] - score[a] || a - b).slice(0, n);
}
