"""Many runs as one site of pages without network requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from jinja2 import Environment
from pydantic import Field

from headscope.corpus.shipped import corpus_title
from headscope.heads import layer_name
from headscope.options import Overwrite, PathName, checked
from headscope.printing import visible
from headscope.progress import Progress, progress_bar
from headscope.resolve import RunName, run_names, the_run
from headscope.runs.contents import REPORT
from headscope.runs.site import check_site, new_site
from headscope.runs.write import write_file
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE, countable_types
from headscope.views.colours import legend_groups, letter
from headscope.views.html_page import page_file, page_style, style_class
from headscope.views.report import report_html


@dataclass(frozen=True)
class TypeShare:
    """Heads of a run with one primary type."""

    type: str
    """A primary type, or one of `colours.NO_TYPE`."""
    heads: int
    span: str
    """Layers that hold the middle half of these heads, such as `L2–L4`."""
    path: str
    """Cells as an SVG path, one unit a head and a layer."""


@dataclass(frozen=True, eq=False)
class Card:
    """One run of a gallery."""

    name: str
    """A name of its own for each run."""
    folder: str
    """Folder of the report in the site."""
    model: str
    revision: str
    text: str
    """The names of what was read, joined."""
    tokens: int | None
    """Number of tokens of text that were read; None if the run does not say."""
    layers: int
    width: int
    """Heads of a layer."""
    first: str
    """The first layer's name."""
    last: str
    shares: tuple[TypeShare, ...]
    """Shares of types in the order of the legend."""
    countable: frozenset[str]
    """The types that a head could have earned; a count of another was measured by nobody."""
    total: int
    """Heads of the model."""

    def count(self, type_name: str) -> int | None:
        """Heads that are drawn as a type; None if it could not be measured."""
        if type_name not in NO_TYPE and type_name not in self.countable:
            return None
        return sum(share.heads for share in self.shares if share.type == type_name)


def card_of(run: Result, name: str, folder: str) -> Card:
    """The card of a run."""
    # a run whose record names no model goes by its folder
    info = run.info if "model" in run.info else {"model": {"name": name}}
    layers = layers_of(run)
    read = info.get("text_read", {}).get("tokens")
    return Card(
        name=name,
        folder=folder,
        model=str(info["model"]["name"]),
        revision=str(info["model"].get("revision") or ""),
        text=", ".join(
            corpus_title(str(corpus)) for corpus in info.get("corpora", {}).get("asked", ())
        ),
        tokens=None if read is None else int(read),
        layers=len(layers),
        width=int(run.heads["head"].max()) + 1,
        first=layer_name(layers[0]),
        last=layer_name(layers[-1]),
        shares=tuple(_shares(run, layers)),
        countable=frozenset(countable_types(run.evidence_with_thresholds)),
        total=len(run.heads),
    )


def _shares(run: Result, layers: list[int]) -> list[TypeShare]:
    primaries = run.heads["primary"]
    row_of_layer = {layer: row for row, layer in enumerate(layers)}
    shares = []
    for name in functions_first(primaries.unique()):
        heads = run.heads[primaries == name]
        path = ""
        # one path of unit squares for all heads of a type keeps an index of many runs small
        for row in heads.itertuples():
            path += f"M{row.head} {row_of_layer[row.layer]}h1v1h-1z"
        # the layers of the middle half of the heads
        ends = heads["layer"].quantile([0.25, 0.75], interpolation="nearest")
        share = TypeShare(
            str(name),
            len(heads),
            "–".join(dict.fromkeys(layer_name(int(layer)) for layer in ends)),
            path,
        )
        shares.append(share)
    return shares


def functions_first(names: Iterable[str]) -> list[str]:
    """Types in the order of the legend: functions, attention sinks, then no type."""
    return [name for members in legend_groups(names).values() for name in members]


INDEX = "index.html"
_LONGEST = 60  # characters of a folder's name: far below what any file system takes


@checked
def gallery(
    *runs: RunName,
    out: Annotated[PathName, Field(description="Folder of the site; it works offline.")],
    light: Annotated[bool, Field(description="Leave circuitsvis out of the reports.")] = False,
    overwrite: Overwrite = False,
    progress: Progress = True,
) -> Path:
    """Write many runs as a static site: an index, and each run's report.

    Returns:
        The index.

    Raises:
        RunError: a run cannot be read.
        WriteError: the folder holds files, or nothing can be written there.
    """
    folder = Path(out)
    check_site(folder, overwrite=overwrite)
    names = run_names(runs)
    cards = []
    bar = progress_bar(progress, "writing reports", unit="runs", loads=False)
    with new_site(folder, overwrite=overwrite) as new, bar as on_progress:
        # one run in memory at a time: a report needs all of its evidence, a card its heads alone
        for run, name, folder_name in zip(runs, names, folder_names(names), strict=True):
            result = the_run(run)
            cards.append(card_of(result, name, folder_name))
            page = report_html(result, light=light, home=f"../{INDEX}")
            write_file(new / folder_name / REPORT, page)
            on_progress(len(cards), len(runs))
        write_file(new / INDEX, gallery_html(cards))
        write_file(new / ".nojekyll", b"")  # GitHub Pages serves the files as they are
    return folder / INDEX


def gallery_html(cards: Sequence[Card]) -> str:
    """The index of a gallery, a card for each run, as one HTML page without network requests.

    It says everything without its script, which searches and sorts.
    """
    here = "headscope.views.gallery"
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"visible": visible, "style_class": style_class, "letter": letter}
    return environment.from_string(page_file(here, "page.html")).render(
        style=page_style(page_file(here, "gallery.css")),
        cards=cards,
        types=types_of(cards),
        no_type=NO_TYPE,
        models=len({card.model for card in cards}),
        total=sum(card.total for card in cards),
        script=page_file(here, "gallery.js"),
    )


def folder_names(names: Sequence[str]) -> list[str]:
    """A folder for each run that any web server and file system takes, all of them different.

    >>> folder_names(["mini", "a b/ü", "Mini", "…"])
    ['mini', 'a-b', 'Mini-2', 'run']
    """
    used = {INDEX}
    folders = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._]+", "-", name)[:_LONGEST].strip("-._") or "run"
        folder, number = plain, 2
        while folder.lower() in used:  # some file systems know no capitals
            folder, number = f"{plain}-{number}", number + 1
        used.add(folder.lower())
        folders.append(folder)
    return folders


def types_of(cards: Sequence[Card]) -> list[str]:
    """Types that heads of any run are drawn as or could have earned, in the order of the legend."""
    types = {share.type for card in cards for share in card.shares}
    types |= {name for card in cards for name in card.countable}
    return functions_first(types | {*NO_TYPE})
