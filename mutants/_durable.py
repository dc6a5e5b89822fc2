"""Planted defects of ledgers and logs: what a crash, a rollback or a silent database must not hide."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

LOG = "secure/log.py"
BY_LOG = "secure/test_log.py::"
POSTGRES = "ledger/test_postgres.py::TestOwners::"

MUTANTS = [
    Mutant(
        "only what this process wrote must still be on record",
        "core/ledger/commit.py",
        "        if not self._store.alone and self._history.seq > self._durable[0]:",
        "        if self._history.seq > self._durable[0] and not self._store:",
        POSTGRES + "test_entries_of_others_that_were_rolled_back_stop_it",
    ),
    Mutant(
        "a warning of COMMIT is not shown",
        "core/ledger/postgres.py",
        'self._execute("SET client_min_messages = warning")',
        'self._execute("SET client_min_messages = error")',
        POSTGRES + "test_a_commit_that_no_standby_confirmed_is_not_answered",
    ),
    Mutant(
        "a paused transaction keeps its lock",
        "core/ledger/postgres.py",
        "SET idle_in_transaction_session_timeout = '{ANSWER_SECONDS}s'",
        "SET idle_in_transaction_session_timeout = '0s'",
        "ledger/test_postgres.py::TestOutOfReach::test_sessions_have_deadlines",
    ),
    Mutant(
        "a fit that an older version interrupted is not found",
        "learn/keys.py",
        "return before if before in names else key",
        "return key",
        "pate/test_keys.py::test_the_key_of_before_is_taken_if_the_ledger_has_it",
    ),
    Mutant(
        "version 1 names a class by the module in which it is now",
        "learn/keys.py",
        "if home is None or not",
        "if home or not",
        "pate/test_keys.py::test_a_class_that_moves_keeps_its_digests_of_both_versions",
    ),
    Mutant(
        "fits of other rows have the same key",
        "learn/keys.py",
        "content.hexdigest()]",
        "content.name]",
        "pate/test_keys.py::test_different_content_has_different_digests_and_the_same_has_the_same",
    ),
    Mutant(
        "a log forgets its end",
        LOG,
        "        if end is not None and (end[0] > self.count or end[1] != self._digest_of(end[0])):",
        "        if end is not None and end[0] < self.count and end[1] != self._digest_of(end[0]):",
        BY_LOG + "test_another_log_an_older_copy_and_a_lost_end_are_refused",
    ),
    Mutant(
        "a changed entry is taken for a good one",
        LOG,
        "            if (number, digest) != (after, head):",
        "            if number != after:",
        "collect/test_keepers.py::test_two_tallies_in_one_folder_and_a_changed_report_are_refused",
    ),
    Mutant(
        "the last answer to a key counts",
        LOG,
        "for key, body in first.items() if key not in self._keys])",
        "for key, body in first.items()])",
        BY_LOG + "test_it_comes_back_as_it_was_and_the_first_body_of_a_key_counts",
    ),
    Mutant(
        "a log goes on after a write that failed",
        LOG,
        '        if getattr(error, "sqlite_errorcode", -1) & 0xFF in _PASSING:',
        "        if error:",
        BY_LOG + "test_after_a_failed_write_nothing_is_kept_until_it_is_opened_again",
    ),
    Mutant(
        "two tallies write one log",
        "collect/tally.py",
        'earlier=f"{name}.*", alone=True)',
        'earlier=f"{name}.*")',
        "collect/test_keepers.py::test_two_tallies_in_one_folder_and_a_changed_report_are_refused",
    ),
    Mutant(
        "what a failed sync left in memory is not written again",
        LOG,
        "        sqlite.settle(self._db, self.path)",
        "        sqlite.checkpoint(self._db)",
        BY_LOG + "test_what_a_failed_sync_left_in_memory_only_is_written_again_on_opening",
    ),
    Mutant(
        "a promoted standby is charged as the server before it",
        "core/ledger/postgres.py",
        "        if lineage != self._lineage:",
        "        if lineage[0] != (self._lineage or lineage)[0]:",
        "ledger/test_failover.py::test_a_promoted_standby_answers_nothing_until_its_owner_adopts_it",
    ),
    Mutant(
        "what was lost is charged below what answers cost",
        "core/ledger/ledger.py",
        "                    if not covers(cost, paid.cost):",
        "                    if not covers(paid.cost, cost) and not covers(cost, paid.cost):",
        "ledger/test_failover.py::test_a_promoted_standby_answers_nothing_until_its_owner_adopts_it",
    ),
]
