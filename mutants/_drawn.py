"""Planted defects of draws: noise with pores, bounds that do not hold, bits that come twice."""

from __future__ import annotations

from mutants._mutant import DRAWN, Mutant

__all__ = ["MUTANTS"]

BY_DRAWN = "core/mechanisms/test_exact.py::"

MUTANTS = [
    Mutant(
        "porous noise: of 64 random bits 32 are used",
        DRAWN,
        "words(rng, counts.shape)  # kernels",
        "words(rng, counts.shape) >> np.uint64(32) << np.uint64(32)  # kernels",
        BY_DRAWN + "test_every_bit_of_a_word_counts",
    ),
    Mutant(
        "rounding decides where floats tie",
        DRAWN,
        "draws.largest(counts, noise, scale, _doubt(scale), winners, sure)",
        "draws.largest(counts, noise, scale, _doubt(scale), winners, sure); sure[:] = True",
        BY_DRAWN + "test_where_64_bits_tie_the_next_ones_decide",
    ),
    Mutant(
        "noise trusted beyond its proved error",
        DRAWN,
        "max(scale * 2.0**-40, 1e-290)",
        "max(scale * 2.0**-60, 1e-290)",
        "core/test_floating_point.py::test_noise_errs_by_less_than_the_page_says",
    ),
    Mutant(
        "an enclosure that is not checked",
        "core/mechanisms/exact.py",
        "width = (large - small + 4 * doubt) / density",
        "width = (large - small + 4 * doubt) / density / 8; return middle - width, middle + width",
        BY_DRAWN + "test_enclosures_hold_the_quantiles_of_both_ends_and_are_at_most_a_few_times_as_wide",
    ),
    Mutant(
        "more bits for one class only",
        DRAWN,
        "        for k in going:\n            noises[k].refine()\n",
        "        noises[going[0]].refine()\n",
        BY_DRAWN + "test_where_64_bits_tie_the_next_ones_decide",
    ),
    Mutant(
        "further bits of a key are its first ones again",
        "core/randomness.py",
        "        words(stream, (self._drawn,))\n",
        "",
        BY_DRAWN + "test_keyed_rows_replay_single_keys_down_to_the_further_bits",
    ),
    Mutant(
        "a noisy float leaves in a certificate",
        "core/accounting/publish.py",
        "        noisy = exact.noisy_floor(place, scale=Fraction(self.noise), grid=grid, rng=rng)\n"
        "        return np.asarray(noisy, dtype=np.int64)\n",
        "        return np.asarray(float(place) + rng.normal(scale=self.noise))\n",
        "core/accounting/test_certificate.py::test_the_published_number_is_the_distance_with_its_noise",
    ),
    Mutant(
        "a noisy label row next to its cell's edge is left to the table",
        "core/mechanisms/exact.py",
        "_NEAR = 2**29",
        "_NEAR = -(2**29)",
        BY_DRAWN + "test_the_table_of_normal_cells_is_near_enough_and_numbers_near_an_edge_are_settled",
    ),
]
