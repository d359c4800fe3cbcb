"""Runs as a folder of atlases: a packed file each, a table of them, and a data set card."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from jinja2 import Environment, StrictUndefined
from pydantic import Field

from headscope.corpus.read import file_sha256
from headscope.models.packaged import PACKAGED
from headscope.options import Overwrite, PathName, checked
from headscope.progress import Progress, progress_bar
from headscope.runs.atlas import PREFIX, STEPS_OF_ATTENTION, SUFFIX, pack
from headscope.runs.resolve import RunName, run_names, the_run
from headscope.runs.site import check_site, new_site
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_file
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.views.gallery import Card, card_of, folder_names

TABLE, CARD = "atlases.csv", "README.md"


@checked
def export_atlases(
    *runs: RunName,
    out: Annotated[PathName, Field(description="Folder of the atlases, NAME.tar.xz each.")],
    overwrite: Overwrite = False,
    progress: Progress = True,
) -> Path:
    """Pack runs into a folder that can be published as a data set.

    Returns:
        The data set card, `README.md`; `atlases.csv` next to it has a row per atlas.

    Raises:
        RunError: a run cannot be read.
        WriteError: the folder holds files, or nothing can be written there.
    """
    folder = Path(out)
    check_site(folder, overwrite=overwrite)
    cards, rows = [], list[dict[str, Any]]()
    bar = progress_bar(progress, "packing", unit="runs", loads=False)
    with new_site(folder, overwrite=overwrite) as new, bar as on_progress:
        names = [name.removeprefix(PREFIX).removesuffix(SUFFIX) for name in run_names(runs)]
        for run, name in zip(runs, folder_names(names), strict=True):
            result = the_run(run)
            file = pack(result, new / f"{name}{SUFFIX}")
            cards.append(card_of(result, name, file.name))
            rows.append(_row(result, cards[-1], file))
            on_progress(len(cards), len(runs))
        table = pd.DataFrame(rows)
        write_file(new / TABLE, table_to_csv(table))
        write_file(new / CARD, atlas_card(cards, table))
    return folder / CARD


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
    text = files("headscope.views.gallery").joinpath("atlas_card.md").read_text("utf-8")
    atlases = list(zip(cards, table.itertuples(), strict=True))
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(text)
    return template.render(atlases=atlases, step=f"{1 / STEPS_OF_ATTENTION:g}")
