"""Fuzzing by schema: requests made from the service's own description, right and wrong, under any key.

No reply may be a server error, and each must be as the description says. Whatever is charged in the end must
have been answered with 200: a refused request costs nothing. The control counts the charges: had no request
been right, nothing would have been shown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rigs import power, serving
from rigs.disk import UnavailableError
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find"]

PATIENCE = 120.0  # seconds


@dataclass(slots=True)
class Seen:
    """Counts of the replies."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    answered: set[int] = field(default_factory=set)  # entries whose answers left

    def take(self, case: Any, response: Any, checks: tuple[Any, ...]) -> None:
        self.requests += 1
        self.statuses[response.status_code] += 1
        where = f"{case.operation.method.upper()} {case.operation.path}"
        if response.status_code >= 500:
            self.wrong[f"{response.status_code} from {where}"] += 1
        if response.status_code == 200 and case.operation.path == "/v1/label":
            reply = response.json()
            self.answered.update(result["receipt"]["seq"] for result in reply.get("results", [reply]))
        try:
            case.validate_response(response, checks=checks)
        except AssertionError as error:
            self.wrong[f"{where}: {type(error).__name__}"] += 1
            traceback.print_exc()
        except BaseExceptionGroup as errors:
            for error in errors.exceptions:
                self.wrong[f"{where}: {type(error).__name__}"] += 1
                traceback.print_exception(error)


def keys(service: serving.Service) -> Iterator[tuple[str, dict[str, str]]]:
    """Headers of a client, an owner, a liar and a stranger."""
    for name, key in service.keys.items():
        yield name, {"authorization": f"Bearer {key}"}
    yield "liar", {"authorization": "Bearer ostraka_0123456789ab_" + "A" * 43}
    yield "stranger", {}


def storm(service: serving.Service, requests: int) -> Seen:
    """So many requests, spread over operations, keys, and right and wrong data."""
    import requests as http
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.strategies import just
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi import checks as known

    checks = (
        known.status_code_conformance,
        known.content_type_conformance,
        known.response_schema_conformance,
        known.response_headers_conformance,
    )
    schema = schemathesis.openapi.from_url(service.url + "/openapi.json")
    tally, session = Seen(), http.Session()
    operations = [each.ok() for each in schema.get_all_operations()]  # type: ignore[union-attr]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    kinds = list(itertools.product(operations, modes, keys(service)))
    weights = [
        (40 if who == "alice" else 4) if each.path == "/v1/label" else 1 for each, _, (who, _) in kinds
    ]

    def ask(case: Any, headers: dict[str, str]) -> None:
        try:
            response = case.call(base_url=service.url, headers=headers, session=session, timeout=PATIENCE)
        except http.RequestException as error:
            where = f"{case.operation.method.upper()} {case.operation.path}"
            tally.wrong[f"no reply from {where}: {type(error).__name__}"] += 1
            traceback.print_exc()
        else:
            tally.take(case, response, checks)

    for (operation, mode, (_, headers)), weight in zip(kinds, weights, strict=True):
        how = settings(
            max_examples=max(1, requests * weight // sum(weights)),
            deadline=None,
            database=None,
            derandomize=requests < 10_000,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        try:
            how(given(case=operation.as_strategy(generation_mode=mode), headers=just(headers))(ask))()
        except Exception as error:
            if type(error).__name__ not in {"Unsatisfiable", "SkipTest", "Skipped"}:
                raise
    return tally


def run(requests: int) -> dict[str, object]:
    """Fuzz the service, then check its ledger."""
    with power.quick_folder() as folder, serving.running(folder) as service:
        tally = storm(service, requests)
        charged = {seq for seq, _ in service.charged().values()}
    if unanswered := charged - tally.answered:
        tally.wrong["charged, but not answered"] += len(unanswered)
    if uncharged := tally.answered - charged:
        tally.wrong["answered, but not charged"] += len(uncharged)
    return {
        "requests": tally.requests,
        "statuses": dict(sorted(tally.statuses.items())),
        "charged": len(charged),
        "wrong": tally.wrong,
    }


def find(*, requests: int) -> Finding:
    """Run the rig and return its finding."""
    try:
        import schemathesis  # noqa: F401  (only whether it is there)
    except ImportError:
        raise UnavailableError("fuzzing needs schemathesis (pip install schemathesis)") from None
    facts = apart("fuzz", "--requests", requests)
    statuses = ", ".join(f"{count:,} × {status}" for status, count in facts["statuses"].items())
    return Finding(
        tried=f"{facts['requests']:,} requests ({statuses})",
        wrong=Counter(facts["wrong"]),
        control=f"{facts['charged']:,} rows were answered and charged",
        blind=not facts["charged"],
    )


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=100_000)
    chosen = options.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    print(json.dumps(run(chosen.requests)))


if __name__ == "__main__":
    main(sys.argv[1:])
