"""Exports as hospitals, offices and shops write them: every mess that was seen, one or more in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Table = dict[str, list]


def people(n: int, seed: int) -> tuple[np.random.Generator, Table, np.ndarray]:
    """Columns, and a risk which they explain but for a little chance."""
    rng = np.random.default_rng(seed)
    age, bmi, smokes = rng.integers(20, 90, n), rng.normal(27, 4, n).round(2), rng.random(n) < 0.3
    risk = (age - 55) / 15 + (bmi - 27) / 6 + 1.2 * smokes + rng.normal(0, 0.5, n)
    columns = {"age": age.tolist(), "bmi": bmi.tolist(), "smokes": np.where(smokes, "yes", "no").tolist()}
    return rng, columns, risk


def plain(n: int, seed: int) -> Table:
    _, table, risk = people(n, seed)
    return table | {"ill": np.where(risk > 0.3, "ja", "nein").tolist()}


def german(value: float) -> str:
    """1.234,56"""
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def commas(n: int, seed: int) -> Table:
    table = plain(n, seed)
    return table | {"bmi": [german(value) for value in table["bmi"]]}


def thousands(n: int, seed: int) -> Table:
    table = plain(n, seed)
    rng = np.random.default_rng(seed + 100)
    return table | {
        "bmi": [german(40 * value) for value in table["bmi"]],
        "cost": [german(cost) for cost in rng.lognormal(8, 1, n)],
    }


def spellings(n: int, seed: int) -> Table:
    table, rng = plain(n, seed), np.random.default_rng(seed)
    forms = {"ja": ["ja", "Ja", "JA "], "nein": ["nein", "Nein", " NEIN"]}
    return table | {"ill": [str(rng.choice(forms[cell])) for cell in table["ill"]]}


def visits(n: int, seed: int) -> Table:
    return {"PatientenNr": [f"P{k // 3:05d}" for k in range(n)]} | plain(n, seed)


def odd_name(n: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    return {"x7": [f"AB-{k:06d}" for k in rng.integers(10_000, 10_000 + n // 2, n)]} | plain(n, seed)


def case_numbers(n: int, seed: int) -> Table:
    return {"Fallnr": list(range(200_000, 200_000 + n))} | plain(n, seed)


def umlauts(n: int, seed: int) -> Table:
    table = plain(n, seed)
    towns = np.where(np.array(table["smokes"]) == "yes", "Köln", "Düren").tolist()
    return {"größe": table["age"], "ort": towns, "bmi": table["bmi"], "ill": table["ill"]}


def holes(n: int, seed: int) -> Table:
    table, rng = plain(n, seed), np.random.default_rng(seed)
    bmi = [
        str(rng.choice(["k.A.", "n.b.", "-", "?"])) if rng.random() < 0.05 else value
        for value in table["bmi"]
    ]
    return table | {"bmi": bmi}


def sentinels(n: int, seed: int) -> Table:
    table, rng = plain(n, seed), np.random.default_rng(seed)
    return table | {"bmi": [-999 if rng.random() < 0.05 else value for value in table["bmi"]]}


def rare(n: int, seed: int) -> Table:
    _, table, risk = people(n, seed)
    return table | {"ill": np.where(risk > np.quantile(risk, 0.993), "ja", "nein").tolist()}


def unlabelled(n: int, seed: int) -> Table:
    table, rng = plain(n, seed), np.random.default_rng(seed)
    if seed:  # public rows with labels measure accuracy
        return table
    ill = [str(rng.choice(["", "k.A."])) if rng.random() < 0.1 else cell for cell in table["ill"]]
    return table | {"ill": ill}


def wide(n: int, seed: int) -> Table:
    rng, table = np.random.default_rng(seed), plain(n, seed)
    others = {f"lab_{k}": rng.normal(0, 1, n).round(2).tolist() for k in range(197)}
    return others | table


def many_classes(n: int, seed: int) -> Table:
    centres = np.random.default_rng(7).normal(0, 3, (300, 6))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 300, n)
    points = (centres[y] + rng.normal(0, 0.3, (n, 6))).round(3)
    return {f"x{k}": points[:, k].tolist() for k in range(6)} | {"ill": [f"c{k:03d}" for k in y]}


def leak(n: int, seed: int) -> Table:
    table = plain(n, seed)
    return table | {"diagnosis_code": ["D1" if cell == "ja" else "D0" for cell in table["ill"]]}


def scores(n: int, seed: int) -> Table:
    _, table, risk = people(n, seed)
    return table | {"ill": (risk * 10).round(1).tolist()}


def dated(n: int, seed: int) -> Table:
    rng, table = np.random.default_rng(seed), plain(n, seed)
    days = rng.integers(0, 336, n)
    return table | {"seen": [f"{1 + day % 28:02d}.{1 + day // 28:02d}.2023" for day in days.tolist()]}


def apostrophes(n: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    return plain(n, seed) | {"cost": [f"{cost:,.2f}".replace(",", "'") for cost in rng.lognormal(8, 1, n)]}


def two_forms_of_dates(n: int, seed: int) -> Table:
    dates = dated(n, seed)["seen"]
    forms = ["-".join(reversed(day.split("."))) if k % 2 else day for k, day in enumerate(dates)]
    return plain(n, seed) | {"seen": forms}


def nested(n: int, seed: int) -> Table:
    return plain(n, seed) | {"extra": [f'{{"visit": {k}}}' for k in range(n)]}


def header_again(n: int, seed: int) -> Table:
    table, half = plain(n, seed), n // 2
    if seed:
        return table
    return {name: [*cells[:half], name, *cells[half:]] for name, cells in table.items()}


def twice(n: int, seed: int) -> Table:
    return {name: cells * 2 for name, cells in plain(n // 2, seed).items()}


def floats(n: int, seed: int) -> Table:
    table = plain(n, seed)
    ones = ["1" if k % 2 or seed else "1.0" for k in range(n)]
    return table | {
        "ill": [digit if cell == "ja" else "0" for digit, cell in zip(ones, table["ill"], strict=True)]
    }


def notes(n: int, seed: int) -> Table:
    return plain(n, seed) | {"note": [f'"fine\nsince {k % 3}"' for k in range(n)]}


def units(n: int, seed: int) -> Table:
    """The hospital's export: everything at once."""
    rng, table = np.random.default_rng(seed), visits(n, seed)
    table["bmi"] = [
        str(rng.choice(["k.A.", "n.b."])) if rng.random() < 0.04 else german(40 * value)
        for value in table["bmi"]
    ]
    table["ill"] = spellings(n, seed)["ill"]
    return case_numbers(n, seed) | {"ort": umlauts(n, seed)["ort"]} | table


