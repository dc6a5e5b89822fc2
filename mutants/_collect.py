"""Planted defects of private statistics: most are mistakes of published protocols for secure sums."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

KEYS, MASKS, SHARES = "secure/keys.py", "secure/masks.py", "secure/masks.py"
MASKING, GATHERING, GRAPH = "collect/client.py", "collect/tally.py", "collect/messages.py"
REPORTS, LOG, TASK = "collect/messages.py", "secure/log.py", "collect/task.py"
ENCODINGS, SKETCHES = "collect/encodings.py", "collect/encodings.py"
SKELLAM = "core/mechanisms/skellam.py"
BY_CLIENTS, BY_KEEPERS, BY_GRAPH = (f"collect/test_{name}.py::" for name in ("clients", "keepers", "graph"))
BY_QUESTION, BY_SERIES = "collect/test_question.py::", "collect/test_series.py::"
VALIDITY, BY_VALIDITY = "collect/validity.py", "collect/test_validity.py::"

MUTANTS = [
    Mutant(
        "keys of 32 bits",
        KEYS,
        "    return os.urandom(KEY_BYTES)",
        "    return os.urandom(4).ljust(KEY_BYTES, b'\\0')",
        "secure/test_keys.py::test_secrets_are_random_in_all_their_bytes",
    ),
    Mutant(
        "short keys make masks",
        MASKS,
        "    if len(key) != KEY_BYTES:",
        "    if not key:",
        "secure/test_keys.py::test_a_short_key_masks_nothing",
    ),
    Mutant(
        "masks of long arrays are of other keys after each block",
        MASKS,
        "change(part, np.frombuffer(take(4 * len(part)), dtype",
        "change(part, np.frombuffer(stream(take(32))(4 * len(part)), dtype",
        "secure/test_keys.py::test_masks_of_long_arrays_are_added_whole",
    ),
    Mutant(
        "one threshold less than was asked for",
        SHARES,
        "for _ in range(threshold - 1)]",
        "for _ in range(threshold - 2)]",
        "secure/test_shares.py::test_one_share_fewer_gives_something_else",
    ),
    Mutant(
        "a vector without a seed of its own: whoever is called missing is read",
        MASKING,
        "            added, subtracted, exchange = [self._seed], list",
        "            added, subtracted, exchange = list[bytes](), list",
        BY_CLIENTS + "test_a_client_that_is_called_missing_after_it_sent_stays_unreadable",
    ),
    Mutant(
        "a client answers a second set of survivors",
        MASKING,
        "        if self._stage != stage:",
        '        if self._stage != stage and stage != "unmask":',
        BY_CLIENTS + "test_a_client_answers_for_one_set_of_survivors_and_never_tells_both_shares",
    ),
    Mutant(
        "any confirmation counts for any set of survivors",
        GRAPH,
        '    return is_signed(key.hex(), "survivors", signature + body)',
        "    return bool(signature)",
        BY_CLIENTS + "test_a_lying_tally_gets_no_second_set_confirmed",
    ),
    Mutant(
        "survivors are not counted",
        MASKING,
        "(len(survivors) if self.task.lying else n) < self.task.least or n > self._n",
        "n > self._n",
        BY_CLIENTS + "test_fewer_survivors_than_agreed_are_refused_before_a_share_is_told",
    ),
    Mutant(
        "a neighbour's shares count twice",
        MASKING,
        "if peer not in self._peers or peer in self._senders:",
        "if peer not in self._peers:",
        BY_CLIENTS + "test_shares_are_those_of_neighbours_and_once_of_each",
    ),
    Mutant(
        "one client named twice counts for two survivors",
        MASKING,
        "if survivors != sorted(set(survivors)) or (survivors and survivors[-1] >= self._n):",
        "if survivors and survivors[-1] >= self._n:",
        BY_CLIENTS + "test_survivors_are_different_clients_in_order",
    ),
    Mutant(
        "a survivor's missing shares are no matter",
        MASKING,
        "        if withheld:",
        "        if withheld > self._n:",
        BY_CLIENTS + "test_a_tally_that_withholds_shares_opens_no_sum_of_a_part_of_the_survivors",
    ),
    Mutant(
        "one more wrong share than can be corrected passes",
        SHARES,
        "    while 2 * (len(remainder) - 1) >= len(shares) + threshold:",
        "    while 2 * (len(remainder) - 1) >= len(shares) + threshold + 2:",
        "secure/test_shares.py::test_wrong_shares_are_corrected_up_to_half_of_those_to_spare",
    ),
    Mutant(
        "a lying tally may cut the ring in two places",
        GRAPH,
        "        return float(pairs * crowded**2)",
        "        return float(crowded**2)",
        BY_GRAPH + "test_known_sizes",
    ),
    Mutant(
        "a late vector is added",
        GATHERING,
        "        if kind != self.stage:",
        '        if kind != self.stage and kind != "mask":',
        BY_CLIENTS + "test_a_client_that_is_called_missing_after_it_sent_stays_unreadable",
    ),
    Mutant(
        "shares of noise sized for all clients",
        TASK,
        "(self.least - self.n_colluding(n_clients))",
        "n_clients",
        BY_CLIENTS + "test_shares_of_noise_suffice_for_the_fewest_honest_survivors",
    ),
    Mutant(
        "a keeper's noise sized for all keepers",
        TASK,
        "return self.sigma**2 / self.honest",
        "return self.sigma**2 / len(self.keepers)",
        "collect/test_task.py::test_shares_of_noise_are_sized_for_the_fewest_who_may_be_honest",
    ),
    Mutant(
        "a keeper answers a second set of survivors",
        LOG,
        '        if self.once(f"request {key}", request) != request:',
        '        if not self.once(f"request {key}", request):',
        BY_KEEPERS + "test_no_keeper_answers_for_a_second_set_of_survivors_not_after_a_restart_either",
    ),
    Mutant(
        "a client is summed twice",
        REPORTS,
        "any(client >= later for client, later in itertools.pairwise(clients))",
        "any(client > later for client, later in itertools.pairwise(clients))",
        BY_KEEPERS + "test_keepers_refuse_clients_that_are_repeated_or_malformed",
    ),
    Mutant(
        "colluding neighbours are not counted",
        GRAPH,
        "    bound = int(np.argmax(at_least <= _SECRECY))",
        "    bound = int(np.argmax(at_least <= 0.5))",
        BY_GRAPH + "test_k_is_the_smallest_even_number_that_keeps_the_promises",
    ),
    Mutant(
        "the sensitivity of a sketch is its depth",
        SKETCHES,
        "        return 2 * self.at_most * math.sqrt(self.depth)",
        "        return math.sqrt(self.depth)",
        "collect/test_encodings.py::test_two_encodings_lie_within_the_stated_norms_and_some_reach_them",
    ),
    Mutant(
        "a tree is priced as one level",
        ENCODINGS,
        "        return 2.0 * len(self.sizes)",
        "        return 2.0",
        "collect/test_encodings.py::test_two_encodings_lie_within_the_stated_norms_and_some_reach_them",
    ),
    Mutant(
        "steps of two are cheaper than they are",
        SKELLAM,
        "        worst = np.maximum(worst, min(l1 / step, area / step**2) * single[i])",
        "        worst = np.maximum(worst, min(l1 / step, area / step**2) * single[0])",
        "core/mechanisms/test_skellam.py::test_the_price_of_sums_covers_every_move_within_both_norms_and_is_tight",
    ),
    Mutant(
        "the dominating Gaussian is taken from the tails of the noise",
        "core/mechanisms/skellam.py",
        "    return float((z[shift:] - z[:-shift]).max()) * (1 + 1e-9) + _SKELLAM_LAW_ROUNDING",
        "    return float((z[shift:] - z[:-shift])[0]) * (1 + 1e-9) + _SKELLAM_LAW_ROUNDING",
        "core/mechanisms/test_skellam_gaussian.py::test_the_shift_is_the_largest_step_of_the_exact_quantiles",
    ),
    Mutant(
        "an enrolment approves whoever joined",
        "collect/keeper.py",
        "if read_entry(record).claim in claims)",
        "if read_entry(record).claim)",
        "collect/test_enrolment.py::test_strangers_are_left_out_and_the_others_sum_exactly",
    ),
    Mutant(
        "an enrolment signs the mask key of a client only",
        "collect/messages.py",
        "        return hashlib.sha256(self.write()).digest()",
        "        return hashlib.sha256(self.mask).digest()",
        "collect/test_enrolment.py::test_claims_are_remembered_and_cover_all_keys_of_a_client",
    ),
    Mutant(
        "strangers take places on the roster",
        GATHERING,
        "        if not certified(self.task, entry.claim, signature, round_=self.round_):",
        "        if len(signature) > SIGNATURE_BYTES:",
        "collect/test_enrolment.py::test_strangers_take_no_place_on_the_roster",
    ),
    Mutant(
        "strangers count as clients that the roster waits for",
        "collect/keeper.py",
        'while enrolment.n_enrolled(entries := remote.ask("entries", b"", limit, again=True)) < n_clients:',
        'while len(entries := remote.ask("entries", b"", limit, again=True)) < ENTRY_BYTES * n_clients:',
        "collect/test_enrolment.py::test_a_roster_waits_for_those_who_are_enrolled_and_not_for_strangers",
    ),
    Mutant(
        "a keeper chooses before it looks at the key of the request",
        REPORTS,
        "        if not is_exchange_key(key):",
        "        if not isinstance(key, str) or len(key) != 64:",
        BY_KEEPERS + "test_a_request_under_a_key_that_has_no_answer_uses_up_no_round",
    ),
    Mutant(
        "a report may come between the list of clients and the closing of the round",
        "collect/tally.py",
        "        with self._lock:  # no report may come between the list of clients and the closing of the "
        "round\n            if state.closing is None:\n"
        "                keys = sorted(state.reports) if valid is None else valid\n",
        "        keys = sorted(state.reports) if valid is None else valid\n"
        "        with self._lock:\n"
        "            if state.closing is None:\n",
        BY_KEEPERS + "test_a_report_that_arrives_while_its_round_is_closed_is_summed",
    ),
    Mutant(
        "complete messages that wait are not counted as memory",
        "secure/server.py",
        '        request.body, request.keep = b"".join(self._parts), self._parser.should_keep_alive()',
        "        self._server.held -= self._size\n"
        '        request.body, request.keep = b"".join(self._parts), self._parser.should_keep_alive()',
        "secure/test_server.py::test_bodies_that_wait_for_their_answer_are_held_too",
    ),
    Mutant(
        "strangers drop the longest message, whosever it is",
        "secure/server.py",
        "(of[_grouped(one.peer)], one.held)",
        "one.held",
        "secure/test_server.py::test_long_bodies_of_one_address_do_not_drop_that_of_another",
    ),
    Mutant(
        "a copy of an opening takes the key of a round that is open",
        "secure/dealer.py",
        "            secret = self._offered.setdefault(opening, new_secret())",
        "            secret = self._offered[opening] = new_secret()",
        "parties/test_secret_parties.py::test_copies_of_openings_change_no_round_that_is_open",
    ),
    Mutant(
        "a question may state less than all rounds cost",
        TASK,
        '("series", self.rounds * curve)',
        '("series", curve)',
        BY_QUESTION + "test_a_question_cannot_understate_the_price_of_a_round_or_of_all_rounds",
    ),
    Mutant(
        "the words of a question are no part of the fingerprint",
        TASK,
        '"question": self.question.written(),',
        '"question": {**self.question.written(), "purpose": self.question.text},',
        BY_QUESTION + "test_every_word_is_in_the_fingerprint_and_comes_back",
    ),
    Mutant(
        "the page shows a result that the tally did not sign",
        "collect/page/collect.js",
        'if (!await signedBy(fromHex(task.tally), "notice", sealed.slice(0, 64), body))',
        "if (!body.length)",
        BY_QUESTION + "test_the_page_asks_in_words_says_what_is_clipped_and_shows_the_signed_result",
    ),
    Mutant(
        "a trial round uses the keys of the task",
        "collect/plan.py",
        "        tally=me.public_key,\n        keepers=tuple",
        "        tally=task.tally,\n        keepers=tuple",
        BY_QUESTION + "test_three_commands_lead_from_a_question_to_a_page_with_a_median",
    ),
    Mutant(
        "a round of a series is charged without a name, and again when it is released",
        "collect/tally.py",
        "simulation=False, key=self.key(round_)",
        "simulation=False, key=None",
        BY_SERIES + "test_each_round_is_charged_before_it_opens_and_released_once",
    ),
    Mutant(
        "a client does not count what rounds cost it",
        "collect/client.py",
        "    if ledger is not None:\n        key =",
        "    if ledger is not None and not value:\n        key =",
        BY_SERIES + "test_one_ledger_of_a_client_counts_all_series_that_it_joined",
    ),
    Mutant(
        "a client believes a notice that the tally did not sign",
        "collect/client.py",
        'unseal(task.tally, "notice", sealed)',
        "sealed[64:]",
        BY_SERIES + "test_clients_answer_each_round_once_and_stop_when_their_own_ledger_is_spent",
    ),
    Mutant(
        "of a checked answer only the sum of marks is looked at",
        VALIDITY,
        "squares = (of_square * (openings",
        "squares = (0 * of_square * (openings",
        BY_VALIDITY + "test_what_is_no_answer_is_refused_and_every_answer_is_taken",
    ),
    Mutant(
        "the secret multiple of the check is left out",
        VALIDITY,
        "residues(stream, 2 * n).reshape(2, TIMES, len(form.sizes))",
        "residues(stream, 2 * n).reshape(2, TIMES, len(form.sizes)) * np.uint64([[[0]], [[1]]])",
        BY_VALIDITY + "test_what_is_opened_and_what_a_cheat_causes_are_uniform_whatever_the_answer",
    ),
    Mutant(
        "an entry of a checked vector need not be its bits",
        VALIDITY,
        "of_entries = parents[:, :n]",
        "of_entries = 0 * parents[:, :n]",
        BY_VALIDITY + "test_what_is_no_answer_is_refused_and_every_answer_is_taken",
    ),
    Mutant(
        "a keeper opens a report twice",
        "collect/keeper.py",
        'f"verdict {round_}", body, lambda',
        'f"verdict {round_} {body.hex()}", body, lambda',
        BY_VALIDITY + "test_a_keeper_checks_one_set_once_and_sums_nothing_unchecked",
    ),
    Mutant(
        "a vector that is too long is not rounded again",
        ENCODINGS,
        "            if length <= self.bound**2:",
        "            if int((whole * whole).sum()) <= 4 * self.bound**2:",
        "collect/test_encodings.py::test_no_vector_is_longer_than_the_bound_and_rounding_is_what_lengthens",
    ),
    Mutant(
        "a long move costs as many short ones",
        SKELLAM,
        "        return up(l2**2 * shift_mu",
        "        return up(l2 * shift_mu",
        "collect/test_encodings.py::test_the_price_of_a_vector_is_within_a_hundredth_of_a_gaussian",
    ),
    Mutant(
        "a page sends above the person's own limit",
        "collect/page/collect.js",
        "    if (!(epsilon <= book.budget)) throw",
        "    if (!(epsilon <= 2 * book.budget)) throw",
        "collect/test_page_own.py::test_the_own_ledger_adds_up_all_tasks_takes_the_price_of_a_series_and_stops_at_the_limit",
    ),
    Mutant(
        "recommendations in the page take the noise for taste",
        "collect/page/similar.js",
        "full[at] - expected[at]) ** 2 - noise[at])",
        "full[at] - expected[at]) ** 2)",
        "collect/test_page_own.py::test_the_page_recommends_what_python_recommends",
    ),
    Mutant(
        "an exact sum of aggregators is released as it is",
        "collect/dap.py",
        "    return Private(total, task.mechanism.promise)",
        "    return Private(total - 1, task.mechanism.promise)",
        "collect/test_dap.py::test_an_aggregate_is_handed_to_the_door_as_it_is",
    ),
]
