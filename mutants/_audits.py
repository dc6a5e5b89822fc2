"""Planted defects of audits: bounds that claim too much, and checks that see nothing."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

SETS, ONE_RUN = "audit/cuts.py", "audit/one_run.py"
BY_ONE_RUN, BY_TAILS, BY_LABELS = (
    f"audit/test_{name}.py::" for name in ("one_run", "tails", "label_canaries")
)
BY_SCORES = "core/test_scores.py::"

JOINT, BY_JOINT = "audit/votes.py", "audit/test_joint.py::"

MUTANTS = [
    Mutant(
        "any file is a record of answers",
        "audit/answers.py",
        "header != [*_HEADER]",
        "False",
        "cli/test_audit_url.py::test_a_file_of_something_else_is_no_record_and_stays_as_it_is",
    ),
    Mutant(
        "more trials than are exact are counted",
        SETS,
        "if not 2 <= trials <= _MOST_TRIALS or",
        "if not 2 <= trials or",
        "audit/test_cuts.py::test_what_makes_no_sense_is_refused",
    ),
    Mutant(
        "a class that is not declared has votes",
        "audit/worlds.py",
        "np.isin(self._y, np.arange(n_classes))",
        "np.isin(self._y, np.arange(n_classes + 1))",
        "audit/test_neighbourhood.py::test_what_is_no_system_is_refused",
    ),
    Mutant(
        "answers of one training added up",
        "audit/adversaries.py",
        'independent = getattr(system, "fresh", False) or all(model.certain for model in models)',
        "independent = True",
        BY_JOINT + "test_one_question_asked_a_thousand_times_leaks_what_it_does_and_no_product",
    ),
    Mutant(
        "answers without a target by another law",
        JOINT,
        "laws[1] += model.absent[move] * table",
        "laws[1] += model.absent[move] * table**2",
        BY_JOINT + "test_the_joint_law_is_the_sum_over_every_vote_and_every_sequence",
    ),
    Mutant(
        "the target's own ballot is no ballot",
        JOINT,
        "p, q, n_ballots = model.present, model.absent, model.n + 1",
        "p, q, n_ballots = model.present, model.absent, model.n",
        BY_JOINT + "test_the_cap_is_the_divergence_of_the_votes_themselves",
    ),
    Mutant(
        "sums that are worth more than they are",
        JOINT,
        "values = order * np.exp((order - 1) * log_p) - (order - 1) * np.exp(order * log_q)",
        "values = order * np.exp((order - 1) * log_p) - (order - 1)",
        BY_JOINT + "test_draws_of_votes_certify_most_of_the_exact_law",
    ),
    Mutant(
        "answers of both worlds by one law",
        JOINT,
        "residual = world - overlap",
        "residual = p - overlap",
        BY_JOINT + "test_draws_of_votes_certify_most_of_the_exact_law",
    ),
    Mutant(
        "one chance in twenty beside an exact law",
        "audit/runs.py",
        "sure = 1 - MISFIT / 2 if fits else confidence",
        "sure = confidence",
        "audit/test_runs.py::test_beside_an_exact_law_chance_decides_as_seldom_as_is_printed",
    ),
    Mutant(
        "partitions of their own, judged",
        "audit/cli.py",
        'if not same_partition and finding.verdict != "inconclusive":',
        "if False:",
        "cli/test_audit_url.py::test_deployments_with_partitions_of_their_own_are_never_judged",
    ),
    Mutant(
        "a pilot that chooses by rates alone",
        SETS,
        "table = value(interval(p, sizes[0])[0], interval(q, sizes[1])[1])",
        "table = value(p / sizes[0], q / sizes[1])",
        "audit/test_cuts.py::test_a_pilot_chooses_by_the_interval_that_the_bound_uses",
    ),
    Mutant(
        "delta is free",
        ONE_RUN,
        "tails, cut_error = partial(near_tail, distance=distance), (error - paid) / len(cuts)",
        "tails, cut_error = partial(near_tail, distance=distance), error / len(cuts)",
        BY_LABELS + "test_delta_is_paid_by_a_share_of_the_error_that_is_fixed_in_advance",
    ),
    Mutant(
        "several cuts for the error of one",
        ONE_RUN,
        "error=(error - chance) / record.right.size",
        "error=error - chance",
        BY_LABELS + "test_several_cuts_share_the_error",
    ),
    Mutant(
        "half the delta of Theorem 5.2",
        ONE_RUN,
        "part = 2 * n_delta / i",
        "part = n_delta / i",
        BY_TAILS + "test_steinkes_tail_is_theorem_5_2_by_mpmath",
    ),
    Mutant(
        "delta spent twice at one place",
        ONE_RUN,
        "(tail + near - weighted / distance + n_delta / distance).min()",
        "(tail + n_delta / distance).min()",
        BY_TAILS + "test_the_planned_tail_is_the_worst_joint_law_of_a_linear_programme",
    ),
    Mutant(
        "the surest guesses as sure as all",
        ONE_RUN,
        "ndtr(mu / 2 - c) / share * _UP",
        "ndtr(mu / 2) + 0 * c",
        BY_TAILS + "test_the_tail_of_the_surest_guesses_is_an_integral_over_the_largest_that_is_left",
    ),
    Mutant(
        "any curve for a Gaussian one",
        ONE_RUN,
        "and np.allclose(rdp[finite], gaussian, rtol=1e-6, atol=0)",
        "and np.isfinite(rdp).any()",
        BY_ONE_RUN + "test_curves_that_are_not_gaussian_are_refused",
    ),
    Mutant(
        "lots that always fall well",
        "audit/one_run.py",
        "int(rng.hypergeometric(good, bad, tied))",
        "min(good, tied + 0 * bad)",
        BY_ONE_RUN + "test_randomised_response_is_found_from_below",
    ),
    Mutant(
        "delta of two worlds without e^epsilon",
        "audit/cuts.py",
        "np.where(q > 0, p - np.exp(group * epsilon) * q, p)",
        "np.where(q > 0, p - q, p)",
        "audit/test_epsilon.py::test_delta_is_below_the_hockey_stick_divergence_and_near_it",
    ),
    Mutant(
        "sampled runs that need not follow the law",
        "audit/runs.py",
        "elif not fits:",
        "elif False:",
        "audit/test_runs.py::test_runs_whose_noise_is_shared_do_not_follow_the_exact_law",
    ),
    Mutant(
        "the threshold taken for known",
        "core/scores.py",
        "rank = int(np.searchsorted(scipy.special.bdtr(np.arange(n), n, fpr), error))",
        "rank = 1 + int(fpr * n + 0 * error)",
        BY_SCORES + "test_the_interval_holds_the_rate_of_a_known_law",
    ),
]
