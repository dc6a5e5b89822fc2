import type { Encoding } from "./collect.js";

/** The likelihood of each item given another, row by row, from released counts of items and pairs. */
export function similarity(sums: ArrayLike<number>, encoding: Encoding, nClients: number, variance: number): Float64Array;
/** The items that are likeliest with those of a basket, best first. */
export function ranked(likelihood: Float64Array, basket: number[], n: number): number[];