class Mess(NamedTuple):
    """How a table is made and written, what is to be found in it, and what the command is to say."""

    make: Callable[[int, int], Table]
    kinds: frozenset[str] = frozenset()
    options: tuple[str, ...] = ()
    delimiter: str = ","
    encoding: str = "utf8"
    titles: int = 0
    trailing: bool = False
    ending: str = "csv"
    rows: tuple[int, int] = (2400, 600)
    copies: bool = False
    quoted: bool = False
    usable: bool = True  # a command can be typed
    public_drops: tuple[str, ...] = ()
    balanced: float = 0.7


def mess(
    make: Callable[[int, int], Table], *kinds: str, options: tuple[str, ...] = (), **words: object
) -> Mess:
    return Mess(make, frozenset(kinds), options, **words)  # type: ignore[arg-type]


MESSES = {
    "semicolons and decimal commas": mess(commas, delimiter=";"),
    "quoted decimal commas": mess(commas, "decimal sign", options=("--decimal",), quoted=True),
    "signs of thousands": mess(thousands, delimiter=";"),
    "six label spellings": mess(spellings, "label spellings", options=("--same",)),
    "an identifier that repeats": mess(
        visits, "unit", options=("--person PatientenNr",), public_drops=("PatientenNr",)
    ),
    "an identifier of no name": mess(odd_name, "unit", options=("--person x7",), public_drops=("x7",)),
    "title lines": mess(plain, "title lines", options=("--skip-lines 3",), titles=3, delimiter=";"),
    "a trailing delimiter": mess(plain, "trailing delimiter", trailing=True, delimiter=";"),
    "a cover sheet": mess(plain, "sheets", options=("--sheet Daten",), ending="xlsx"),
    "Windows text": mess(umlauts, "encoding", options=("--encoding cp1252",), encoding="cp1252"),
    "tabs in UTF-16": mess(umlauts, delimiter="\t", encoding="utf-16"),
    "spellings of holes": mess(holes, "holes", options=("--missing k.A.", "--missing=-", "--fill")),
    "minus 999": mess(sentinels, "holes", options=("--missing=-999", "--fill")),
    "a class of seven in a thousand": mess(rare, "rare classes", rows=(12_000, 2000), balanced=0.0),
    "rows without a label": mess(
        unlabelled, "rows without a label", options=("--drop-unlabelled", "--missing k.A.")
    ),
    "200 columns": mess(wide, "wide", rows=(1000, 200), balanced=0.0),  # at epsilon 1 noise may leave nothing
    "300 classes": mess(many_classes, "rare classes", rows=(30_000, 900), balanced=0.0),
    "a column that gives the label away": mess(
        leak, "gives the label away", options=("--drop diagnosis_code",)
    ),
    "case numbers": mess(
        case_numbers, "values of their own", options=("--drop Fallnr",), public_drops=("Fallnr",)
    ),
    "a label of quantities": mess(scores, "numeric label", usable=False),
    "dates": mess(dated, "dates"),
    "apostrophes of thousands": mess(apostrophes, "numbers as text", options=("--drop cost",), delimiter=";"),
    "two forms of dates": mess(two_forms_of_dates, "dates", options=("--drop seen",)),
    "a column of JSON": mess(nested, "JSON", options=("--drop extra",)),
    "the header again": mess(header_again, "header", "numbers as text"),
    "every row twice": mess(twice, "repeated rows"),
    "1 and 1.0": mess(floats, "label spellings", options=("--same 1=1.0",)),
    "line ends inside quotes": mess(
        notes, "line ends", options=("--drop-unlabelled",), delimiter=";", public_drops=("note",)
    ),
    "public rows that are copies": mess(plain, "copies", copies=True, usable=False),
    "forty rows": mess(plain, "too few rows", rows=(40, 60), usable=False),
    "the hospital's export": mess(
        units,
        *("unit", "label spellings", "title lines", "encoding", "holes", "values of their own"),
        options=("--person PatientenNr", "--same", "--skip-lines 2", "--encoding cp1252", "--drop Fallnr"),
        delimiter=";",
        encoding="cp1252",
        titles=2,
        trailing=True,
        public_drops=("PatientenNr", "Fallnr"),
    ),
}


