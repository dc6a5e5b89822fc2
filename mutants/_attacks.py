"""Defects of membership attacks: designs that give memberships away, leaking thresholds, wrong signs."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_STATISTICS, _CHECKS = "audit/attacks/membership.py", "audit/attacks/membership.py"
_MODELS, _PROPERTY_CHECKS = "audit/attacks/membership.py", "audit/attacks/properties.py"
_BY, _BY_NULL = "audit/attacks/test_membership.py::", "audit/attacks/test_membership_null.py::"

MUTANTS = [
    Mutant(
        "each row is dealt to exactly half of the references",
        _CHECKS,
        "coins = rng.random((n_models, n_rows)) < 0.5",
        "coins = rng.random((n_models, n_rows)).argsort(axis=0) < n_models // 2",
        _BY_NULL + "test_rows_are_in_as_many_references_as_independent_coins_say",
    ),
    Mutant(
        "a balanced design passes for coins",
        _CHECKS,
        "designs = np.vstack([included, included.sum(axis=0)]).astype(np.float64)",
        "designs = included.astype(np.float64)",
        _BY_NULL + "test_a_balanced_design_of_many_models_is_refused_for_few_rows",
    ),
    Mutant(
        "the Monte Carlo count is within the farthest nearest sample",
        "audit/attacks/generators.py",
        "radius = np.median(distances)",
        "radius = np.max(distances)",
        "audit/attacks/test_generators.py::test_the_count_of_near_samples_is_that_of_a_tree",
    ),
    Mutant(
        "a search for noise keeps what is farther",
        "audit/attacks/generators.py",
        "nearer = gap < best",
        "nearer = gap > best",
        "audit/attacks/test_generators.py::test_a_search_for_noise_comes_to_the_nearest_row_that_there_is",
    ),
    Mutant(
        "the noise of a BEGAN is normal",
        "nets/adversarial.py",
        "torch.erf(noise / 2**0.5)",
        "noise",
        "audit/attacks/test_generators.py::test_the_noise_of_a_began_is_uniform",
    ),
    Mutant(
        "the target is among its references",
        _MODELS,
        "if np.ptp(target):",
        "if not np.ptp(target):",
        _BY + "test_a_target_among_its_references_is_refused",
    ),
    Mutant(
        "members are among the rows that a threshold is calibrated on",
        "core/scores.py",
        "for counts in (self.others, self.members)",
        "for counts in (self.others + self.members, self.members)",
        "core/test_scores.py::test_the_roc_is_scikit_learns",
    ),
    Mutant(
        "thresholds are chosen on the half that tests them",
        "audit/cuts.py",
        "return (pilot[0], pilot[1]), (counts[0] - pilot[0], counts[1] - pilot[1])",
        "return (pilot[0], pilot[1]), (counts[0], counts[1])",
        "audit/test_cuts.py::test_holding_out_takes_a_tenth_at_random",
    ),
    Mutant(
        "labels differ between batches with the property and without",
        _PROPERTY_CHECKS,
        "gap = np.abs(inside.mean(axis=0) - outside.mean(axis=0))",
        "gap = np.abs(inside.mean() - outside.mean())",
        "audit/attacks/test_properties.py::test_labels_that_tell_the_property_are_refused",
    ),
    Mutant(
        "copies of a row are on both sides",
        _CHECKS,
        "torn = ((inside > 0) & (inside < np.bincount(copies)))[copies]",
        "torn = ((inside > 0) & (inside > np.bincount(copies)))[copies]",
        _BY + "test_copies_in_the_target_and_out_of_it_are_refused_with_their_number",
    ),
    Mutant(
        "references with the row and without it change places",
        _MODELS,
        "sides = (Side.of(values, self.included), Side.of(values, ~self.included))",
        "sides = (Side.of(values, ~self.included), Side.of(values, self.included))",
        _BY + "test_lira_is_the_log_ratio_of_two_normal_densities",
    ),
    Mutant(
        "the sign of LiRA",
        _STATISTICS,
        "np.where(sides[0].n > 0, logs[0] - logs[1], offline)",
        "np.where(sides[0].n > 0, logs[1] - logs[0], offline)",
        _BY + "test_lira_with_a_fixed_variance_pools_the_deviations_from_each_rows_mean",
    ),
    Mutant(
        "the sign of offline LiRA",
        _STATISTICS,
        "scipy.special.log_ndtr(deviations[1]) - scipy.special.log_ndtr(-deviations[1])",
        "scipy.special.log_ndtr(-deviations[1]) - scipy.special.log_ndtr(deviations[1])",
        _BY + "test_lira_is_offline_where_no_model_has_the_row",
    ),
    Mutant(
        "the sign of RMIA",
        _STATISTICS,
        "clip(target) / ((with_row + outside.mean) / 2)",
        "((with_row + outside.mean) / 2) / clip(target)",
        _BY + "test_rmia_counts_the_rows_with_a_smaller_ratio",
    ),
    Mutant(
        "the sign of Student-t",
        _STATISTICS,
        "**prior))\n    return np.asarray(logs[0] - logs[1])\n",
        "**prior))\n    return np.asarray(logs[1] - logs[0])\n",
        _BY_NULL + "test_a_planted_leak_is_found_and_members_are_on_top",
    ),
    Mutant(
        "the sign of the hierarchical statistic",
        _STATISTICS,
        "sum()))\n    return np.asarray(logs[0] - logs[1])\n",
        "sum()))\n    return np.asarray(logs[1] - logs[0])\n",
        _BY + "test_with_many_references_the_hierarchical_statistic_is_that_of_lira",
    ),
    Mutant(
        "of two references the variances that the target's logits say least for are taken",
        _STATISTICS,
        "logs = max(fits",
        "logs = min(fits",
        _BY + "test_two_references_split_their_variance_as_the_targets_logits_say",
    ),
    Mutant(
        "the weight of RMIA's ratio does not fall with more references",
        _STATISTICS,
        "RATIO_MODELS / (RATIO_MODELS + len(included))",
        "RATIO_MODELS / RATIO_MODELS",
        _BY + "test_with_many_references_the_hierarchical_statistic_is_that_of_lira",
    ),
]
