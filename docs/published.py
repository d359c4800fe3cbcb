"""Classify models, compare each with its published scores, and write a page for each.

    python -m docs.published gpt2 EleutherAI/pythia-70m --out published

MODELS are names as for `headscope classify`. Each model has a run folder, a page `NAME.md` with a
picture, and `NAME.csv`, the table of `headscope verify`, if scores of it are published. The same
command goes on where it was stopped: finished models are passed over, and the run of an unfinished
one is resumed. One line a model is printed. The exit code is 1 if a model could not be measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import headscope as hs
from docs.model_pages import write_page
from headscope.errors import ChoiceError, RunError, first_line
from headscope.models.locate import title_of
from headscope.runs.folder import is_run
from headscope.runs.write import write_file
from headscope.views.study_result import StudyResult


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="names, as for headscope classify")
    parser.add_argument("--out", type=Path, default=Path("published"), help="folder of the pages")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-tokens", type=int, default=hs.Settings().max_tokens)
    arguments = parser.parse_args(words)
    settings = hs.Settings(device=arguments.device, max_tokens=arguments.max_tokens)
    folders = {model: arguments.out / folder_name(model) for model in arguments.models}
    if len(set(folders.values())) < len(arguments.models):
        parser.error("two models have the same name, or one is named twice")
    has_failed = False
    for number, (model, folder) in enumerate(folders.items(), 1):
        try:
            outcome = publish(model, folder, settings)
        except (hs.HeadscopeError, MemoryError, RuntimeError) as error:
            has_failed = True
            outcome = f"failed: {first_line(error)}"
        print(f"{number}/{len(folders)} {model}: {outcome}", flush=True)
    sys.exit(has_failed)


def folder_name(model: str) -> str:
    """The name of a model's folder and page; owners keep models of the same name apart.

    >>> folder_name("EleutherAI/pythia-70m"), folder_name("../models/tiny.gguf")
    ('EleutherAI--pythia-70m', 'tiny')
    """
    return title_of(model).removesuffix(".gguf").replace("/", "--")


def publish(model: str, folder: Path, settings: hs.Settings) -> str:
    """Do what is not done yet of one model, and describe it in a line.

    The page is written last, so that it stands for the rest.

    Raises:
        HeadscopeError: the model cannot be read, or the folder holds something else.
    """
    page = page_of(folder)
    if page.is_file():
        return f"done before: {page}"
    start = time.monotonic()
    if not is_run(folder):
        hs.classify(model, settings=settings, out=folder)
    run = hs.load(folder)
    compared = comparison(run)
    if compared is not None:
        write_file(page.with_suffix(".csv"), compared.csv(), overwrite=True)
    write_page(run, page, is_compared=compared is not None)
    tagged = int(run.heads["tags"].ne("").sum())
    seconds = time.monotonic() - start
    return (
        f"{tagged} of {len(run.heads)} heads tagged; {_in_words(compared)}; {seconds:.0f} s: {page}"
    )


def page_of(folder: Path) -> Path:
    """The page beside a run folder; a model's name may have dots."""
    return folder.with_name(f"{folder.name}.md")


def comparison(run: hs.Run) -> StudyResult | None:
    """The result of `verify`; None if no published scores can be compared."""
    try:
        return hs.verify(run)
    except (ChoiceError, RunError):
        return None


def _in_words(compared: StudyResult | None) -> str:
    """The rank correlations of a comparison in a line."""
    if compared is None:
        return "no published scores"
    rows = compared.table.itertuples()
    return ", ".join(f"{row.metric} and {row.relation} ρ {row.spearman:.2f}" for row in rows)


if __name__ == "__main__":
    main()