def write(folder: Path, it: Mess) -> None:
    """``private.…`` with the mess; ``public.csv`` or ``.xlsx`` as tidy as its cells allow."""
    private = it.make(it.rows[0], 0)
    public = (
        {name: cells[: it.rows[1]] for name, cells in private.items()}
        if it.copies
        else it.make(it.rows[1], 1)
    )
    for name in it.public_drops:
        public.pop(name)
    if it.ending == "xlsx":
        _workbook(folder / "private.xlsx", private, cover=True)
        _workbook(folder / "public.xlsx", public, cover=False)
        return
    titles = [f"Export vom 12.03.2024, Bereich {k}" for k in range(it.titles)]
    (folder / "private.csv").write_bytes(
        _text(private, it, titles=titles, trailing=it.trailing).encode(it.encoding)
    )
    (folder / "public.csv").write_bytes(_text(public, it, titles=[], trailing=False).encode("utf8"))


def _text(table: Table, it: Mess, *, titles: list[str], trailing: bool) -> str:
    sign = it.delimiter

    def line(cells: object) -> str:
        texts = [f'"{cell}"' if it.quoted and "," in str(cell) else str(cell) for cell in cells]  # type: ignore[attr-defined]
        return sign.join(texts) + sign * trailing

    return "\n".join([*titles, line(table), *map(line, zip(*table.values(), strict=True))]) + "\n"


def _workbook(path: Path, table: Table, *, cover: bool) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    if cover:
        sheet.title = "Deckblatt"
        sheet.append(["Export der Klinik"])
        sheet = book.create_sheet("Daten")
    sheet.append(list(table))
    for row in zip(*table.values(), strict=True):
        sheet.append(list(row))
    book.save(path)
