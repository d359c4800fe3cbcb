"""Runs as a folder of atlases: a packed file each, a table of them, and a data set card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from headscope.corpus.read import file_sha256
from headscope.models.packaged import PACKAGED
from headscope.runs.atlas import STEPS_OF_ATTENTION, SUFFIX, pack
from headscope.runs.resolve import load, run_names
from headscope.runs.site import new_site
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_file
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.views.gallery import Card, card_of, folder_names

TABLE, CARD = "atlases.csv", "README.md"


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
