"""Requests to a service: strict checks before any charge, refusals with codes and words, limits of rate.

Messages quote no cell. A rate limit delays a request; no budget depends on it.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NoReturn

from ostraka.core import check
from ostraka.secure import server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ostraka.core.ledger.chain import Entry
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.secure.server import Headers
    from ostraka.voters.saved import SavedTeachers

MOST_TEXT = 1_000  # characters of one cell
KEY = r"[A-Za-z0-9._:-]{1,100}"
_KEY = re.compile(KEY)
_NUMBERS = frozenset({int, float})
_SHAPE = 'the body must be an object with one member: "row", a list of cells, or "rows", a list of such lists'
_REMEMBERED = 20_000
# Codes of refusals, with the default message of each.
WORDS = {
    **server.WORDS,
    "bad_json": "the body is not strict JSON",
    "bad_schema": "the body does not fit the schema at /openapi.json",
    "bad_key": "the Idempotency-Key is missing or malformed",
    "bad_content": "the body is not plain application/json",
    "too_many": "too many requests without a valid key from this address: wait as long as Retry-After says",
    "keys_unreadable": "the service cannot read its file of keys, so no key is valid now: try again",
    "unauthorized": "type a valid key: Authorization: Bearer ostraka_…",
    "budget_exceeded": "the budget does not pay for this; nothing was answered",
    "forbidden": "this key's role may not do this",
    "no_certificate": "an owner's key needs a connection with a client certificate in the owner's name",
    "no_token": "owners show a token of their provider here: their keys do not count",
    "same_owner": "whoever proposed a grant may not approve it: another owner must",
    "proposal_ended": "another owner approved this proposal before: propose it again",
    "key_conflict": "this Idempotency-Key was used for another question: use a new one",
    "too_fast": "too many rows a second: wait as long as Retry-After says",
    "unavailable": "the ledger cannot be written now; nothing was answered: try again, with the same "
    "Idempotency-Key",
    "unfinished": "the answer is being written: ask again with the same Idempotency-Key, which costs nothing",
    "not_ready": "the service cannot charge now, and so cannot answer",
    "failed": "the service failed before anything was charged: try again, with the same Idempotency-Key",
}
# What an owner can do about refusals.
ADVICE = {
    "budget_exceeded": "raise the client's cap with 'ostraka keys', unless the data's own budget is spent",
    "unauthorized": "somebody has a wrong, revoked or no key; 'ostraka keys list' names those that count",
    "forbidden": "a client's key was used for an owner's page, or an owner's for questions",
    "no_certificate": "somebody has an owner's key and no certificate of --owner-ca in that owner's name",
    "no_token": "an owner showed a key instead of a token of --oidc",
    "same_owner": "one owner tried to propose and to approve a cap",
    "proposal_ended": "two owners approved one proposal",
    "too_fast": "the client asks above --rate and --burst",
    "too_many": "one address asks without a valid key; name your own proxy with --proxy",
    "key_conflict": "the client's program uses one Idempotency-Key for two questions",
    "busy": "more is asked than this machine answers; batches take less",
    "unavailable": "the ledger is locked, its disk is full, or the database is away",
    "keys_unreadable": "put a copy of keys.json back",
    "not_ready": "see the alert at the top",
    "failed": "a defect: the log names the place",
    "bad_schema": "the client's program sends other cells than /docs says",
}


class Refused(server.Refused):
    """A refused request of a service; its message is that of the code unless it is given."""

    def __init__(self, status: int, code: str, words: str = "", *, more: Headers = ()) -> None:
        super().__init__(status, code, words or WORDS[code], more=more)


def unavailable() -> Refused:
    """Return the refusal for a ledger that cannot be written: locked, full or out of reach."""
    return Refused(503, "unavailable", more=((b"retry-after", b"2"),))


def left_header(epsilon: float) -> tuple[bytes, bytes]:
    """The header that says what a client has left, rounded down."""
    return b"ostraka-left", b"%.6f" % (math.floor(epsilon * 1e6) / 1e6)


class Rows:
    """The rows that a service accepts: their width, and which cells are numbers."""

    def __init__(
        self,
        columns: Sequence[str],
        numeric: Sequence[bool],
        *,
        most: int,
        categories: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.columns, self.numeric, self.most = tuple(columns), tuple(numeric), most
        self._known = [(categories or {}).get(name) for name in self.columns]
        self._width = len(self.columns)
        self._all_numbers = all(numeric)

    def read(self, body: bytes) -> tuple[list[list[Any]], bool]:
        """Return the rows of a body, and whether it was a single row."""
        content = strict(body)
        if not isinstance(content, dict) or len(content) != 1 or not content.keys() <= {"row", "rows"}:
            raise Refused(400, "bad_schema", _SHAPE)
        single = "row" in content
        rows = [content["row"]] if single else content["rows"]
        if not isinstance(rows, list) or not 1 <= len(rows) <= self.most:
            raise Refused(400, "bad_schema", f"rows must be a list of 1 to {self.most} rows")
        for number, row in enumerate(rows):
            where = "row" if single else f"rows[{number}]"
            if not isinstance(row, list):
                raise Refused(400, "bad_schema", f"{where} must be a list of cells")
            if len(row) != self._width:
                raise Refused(400, "bad_schema", f"{where} must have {self._width} cells, got {len(row)}")
            if self._all_numbers and _NUMBERS.issuperset(map(type, row)):
                try:
                    if math.isfinite(sum(map(abs, row))):
                        continue  # the fast path; the loop below names the bad cell
                except OverflowError:  # an integer beyond every float
                    pass
            cells = zip(row, self.numeric, self._known, strict=True)
            for place, (cell, is_number, texts) in enumerate(cells):
                if is_number:
                    fits = type(cell) in _NUMBERS and abs(cell) <= sys.float_info.max
                    kind = "a finite number"
                else:
                    fits = isinstance(cell, str) and len(cell) <= MOST_TEXT
                    fits = fits and not any("\ud800" <= letter <= "\udfff" for letter in cell)
                    kind = f"text of at most {MOST_TEXT} characters"
                    if fits and texts is not None:
                        fits, kind = cell in texts, f"one of the {len(texts)} texts of the public rows"
                if not fits:
                    what = f"{where}[{place}] ({self.columns[place]}) must be {kind}"
                    raise Refused(400, "bad_schema", what)
        return rows, single


def known_texts(saved: SavedTeachers) -> dict[str, frozenset[str]]:
    """Return the texts of the public rows by column; any other text would be encoded as zeros."""
    by_column: dict[str, frozenset[str]] = {}
    for _, encoder, places in getattr(saved.encoder, "transformers_", ()):
        categories = getattr(encoder, "categories_", None)
        if categories is not None:
            texts = [frozenset(map(str, names)) for names in categories]
            by_column |= {saved.columns[place]: names for place, names in zip(places, texts, strict=True)}
    return by_column


class Buckets:
    """One token bucket per client, on a monotonic clock; those of the latest clients are remembered."""

    def __init__(self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        check.positive(rate=rate)
        check.integer(burst=burst, least=1)
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._level: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, rows: int) -> int:
        """Return 0 if this many rows may be asked about now, else the whole seconds to wait."""
        now = self._clock()
        level, then = self._level.pop(client, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._rate)
        wanted = min(float(rows), self._burst)  # a batch larger than the burst needs a full bucket
        if level < wanted:
            self._level[client] = level, now
            return math.ceil((wanted - level) / self._rate)
        self._level[client] = level - rows, now
        if len(self._level) > _REMEMBERED:
            self._level.popitem(last=False)
        return 0

    def pace(self, client: str, rows: int, *, code: str = "too_fast") -> None:
        """Take this many rows, or refuse with the seconds to wait."""
        if wait := self.take(client, rows):
            raise Refused(429, code, more=((b"retry-after", b"%d" % wait),))


def idempotency_key(headers: dict[bytes, bytes]) -> str:
    """Return the Idempotency-Key, by which a retry is recognised as the same request."""
    key = headers.get(b"idempotency-key", b"").decode("latin-1")
    if not _KEY.fullmatch(key):
        raise Refused(
            400,
            "bad_key",
            "type a new Idempotency-Key for each request, and the same for its retries: 1 to 100 letters, "
            "digits, '.', '_', ':' or '-'",
        )
    return key


def entry_at(ledger: Ledger, number: str) -> Entry | None:
    """The entry whose number stands in a path; None where it is no number, or of no entry."""
    if not (number.isascii() and number.isdigit() and len(number) <= 18 and int(number) >= 1):
        return None
    entries = ledger.entries(after=int(number) - 1, limit=1)
    return entries[0] if entries and entries[0].seq == int(number) else None


def require_json(headers: dict[bytes, bytes]) -> None:
    """Refuse other content types, and compressed bodies: a small one could expand to a large one."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Refused(415, "bad_content", "Content-Type must be application/json")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refused(415, "bad_content", "the body must not be compressed: leave Content-Encoding out")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Refused(400, "bad_json", "the body must not name a member twice")
    return members


def _no_constant(_: str) -> NoReturn:
    raise Refused(400, "bad_json", "the body must be strict JSON: NaN and Infinity are not numbers of it")


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def strict(body: bytes) -> Any:
    """The content of a body in strict JSON."""
    try:
        return _STRICT.decode(body.decode())
    except Refused:
        raise
    except RecursionError:
        raise Refused(400, "bad_json", "the body must not be nested more than two deep") from None
    except ValueError:  # whose message may quote a cell
        raise Refused(400, "bad_json", "the body must be JSON in UTF-8") from None
