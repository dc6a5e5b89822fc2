"""Defects of rows that speak for others: kernels, teachers and prices that one private row decides."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_CONTRACT = "contracts/test_row_contract.py::"

MUTANTS = [
    Mutant(
        "near ties are settled by the kernel of a product",
        "data/nearest.py",
        "candidates = ~(least > (reach + lengths[block])[:, None])",
        "candidates = ~(least > least.min(axis=1)[:, None])",
        "synth/test_rows_alone.py::test_one_row_more_adds_one_vote_and_moves_no_other",
    ),
    Mutant(
        "random features of a row round with the batch",
        "synth/clusters.py",
        "angles = ((steps @ directions) * (scale * unit)).astype(np.float32)",
        "angles = rows @ (directions * unit).astype(np.float32)",
        "synth/test_rows_alone.py::test_random_features_of_a_row_are_its_own",
    ),
    Mutant(
        "a teacher that is not finite changes how the others vote",
        "voters/kinds.py",
        "offsets[:, number] = 0.0  # a tie everywhere: it is asked alone",
        "return None",
        "voters/test_linear.py::test_one_row_moves_the_ballot_of_its_own_teacher_only",
    ),
    Mutant(
        "one person's rows choose the kind of all teachers",
        "learn/ways/argmax.py",
        "        n_units = data.n_units // self.plan.n_teachers\n",
        "        n_units = len(data.y) // self.plan.n_teachers\n",
        "learn/test_classifier.py::"
        "test_one_persons_number_of_rows_neither_chooses_the_teachers_nor_is_published",
    ),
    Mutant(
        "a ledger adds prices of two relations",
        "core/ledger/chain.py",
        "return protects + _RELATION",
        "return protects",
        "core/ledger/test_relations.py::test_prices_of_two_relations_do_not_add",
    ),
    Mutant(
        "gradients of a batch round with its shape",
        "nets/private.py",
        "    bits = 53 - _BITS",
        "    return rows @ matrix\n    bits = 53 - _BITS",
        "nets/test_per_row.py::test_a_row_has_one_gradient_whatever_rows_stand_beside_it",
    ),
    Mutant(
        "noise of a loss is known, and dealt out by place",
        "nets/private.py",
        "torch.manual_seed(int(self.rng.integers(2**63)))",
        "torch.manual_seed(0)",
        "synth/test_sgd.py::TestOneStep::test_noise_that_a_loss_draws_is_secret",
    ),
    Mutant(
        "a row beyond all measure counts for nothing",
        "voters/spectrum.py",
        "rows = np.clip(rows, -self._furthest, self._furthest)",
        "pass",
        "voters/test_features.py::TestLines::test_a_row_beyond_all_measure_counts_as_one_a_million_times_as_far_as_public_rows",
    ),
    Mutant(
        "a transformer rounds a row by the number of rows",
        "data/contribution.py",
        "np.minimum(np.arange(begin, begin + size), n_rows - 1)",
        "np.arange(begin, min(begin + size, n_rows))",
        _CONTRACT + "test_a_transformer_sees_each_row_as_if_it_were_alone",
    ),
    Mutant(
        "a transformer rounds a row by its place",
        "data/contribution.py",
        "if all(batch is not None and bool((batch == batch[0]).all()) for batch in batches):",
        "if all(batch is not None for batch in batches):",
        _CONTRACT + "test_a_transformer_sees_each_row_as_if_it_were_alone",
    ),
    Mutant(
        "a row that a transformer refuses ends the fit",
        "data/contribution.py",
        "        except Exception:  # noqa: BLE001\n            return None",
        "        except ZeroDivisionError:\n            return None",
        _CONTRACT + "test_a_row_that_a_transformer_refuses_is_missing_and_ends_nothing",
    ),
    Mutant(
        "a number beyond single precision ends a search",
        "data/table.py",
        "    if clip and np.isinf(table).any():",
        "    if clip is None:",
        _CONTRACT + "test_a_number_beyond_single_precision_ends_no_search",
    ),
    Mutant(
        "a charge of nothing decides how later charges add up",
        "core/ledger/ledger.py",
        "        if not uses:  # nothing is asked: it must not decide how later charges add up\n",
        "        if False:\n",
        "core/ledger/test_relations.py::test_a_charge_of_nothing_does_not_decide_how_later_charges_add_up",
    ),
]
