"""InvisibleInk's own program on given documents, in its own environment: no import of ostraka.

``PYTHON bench/_invink.py FOLDER`` reads ``asked.json`` of the folder (documents of each label, the
network's folder, settings), and writes ``invink.json`` there: texts, the epsilon it states, its version,
and seconds of processor time, imports not included. Version 0.1.0 needs Python 3.12, or one f-string of its
utils.py in other quotes. ``python -m bench writing_rivals`` calls it.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path


def main(place: Path) -> None:
    """Write the texts of all labels."""
    from invink import generate

    settings = json.loads((place / "asked.json").read_text())
    texts, stated, start = {}, [], time.process_time()
    for label, documents in settings["documents"].items():
        made = generate(
            txt_list_or_path=documents,
            model_name_or_path=settings["network"],
            dataset_desc=label,
            system_prompt="You are a helpful assistant.",
            pub_prompt="Write a {} phrase from a movie review.",
            prv_prompt="Write a {} phrase from a movie review, like this one: {}",
            epsilon=settings["epsilon"],
            delta=settings["delta"],
            batch_size=settings["n_documents"] + 1,
            num=settings["n_texts"],
            max_toks=settings["n_tokens"],
            temperature=settings["temperature"],
            topk=settings["n_candidates"],
            dtype="float32",
            device_map=-1,
            allow_download=False,
            random_seed=1,
        )
        texts[label] = list(made.texts)
        stated += [float(value) for value in made.epsilon_spent]
    spent = time.process_time() - start
    record = {"texts": texts, "epsilon": max(stated), "seconds": spent, "version": version("invink")}
    (place / "invink.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
