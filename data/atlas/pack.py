"""Runs as a folder of atlases: a packed file each, a table of them, and a data set card."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined

from headscope.corpus.read import file_sha256
from headscope.corpus.shipped import named_corpora
from headscope.models.packaged import PACKAGED
from headscope.resolve import load, run_names
from headscope.runs.atlas import MEMBERS, SUFFIX
from headscope.runs.contents import run_files
from headscope.runs.recorded_paths import PLACES, lies
from headscope.runs.site import new_site
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_file
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.views.gallery import Card, card_of, folder_names

TABLE, CARD = "atlases.csv", "README.md"
STEPS_OF_ATTENTION = 200
"""Equal steps from 0 to 1 in which an atlas keeps the attention of examples: twice as fine as what
a report draws, and a third of the bytes of half precision."""
_PERSONAL = ("time", "seconds")
"""Provenance that another machine would have otherwise."""


def export_atlases(runs: Sequence[Path], out: Path) -> Path:
    """Pack runs into a folder that can be published as a data set.

    Returns:
        The data set card, `README.md`; `atlases.csv` next to it has a row per atlas.
    """
    cards, rows = [], list[dict[str, Any]]()
    with new_site(out, overwrite=True) as new:
        for run, name in zip(runs, folder_names(run_names(runs)), strict=True):
            result = load(run)
            file = pack(result, new / f"{name}{SUFFIX}")
            cards.append(card_of(result, name, file.name))
            rows.append(_row(result, cards[-1], file))
        table = pd.DataFrame(rows)
        write_file(new / TABLE, table_to_csv(table))
        write_file(new / CARD, atlas_card(cards, table))
    return out / CARD


def _row(run: Result, card: Card, file: Path) -> dict[str, Any]:
    model, versions = run.info["model"], run.info["provenance"]["versions"]
    return {
        "file": file.name,
        "model": card.model,
        "revision": card.revision,
        "architecture": model.get("architecture", ""),
        "licence": _licence(card.model),
        "layers": card.layers,
        "heads": card.total,
        "tagged": sum(share.heads for share in card.shares if share.type not in NO_TYPE),
        "corpus": card.text,
        "tokens": card.tokens,
        "command": run.info.get("command", ""),
        "headscope": versions.get("headscope", ""),
        "bytes": file.stat().st_size,
        "sha256": file_sha256(file),
    }


def _licence(model: str) -> str:
    """The licence of a model that has a name of headscope's; of others their pages say it."""
    if model in PACKAGED:
        return PACKAGED[model].licence
    return "MIT" if model == "mini" else ""


def atlas_card(cards: Sequence[Card], table: pd.DataFrame) -> str:
    """The card of a data set of atlases, as Markdown with the header that a hub reads.

    Args:
        cards: of the atlases.
        table: a row for each.
    """
    text = Path(__file__).with_name("card.md").read_text("utf-8")
    atlases = list(zip(cards, table.itertuples(), strict=True))
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(text)
    return template.render(atlases=atlases, step=f"{1 / STEPS_OF_ATTENTION:g}")


def pack(run: Result, path: Path) -> Path:
    """Write a run as an atlas.

    Heads, evidence, mean patterns, examples and the tables of studies are in it; the sums and the
    report are not, nor when and how fast the run was made. The file states nothing of its machine,
    and the same run gives the same bytes. Its name ends in `.tar.xz`.

    Raises:
        WriteError: the file is there already, or cannot be written.
    """
    files = run_files(_smaller(run), path.parent, report="")
    stream = io.BytesIO()
    with (
        lzma.open(stream, "wb", preset=lzma.PRESET_EXTREME | 9) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in MEMBERS:
            if name in files:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(files[name]), 0o644
                archive.addfile(member, io.BytesIO(files[name]))
    return write_file(path, stream.getvalue())


def _smaller(run: Result) -> Result:
    """The run as an atlas keeps it."""
    examples = []
    for example in run.examples:
        steps = np.round(example.pattern.astype(np.float64) * STEPS_OF_ATTENTION)
        coarse = (steps / STEPS_OF_ATTENTION).astype(np.float16)
        examples.append(replace(example, pattern=coarse))
    info = _impersonal(run.info)
    note = (
        "an atlas: a run without its sums; attention of examples is rounded to "
        f"{1 / STEPS_OF_ATTENTION:g}, and any other text needs the model, which show and serve load"
    )
    notes = [*dict.fromkeys([*info.get("notes", ()), note])]
    return replace(run, examples=examples, info=info | {"notes": notes}, tally=None)


def _impersonal(info: dict[str, Any]) -> dict[str, Any]:
    """The record of a run without times, and without paths of the machine that made it."""
    provenance = {key: v for key, v in info["provenance"].items() if key not in _PERSONAL}
    if PLACES not in info:
        return info | {"provenance": provenance}
    shipped = {lies(path) for path in named_corpora().values()}
    places = {name: None for name in info[PLACES] if name != "corpora"}
    corpora = [path if path in shipped else None for path in info[PLACES].get("corpora", ())]
    return info | {"provenance": provenance, PLACES: {**places, "corpora": corpora}}
