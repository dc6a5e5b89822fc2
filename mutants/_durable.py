"""Planted defects of ledgers and logs: what a crash, a rollback or a silent database must not hide."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

LOG = "secure/log.py"
BY_LOG = "secure/test_log.py::"
BY_WITNESSES = "ledger/test_witnesses.py::"
BY_TOKENS = "service/test_oidc.py::"
BY_OWNERS = "service/test_owners.py::"
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
        "entries that were skipped on opening are shown unchecked",
        "core/ledger/readings.py",
        "            if after < self._resumed_at:\n",
        "            if after < 0:\n",
        "ledger/test_anchor.py::TestAQuickStart::"
        "test_without_an_anchor_is_for_reading_alone_and_checks_what_it_reads",
    ),
    Mutant(
        "one decision covers more charges of a row than it allowed",
        "core/ledger/ledger.py",
        "history.take(history.dataset, priced, uses=int(uses), under=reserve)",
        "history.take(history.dataset, priced, uses=int(uses), under=reserve); history.dataset._ahead += 1",
        "ledger/test_balance.py::test_charges_in_a_row_are_as_many_as_were_left",
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
        "an index of a ledger is not compared with its table",
        "core/ledger/sqlite.py",
        "            if rows != sum(sum(map(hash, block)) for block in in_table):",
        "            if not rows and any(in_table):",
        "ledger/test_sqlite.py::test_an_index_that_lacks_a_row_is_noticed",
    ),
    Mutant(
        "a promoted standby is charged as the server before it",
        "core/ledger/postgres.py",
        "        if lineage == self._lineage:",
        "        if lineage[0] == (self._lineage or lineage)[0]:",
        "ledger/test_failover.py::test_a_promoted_standby_answers_nothing_until_its_owner_adopts_it",
    ),
    Mutant(
        "what was lost is charged below what answers cost",
        "core/ledger/ledger.py",
        "            if not covers(cost, paid.cost):",
        "            if not covers(paid.cost, cost) and not covers(cost, paid.cost):",
        "ledger/test_failover.py::test_a_promoted_standby_answers_nothing_until_its_owner_adopts_it",
    ),
    Mutant(
        "what was written is confirmed, and not what is released",
        "core/ledger/commit.py",
        "if self._quorum is not None and history.seq > self._confirmed else None",
        "if self._quorum is not None and history.seq != before else None",
        BY_WITNESSES + "test_one_of_three_may_be_missing_and_not_two",
    ),
    Mutant(
        "less than half of the witnesses are enough",
        "core/ledger/witness.py",
        "n // 2 + 1 if least is None",
        "n // 2 if least is None",
        BY_WITNESSES + "test_one_of_three_may_be_missing_and_not_two",
    ),
    Mutant(
        "a witness tells what it keeps from now on, and not what it knew",
        "secure/witness.py",
        "dict.fromkeys((before, after))",
        "dict.fromkeys((after,))",
        BY_WITNESSES + "test_two_copies_that_both_go_on_are_not_both_answered",
    ),
    Mutant(
        "a new timeline is adopted without witnesses",
        "core/ledger/postgres.py",
        "        if self.vouched is not None and self.vouched():",
        "        if self.vouched is None or self.vouched():",
        "ledger/test_failover.py::test_a_promoted_standby_answers_nothing_until_its_owner_adopts_it",
    ),
    Mutant(
        "a witness's answer to an earlier question counts",
        "secure/witness.py",
        "        nonce = secrets.token_hex(16)",
        '        nonce = ""',
        BY_WITNESSES + "test_an_answer_of_before_is_not_believed",
    ),
    Mutant(
        "a name of a ledger is not covered by its digests",
        "core/ledger/history.py",
        "self._seal.name, *named])",
        "self._seal.name, *named[:0]])",
        BY_WITNESSES + "test_each_ledger_has_a_name_of_its_own_which_its_digests_cover",
    ),
    Mutant(
        "a server beyond this machine may be reached in the open",
        "core/ledger/postgres.py",
        '    if mode != "verify-full" or',
        '    if mode == "disable" or',
        BY_WITNESSES
        + "test_a_server_beyond_this_machine_is_reached_with_its_certificate_verified_or_not_at_all",
    ),
    Mutant(
        "an owner approves the own proposal",
        "serve/grants.py",
        '        if proposer.partition("[")[0] == who.name:',
        "        if not proposer:",
        BY_OWNERS + "test_two_owners_grant_and_one_does_not",
    ),
    Mutant(
        "a token that was made for another service counts",
        "serve/oidc.py",
        'options={"require": list(_CLAIMS)},',
        'options={"require": list(_CLAIMS), "verify_aud": False},',
        BY_TOKENS + "test_whatever_is_wrong_with_a_token_it_names_nobody",
    ),
    Mutant(
        "an owner's key counts where owners show tokens",
        "serve/app.py",
        "and not request.who.subject:",
        "and not request.who.name:",
        BY_TOKENS + "test_an_owner_comes_with_a_token_and_not_with_a_key[/v1/budget]",
    ),
    Mutant(
        "all secrets of a module's key are one secret",
        "serve/hardware.py",
        "held.sign(_PURPOSE + purpose.encode(),",
        "held.sign(_PURPOSE,",
        "service/test_hardware.py::test_the_module_makes_what_anybody_with_its_key_would",
    ),
    Mutant(
        "an object store's head is written over another's",
        "secure/objects.py",
        '            "if-none-match": "*",\n',
        "",
        "secure/test_objects.py::test_of_two_programs_the_second_hears_what_the_first_wrote",
    ),
    Mutant(
        "nobody sees that a thread waits for a connection which others use",
        "core/ledger/store.py",
        "        self._arrived[waiting] = time.monotonic()\n",
        '        self._arrived[waiting] = float("inf")\n',
        "ledger/test_store.py::test_a_thread_that_waits_for_others_is_seen_though_each_of_them_is_refused_in_time",
    ),
    Mutant(
        "five bytes of a stranger begin a handshake",
        "secure/server.py",
        "        return not waits\n",
        "        return True\n",
        "secure/test_server.py::test_a_greeting_in_pieces_costs_no_handshake_until_it_is_whole",
    ),
    Mutant(
        "an approval counts as often as it is sent",
        "serve/grants.py",
        "            digest=os.urandom(32).hex(),",
        '            digest="00" * 32,',
        BY_OWNERS + "test_an_approval_counts_once_whoever_repeats_it_and_wherever",
    ),
    Mutant(
        "a note of somebody else is a proposal",
        "serve/grants.py",
        "_PROPOSAL.fullmatch(entry.key",
        "_PROPOSAL.match(entry.key",
        BY_OWNERS + "test_proposals_are_for_clients_and_notes_of_others_are_none",
    ),
    Mutant(
        "any certificate of the authority makes an owner",
        "serve/app.py",
        "self._owner_certificates and request.certificate != request.who.name",
        "self._owner_certificates and not request.certificate",
        BY_OWNERS + "test_an_owner_needs_a_key_and_a_certificate_in_the_same_name",
    ),
    Mutant(
        "a certificate in two names is one in either",
        "secure/server.py",
        'return str(names[0]) if len(names) == 1 else ""',
        'return str(names[-1]) if names else ""',
        BY_OWNERS + "test_an_owner_needs_a_key_and_a_certificate_in_the_same_name",
    ),
    Mutant(
        "a plan on the page of one person can be spent by two tabs",
        "serve/ui.py",
        '        release.ticket = ""  #',
        "        #",
        "service/test_ui.py::test_two_tabs_that_spend_at_once_spend_once",
    ),
    Mutant(
        "the page of one person takes messages from other pages",
        "serve/ui.py",
        'and origin != b"http://" + host:',
        'and origin == b"":',
        "service/test_ui.py::test_a_message_from_another_page_is_refused",
    ),
    Mutant(
        "the page of one person answers to any name of this machine",
        "serve/ui.py",
        "        if host not in self._hosts:",
        "        if not host:",
        "service/test_ui.py::test_another_name_of_this_machine_is_refused",
    ),
    Mutant(
        "the link to the page of one person works twice",
        "serve/ui.py",
        'self._key, self._session = "", secrets.token_urlsafe(32)',
        "self._session = secrets.token_urlsafe(32)",
        "service/test_ui.py::test_the_link_works_once_and_gives_a_cookie_that_scripts_do_not_see",
    ),
    Mutant(
        "the first price of an object is that of its later uses",
        "core/ledger/commit.py",
        '        if not getattr(parameters, "frozen", False):',
        "        if parameters is not None and not parameters.frozen:",
        "ledger/test_ledger.py::TestCharge::test_a_mechanism_that_changes_pays_its_price_of_the_moment",
    ),
]
