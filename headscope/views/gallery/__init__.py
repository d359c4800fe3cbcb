"""Many runs as one site of pages that ask no network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from jinja2 import Environment
from pydantic import Field

from headscope.errors import RunError
from headscope.options import Overwrite, PathName, checked
from headscope.paths import resolved
from headscope.printing import visible
from headscope.progress import Progress, progress_bar
from headscope.runs.atlas import is_stored
from headscope.runs.folder import REPORT, RUN, encoded
from headscope.runs.resolve import RunName, run_names, the_run
from headscope.runs.site import check_site, new_site
from headscope.runs.write import write_file
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.views.gallery.card import Card, card_of, functions_first
from headscope.views.html_page import page_file, page_style, style_class
from headscope.views.report import report_html

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
        RunError: no run, one of them twice, or one that cannot be read.
        WriteError: the folder holds something else, or nothing can be written there.
    """
    folder = Path(out)
    check_site(folder, overwrite=overwrite)
    _check_runs(runs)
    names = run_names(runs)
    cards = []
    bar = progress_bar(progress, "writing reports", unit="runs", loads=False)
    with new_site(folder, overwrite=overwrite) as new, bar as on_progress:
        # one run in memory at a time: a report needs all of its evidence, a card its heads alone
        for run, name, folder_name in zip(runs, names, folder_names(names), strict=True):
            result = the_run(run)
            cards.append(card_of(result, name, folder_name))
            page = report_html(result, light=light, home=f"../{INDEX}")
            write_file(new / folder_name / REPORT, encoded(page))
            on_progress(len(cards), len(runs))
        write_file(new / INDEX, encoded(gallery_html(cards)))
        write_file(new / ".nojekyll", b"")  # GitHub Pages serves the files as they are
    return folder / INDEX


def gallery_html(cards: Sequence[Card]) -> str:
    """The index of a gallery, a card for each run, as one HTML page that asks no network.

    It says everything without its script, which searches and sorts.
    """
    here = "headscope.views.gallery"
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"visible": visible, "style_class": style_class}
    return environment.from_string(page_file(here, "page.html")).render(
        style=page_style(page_file(here, "gallery.css")),
        cards=cards,
        types=types_of(cards),
        models=len({card.model for card in cards}),
        total=sum(card.total for card in cards),
        script=page_file(here, "gallery.js"),
    )


def folder_names(names: Sequence[str]) -> list[str]:
    """A folder for each run that any web server and file system takes, all of them different.

    >>> folder_names(["mini", "a b/ü", "Mini", "…"])
    ['mini', 'a-b', 'Mini-2', 'run']
    """
    used = {INDEX, "gallery.json"}
    folders = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._]+", "-", name)[:_LONGEST].strip("-._") or "run"
        folder, number = plain, 2
        while folder.lower() in used:  # some file systems know no capitals
            folder, number = f"{plain}-{number}", number + 1
        used.add(folder.lower())
        folders.append(folder)
    return folders


def _check_runs(runs: Sequence[Result | str | Path]) -> None:
    """Refuse before the first report is made what can be seen without reading any run."""
    if not runs:
        raise RunError("a gallery takes one run or more, and none came")
    seen = set[Path]()
    for run in runs:
        if isinstance(run, Result):
            continue
        if not is_stored(run):
            raise RunError(f"{run!s:.300} is no run folder: it has no {RUN}")
        run_folder = resolved(Path(run))
        if run_folder in seen:
            raise RunError(f"{run!s:.300} was given twice")
        seen.add(run_folder)


def types_of(cards: Sequence[Card]) -> list[str]:
    """Types that heads of any run are drawn as or could have earned, in the order of the legend."""
    types = {share.type for card in cards for share in card.shares}
    types |= {name for card in cards for name in card.countable}
    return functions_first(types | {*NO_TYPE})
