"""One model on several languages: a run folder each, and what they say together; of parallel
treebanks as many documents as every language can read whole, the same in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headscope.arguments import KINDS, NAME, NAMES, PATH, PATHS, check, maybe, takes
from headscope.corpus.languages import by_language
from headscope.corpus.shipped import listed
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.measure.in_process import InProcess
from headscope.measure.progress import progress_bar
from headscope.measure.readable import readable
from headscope.relations import check_types, head_types
from headscope.runs.folder import encoded
from headscope.runs.store import load
from headscope.runs.tables import table_to_csv
from headscope.runs.write import check_writable, write_files
from headscope.settings import Settings, settings_of
from headscope.stimuli import STIMULI
from headscope.stimuli.stimulus import TextTokenizer
from headscope.stimuli.text import TextWindows
from headscope.studies.sweep.languages.languages_result import Languages
from headscope.studies.sweep.run_cells import run_cells
from headscope.studies.sweep.spec import Spec, read_spec
from headscope.studies.sweep.sweep_cells import where

TYPES = ("syntactic",)
"""What is asked by default: dependencies are annotated alike in all languages."""
FREE = {row.name for row in STIMULI.values() if row.any_language}
"""Stimuli of no language but the text's; word pairs and sentences that were made are English."""
_NO_SETTINGS = {
    "progress": KINDS["progress"],
    "tell": KINDS["tell"],
}
TABLES = ("languages.csv", "relations.csv", "agreement.csv")


@takes(model=NAME, corpus=PATHS, out=maybe(PATH), languages=maybe(NAMES))
def languages(
    model: str,
    corpus: str | Path | Sequence[str | Path],
    *,
    languages: Sequence[str] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Languages:
    """Classify a model's heads in each language of some treebanks, and say what holds in how many.

    Each language is a run of its own, with simple rules to beat, a twin and intervals of its own.
    Treebanks that are parallel are read up to the same document, all of it unless `all` is False.
    Runs that are complete are kept, so that the same call goes on after a stop.

    Args:
        model: `mini`, a folder, a `.gguf` file or a hub name.
        corpus: treebanks, or folders of them, whose files are called after their language as in
            Universal Dependencies: `de_pud-ud-test.conllu`.
        languages: the codes of those that are wanted; all when None.
        out: the folder of the runs and of `languages.csv`, `relations.csv` and `agreement.csv`;
            `runs/languages` when None.
        settings: `progress` and `tell` as for `headscope.sweep`, and settings as for `classify`;
            only `syntactic` is asked unless `types` says more.

    Raises:
        CorpusError: a file's name says no language, or one that is wanted is not there.
        HeadscopeError: there is one language alone, or a type asks English sentences.
        RunError: the folder holds another sweep, or no language could be read.
    """
    settings = {"progress": True, "tell": _silent} | settings
    progress, tell = (check(name, settings.pop(name), kind) for name, kind in _NO_SETTINGS.items())
    corpora = listed(corpus)
    treebanks = by_language(corpora, languages or ())
    if len(treebanks) < 2:
        there = f"one language alone ({', '.join(treebanks)})" if treebanks else "no treebank"
        raise HeadscopeError(f"{there}: several are compared; headscope classify reads one")
    settings |= {
        "types": TYPES if settings.get("types") is None else settings["types"],
        "built": False,
    }
    run_settings = settings_of(None, settings)
    _check_types(run_settings.types or ())
    folder = Path("runs") / "languages" if out is None else Path(out)
    check_writable(folder / TABLES[0])
    for files in treebanks.values():
        readable(files, seed=run_settings.seed)
    with progress_bar(progress) as bar:
        documents = _documents(model, treebanks, run_settings)
        settings["documents"] = documents or run_settings.documents
        # a language that ended early would have read other documents than the rest
        if settings.get("all") is None:
            settings["all"] = documents is not None
        plan = _plan(model, treebanks, folder, settings)
        cells = run_cells(plan, progress=bar, tell=tell)
    done = dict(zip(treebanks, cells, strict=True))
    failed = {language: cell.error for language, cell in done.items() if cell.error}
    runs = {
        language: load(folder / cell.folder, with_tally=True)
        for language, cell in done.items()
        if not cell.error
    }
    comparison = Languages.of(
        runs, parallel=documents if settings["all"] else None, failed=failed, seed=run_settings.seed
    )
    _write(comparison, folder)
    return comparison


def _write(comparison: Languages, folder: Path) -> None:
    tables = zip(
        TABLES, (comparison.heads, comparison.relations, comparison.agreement), strict=True
    )
    files = {folder / name: encoded(table_to_csv(table)) for name, table in tables}
    write_files(files, overwrite=True)


def _silent(*arguments: Any) -> None:
    """Nothing is shown."""


def _check_types(types: Sequence[str]) -> None:
    for name, head_type in check_types(types).items():
        read = {stimulus for relation in head_type.relations for stimulus in relation.stimuli}
        if not read <= FREE:
            free = [
                head_type.name
                for head_type in head_types().values()
                if head_type.relations
                and {s for r in head_type.relations for s in r.stimuli} <= FREE
            ]
            raise HeadscopeError(
                f"{name} is asked in English sentences too, which say nothing of other languages; "
                f"choose from: {', '.join(free)}"
            )


def _documents(
    model: str, treebanks: Mapping[str, Sequence[Path]], settings: Settings
) -> int | None:
    """The documents that all can read; None where texts are not parallel."""
    name, revision = where(model, settings.revision)
    opened = InProcess().open(name, **replace(settings, revision=revision).loading())
    return shared_documents(treebanks, opened.tokenizer, settings, opened.longest_window)


def _plan(
    model: str, treebanks: Mapping[str, Sequence[Path]], out: Path, settings: Mapping[str, Any]
) -> Spec:
    """The sweep over the languages; a setting that is None is not said."""
    options = {name: value for name, value in settings.items() if name != "revision"}
    return read_spec(
        None,
        models=[model],
        revisions=[settings["revision"]] if settings.get("revision") else None,
        corpora=[[str(file) for file in files] for files in treebanks.values()],
        out=out,
        **options,
    )


def shared_documents(
    treebanks: Mapping[str, Sequence[Path]],
    encoder: TextTokenizer,
    settings: Settings,
    longest: int,
) -> int | None:
    """Documents that each language reads so that all read the same; None of other texts.

    Treebanks are parallel where their documents have the same names in the same order, as those of
    Parallel UD have. One takes more tokens than the other to say the same, so that a number of
    tokens would end them at different sentences.

    Args:
        treebanks: the files of each language.
        encoder: the model's tokenizer.
        settings: how much may be read of each.
        longest: the model's longest window.
    """
    names = []
    for files in treebanks.values():
        text = TextWindows(
            files,
            encoder,
            max_tokens=settings.max_tokens,
            max_documents=settings.documents,
            max_length=min(settings.max_length, longest),
            seed=settings.seed,
        )
        document_names = _names(text)
        # the last one may go on where the tokens ended
        names.append(document_names[:-1] if text.tokens >= settings.max_tokens else document_names)
    count = min(map(len, names))
    same = len({tuple(document_names[:count]) for document_names in names}) == 1
    return count if count and same else None


def _names(windows: Iterable[Window]) -> list[str]:
    """The documents' names in the order in which they are read."""
    names: dict[int, str] = {}
    for window in windows:
        names.setdefault(window.document, window.name.rpartition("#")[0])
    return list(names.values())
