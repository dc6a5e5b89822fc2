"""Files of texts that tests compare exactly: blocks, each after a line with its name."""

import json
import os
import re
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

RECORDING = bool(os.environ.get("OSTRAKA_RECORD"))  # ``python -m tests.golden`` sets it
_VARIABLE = {  # from run to run, or from machine to machine
    r"\b[0-9a-f]{12,64}\b": "HASH",
    r"\b20\d\d-\d\d-\d\d\b": "DAY",
    r'"(rdp|orders)": \[[^]]*\]': r'"\1": […]',
    r'(version"?: )"[^"]*"': r"\1…",
    r"(seconds: ).*": r"\1…",
    r"student\.onnx, |\n*student\.onnx is not written.*": "",  # where the library for it is there
}
_TRAINED = {  # what models say: processors add in another order, and a row near a border changes its class
    r"(?<!confidence )(?<![\d.])\d+(\.\d+)?( to \d+(\.\d+)?)? %": "… %",
    r"((?:AUC|error|variance|these votes, at most)\W+|± )[\d.]+": r"\1…",
    r'("(low|best|high)": )[\d.]+': r"\1…",
    r"(?m)^((utility|owner|series (?!epsilon)).*?: ).*$": r"\1…",
    r"(?<=\S) {2,}": "  ",  # columns as wide as these
}
_MANY = 60  # elements of a list or table, of which the first are shown


def read(path: Path) -> dict[str, str]:
    """The text of each block by its name."""
    parts = re.split(r"^== (.+)\n", path.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def hold(path: Path, name: str, text: str, *, models: bool = False) -> None:
    """Compare a text with its block, or write the block anew; without what trained ``models`` say."""
    if models:
        for pattern, variable in _TRAINED.items():
            text = re.sub(pattern, variable, text)
    if RECORDING:
        texts = (read(path) if path.exists() else {}) | {name: text}
        path.write_text("".join(f"== {name}\n{text}" for name, text in texts.items()), encoding="utf-8")
    present, recorded = text.splitlines(), read(path)[name].splitlines()
    assert present == recorded, "\n".join(unified_diff(recorded, present, lineterm="", n=1))


def normal_form(text: str, digits: int = 2) -> str:
    """Text without what varies; numbers with more decimals than these are rounded, as processors differ."""
    long = rf"\d+\.\d{{{digits + 1},}}(e-?\d+)?"
    text = re.sub(long, lambda number: f"{float(number[0]):.{digits + 1}g}", text)
    for pattern, variable in _VARIABLE.items():
        text = re.sub(pattern, variable, text)
    return text.strip() + "\n"


def members(record: Mapping[str, object]) -> str:
    """A record in its normal form: a line for each member, and for each element of a list or table in it."""
    lines = []
    for name, value in record.items():
        parts = dict(enumerate(value)) if isinstance(value, list) else value
        several = parts if isinstance(parts, dict) else {"": parts}
        if len(several) > _MANY:
            several = {**dict(list(several.items())[:3]), "in all": len(several)}
        lines += [f"{name} {key}: {json.dumps(part, ensure_ascii=False)}" for key, part in several.items()]
    return normal_form("\n".join(lines))
