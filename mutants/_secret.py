"""Defects of secret questions: masks that hide less, corrections in the clear, an argmax priced too low."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_ROUNDS = "secure/rounds.py"
_PAD = "return words(stream(key), sizes.n_rows, sizes.n_features)"
_BY = "parties/test_secret_roles.py::"
_VIEW = _BY + "test_a_party_sees_what_its_simulator_draws_whatever_the_question"

_ARGMAX = "parties/test_secret_argmax.py::"
_PRICE = "core/mechanisms/test_skellam_argmax.py::"

MUTANTS = [
    Mutant(
        "the mask of a question is that of every other",
        _ROUNDS,
        _PAD,
        "return words(stream(bytes(32)), sizes.n_rows, sizes.n_features)",
        _VIEW,
    ),
    Mutant(
        "a party's key without order is found out after the others paid",
        _ROUNDS,
        '            if not is_exchange_key(reply["key"]):',
        '            if not isinstance(reply["key"], str):',
        "parties/test_party.py::test_keys_that_are_none_or_somebody_elses_are_refused",
    ),
    Mutant("rows of a question are not masked", _ROUNDS, _PAD, f"{_PAD} * 0", _VIEW),
    Mutant("rows are hidden by 32 bits of 64", _ROUNDS, _PAD, f"{_PAD} & 0xFFFFFFFF", _VIEW),
    Mutant(
        "one mask for all rows of a question",
        _ROUNDS,
        _PAD,
        "return words(stream(key), 1, sizes.n_features).repeat(sizes.n_rows, axis=0)",
        _VIEW,
    ),
    Mutant(
        "the salt of a question is known to all",
        _ROUNDS,
        "return new_secret() + masked.tobytes()",
        "return bytes(KEY_BYTES) + masked.tobytes()",
        _BY + "test_the_dealer_which_knows_the_mask_cannot_check_a_guess_of_the_question",
    ),
    Mutant(
        "corrections are sent in the clear",
        "secure/dealer.py",
        "encrypt(keys.seal(transcript, name), dealt.corrections)",
        "dealt.corrections",
        _BY + "test_corrections_are_sealed_to_the_asker",
    ),
    Mutant(
        "the holder adds no noise",
        "parties/party.py",
        "total + self._noise(total.shape) + masks",
        "total + masks",
        _ARGMAX + "test_the_noise_of_every_party_is_in_the_sum_that_is_compared",
    ),
    Mutant(
        "a holder who may collude is charged the argmax",
        "secure/agreement.py",
        "if self.argmax_only and not self.colluding:",
        "if self.argmax_only:",
        _ARGMAX + "test_the_argmax_is_charged_its_own_price_and_the_counts_theirs_where_somebody_may_collude",
    ),
    Mutant(
        "counts that were seen are charged as an argmax",
        "core/private.py",
        "            and self.argmax_only == promise.argmax_only\n",
        "",
        _PRICE + "test_votes_that_show_counts_are_not_charged_as_an_argmax_nor_the_other_way_round",
    ),
    Mutant(
        "an argmax with Skellam noise is 3 % cheaper",
        "core/mechanisms/skellam.py",
        "largest * (1 + _ROUNDING)",
        "largest * 0.97",
        _PRICE + "test_no_histogram_costs_more_than_the_price",
    ),
]
