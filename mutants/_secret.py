"""Defects of secret questions: rows behind a mask that hides less, and corrections that anybody reads."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_HIDDEN = "secure/hidden.py"
_PAD = "return words(Stream(key), sizes.n_rows, sizes.n_features)"
_BY = "voters/test_secret_roles.py::"
_VIEW = _BY + "test_a_party_sees_what_its_simulator_draws_whatever_the_question"

MUTANTS = [
    Mutant(
        "the mask of a question is that of every other",
        _HIDDEN,
        _PAD,
        "return words(Stream(bytes(32)), sizes.n_rows, sizes.n_features)",
        _VIEW,
    ),
    Mutant("rows of a question are not masked", _HIDDEN, _PAD, f"{_PAD} * 0", _VIEW),
    Mutant("rows are hidden by 32 bits of 64", _HIDDEN, _PAD, f"{_PAD} & 0xFFFFFFFF", _VIEW),
    Mutant(
        "one mask for all rows of a question",
        _HIDDEN,
        _PAD,
        "return words(Stream(key), 1, sizes.n_features).repeat(sizes.n_rows, axis=0)",
        _VIEW,
    ),
    Mutant(
        "the salt of a question is known to all",
        _HIDDEN,
        "return new_secret() + masked.tobytes()",
        "return bytes(KEY_BYTES) + masked.tobytes()",
        _BY + "test_the_dealer_which_knows_the_mask_cannot_check_a_guess_of_the_question",
    ),
    Mutant(
        "corrections are sent in the clear",
        _HIDDEN,
        "return AESGCM(key).encrypt(bytes(12), corrections, None)",
        "return corrections",
        _BY + "test_corrections_are_sealed_to_the_asker",
    ),
]
