"""Defects of private generators: those of the thesis, and slips of their sums and samples."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_STEP = "synth/test_sgd.py::TestOneStep::"
_PRICE = "synth/test_sgd.py::TestThePrice::"

MUTANTS = [
    Mutant(
        "a generator is kept after its rows are drawn",
        "synth/cli.py",
        "files.write(out / GENERATOR, generator.to_json())",
        "sample = generator.sample(rows) or files.write(out / GENERATOR, generator.to_json())",
        "cli/test_synth.py::test_a_generator_that_is_paid_for_is_kept_where_its_rows_are_too_many",
    ),
    Mutant(
        "eight rows of a person have eight votes",
        "synth/fitting.py",
        "if not (rows[:, -1] == 1).all():",
        "if not (rows[:, -1] <= 1).all():",
        "synth/test_evolution.py::test_rows_that_share_a_vote_are_refused",
    ),
    Mutant(
        "one choice of a table is not paid for",
        "core/mechanisms/adaptive.py",
        "total += self.n_pick * replace(",
        "total += (self.n_pick - 1) * replace(",
        "core/mechanisms/test_adaptive.py::test_the_price_is_that_of_all_counts_and_all_choices",
    ),
    Mutant(
        "tables that are chosen cost as one",
        "core/mechanisms/adaptive.py",
        "self.marginals(self.first[:1] * self.n_pick, self.sigma)",
        "self.marginals(self.first[:1], self.sigma)",
        "core/mechanisms/test_adaptive.py::test_the_price_is_that_of_all_counts_and_all_choices",
    ),
    Mutant(
        "a table that is chosen has the noise of the first",
        "core/mechanisms/adaptive.py",
        "return self.sigma_first if columns in self.first else self.sigma",
        "return self.sigma_first",
        "core/mechanisms/test_adaptive.py::test_every_table_carries_its_noise",
    ),
    Mutant(
        "scores are of squares, which one row moves by more",
        "core/mechanisms/adaptive.py",
        "np.abs(cells - np.rint(expected).astype(np.int64)).sum()",
        "np.square(cells - np.rint(expected).astype(np.int64)).sum()",
        "core/mechanisms/test_adaptive.py::test_one_unit_moves_no_score_by_more_than_its_weight",
    ),
    Mutant(
        "steps of persons cost nothing",
        "core/mechanisms/adaptive.py",
        "return self.first.curve() + self.following.curve()",
        "return self.first.curve()",
        "synth/test_sequences.py::test_the_price_is_that_of_both_parts_for_one_person",
    ),
    Mutant(
        "each step of a person weighs as much as a person",
        "core/mechanisms/adaptive.py",
        "weights = self.following.grain // (lengths[inside] - 1)",
        "weights = self.following.grain + 0 * lengths[inside]",
        "synth/test_sequences.py::test_one_person_adds_one_first_row_and_steps_that_share_one_grain",
    ),
    Mutant(
        "one row of text puts all rows in the order of text",
        "synth/sequences.py",
        "values = numbers(cells)",
        "values = np.where(np.isnan(numbers(cells)).any(), np.nan, numbers(cells))",
        "synth/test_sequences.py::test_one_line_of_order_moves_no_other_person",
    ),
    Mutant(
        "a copy has one row for each person",
        "synth/tables.py",
        "factors = np.arange(1.0, fitting.ROWS_OF_A_PERSON + 1)",
        "factors = np.ones(fitting.ROWS_OF_A_PERSON)",
        "synth/test_tables.py::test_a_copy_has_as_many_rows_for_a_person_as_the_table",
    ),
    Mutant(
        "a step of the particles that leads away from the counts is kept",
        "core/mechanisms/particles.py",
        "if self.misfit() <= before:",
        "if self.misfit() <= 1e9 * before:",
        "core/mechanisms/test_adaptive.py::test_a_step_that_leads_away_from_the_counts_is_taken_back",
    ),
    Mutant(
        "an interval of a question is half as wide as it says",
        "synth/models.py",
        "width = float(ndtri((1 + confidence) / 2))",
        "width = float(ndtri((1 + confidence) / 2)) / 2",
        "synth/test_query.py::test_intervals_hold_the_count_of_the_rows_as_often_as_they_say",
    ),
    Mutant(
        "weights of particles are forgotten in samples",
        "core/mechanisms/particles.py",
        "below = np.cumsum(self.weights[order])",
        "below = np.cumsum(np.ones(len(order)))",
        "synth/test_tables.py::test_samples_hardly_add_an_error_of_their_own",
    ),
    Mutant(
        "a clip is read from norms without its price",
        "synth/sgd.py",
        "return float((self.sigma_norms**-2 + self.sigma**-2) ** -0.5)",
        "return self.sigma",
        _PRICE + "test_histogram_and_gradient_are_one_gaussian_sampled_once",
    ),
    Mutant(
        "batches are shuffled instead of drawn by coins",
        "nets/private.py",
        "return np.flatnonzero(self.rng.random(len(self.owners)) < self.sampling_rate)",
        "return self.rng.permutation(len(self.owners))[: int(len(self.owners) * self.sampling_rate)]",
        _STEP + "test_each_row_takes_part_by_a_coin_of_its_own",
    ),
    Mutant(
        "noise is divided by the number of networks",
        "nets/private.py",
        "* (self.sigma * clip)",
        "* (self.sigma * clip / len(self.modules))",
        _STEP + "test_every_network_gets_the_whole_noise_and_not_a_kth_of_it",
    ),
    Mutant(
        "sums are divided by the size of the sample",
        "nets/private.py",
        "gradient = noisy / max(float(self.expected[k]), 1.0) + gradient",
        "gradient = noisy / max(len(sample), 1) + gradient",
        _STEP + "test_divides_the_clipped_sum_by_the_expected_size_whatever_the_sample_holds",
    ),
    Mutant(
        "the discriminator of a private GAN normalises over its batch",
        "nets/generative.py",
        'self.discriminator = convolutions(shape, 1, width=width, norm="row")',
        "self.discriminator = convolutions(shape, 1, width=width)",
        "synth/test_sgd.py::TestMixture::test_rows_of_a_private_gan_do_not_move_each_others_gradients",
    ),
    Mutant(
        "the generator of a private GAN gets gradients of rows",
        "nets/generative.py",
        "self.generator.requires_grad_(requires_grad=False)\n        return gradients",
        "return gradients",
        "synth/test_sgd.py::TestMixture::test_a_private_gan_of_images_sees_rows_by_clipped_gradients_of_its_"
        "discriminator_only",
    ),
    Mutant(
        "sizes of clusters are exact",
        "synth/clusters.py",
        "            noisy[:, -1] / self.weight,",
        "            totals[:, -1] * (self.sigma / 65536) * self.stretch / self.weight,",
        "synth/test_kmeans.py::TestThePrice::test_the_sizes_are_noisy",
    ),
    Mutant(
        "one iteration is not paid for",
        "synth/clusters.py",
        "total = self.n_iterations * sums.sums_curve(",
        "total = (self.n_iterations - 1) * sums.sums_curve(",
        "synth/test_kmeans.py::TestThePrice::test_every_release_of_noise_is_paid_for",
    ),
    Mutant(
        "rounding may make a row longer than its price",
        "core/mechanisms/sums.py",
        "rounded[too_long] = np.trunc(places[too_long])",
        "rounded[too_long] = np.ceil(exact[too_long])",
        "core/mechanisms/test_sums.py::TestTheSensitivity::test_no_row_on_the_grid_is_longer_than_its_price",
    ),
    Mutant(
        "only removal of a row is priced",
        "core/laws/losses.py",
        "for added in (False, True)",
        "for added in (True, True)",
        "oracles/test_sampled.py::test_one_use_is_never_below_both_exact_directions_and_hardly_above",
    ),
    Mutant(
        "a clipped gradient of a bias is forgotten in the norm",
        "nets/private.py",
        "square = square + slope.sum(dim=1).square().sum(dim=1)",
        "pass",
        "nets/test_per_row.py::test_norms_and_sums_are_those_of_rows_one_at_a_time",
    ),
]
