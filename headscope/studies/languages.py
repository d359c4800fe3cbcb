"""Languages: heads of one model with the same relation in treebanks of several languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, PlainValidator

from headscope.corpus.shipped import listed
from headscope.corpus.treebank_languages import by_language
from headscope.errors import HeadscopeError, RunError
from headscope.heads import head_name
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.models.last_model import LastModel
from headscope.options import Names, OnMessage, PathName, Paths, check_model
from headscope.progress import Progress, progress_bar
from headscope.relations import all_stimuli, check_types
from headscope.resolve import load, the_model
from headscope.runs.write import check_writable, write_file
from headscope.settings import Settings, settings_of
from headscope.statistics.general_labels import shown_relations
from headscope.statistics.result import Result
from headscope.statistics.tags import (
    INCONCLUSIVE,
    OPEN,
    UNIDENTIFIABLE,
    is_decidable,
    with_thresholds,
)
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.stimulus import TextTokenizer
from headscope.studies.languages_statistics import (
    HEAD,
    ID,
    lift_agreement,
    lift_bounds,
    tags_by_chance,
)
from headscope.studies.study import Study, study, table_columns
from headscope.studies.study_table import Command
from headscope.studies.sweep import sweep, where
from headscope.studies.sweep_folder import COMPLETE
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

TABLE = "languages.csv"
TYPES = ("syntactic",)
"""Types by default: Universal Dependencies annotates syntax alike in all languages."""
SHOWN_ROWS = 20
"""Rows of the terminal and of the figure at most."""


STUDY = Study(
    command=Command(
        group="sweep",
        summary="Count the languages in which each head has a tag.",
        examples=(
            "headscope sweep languages model/ --corpus pud/ --languages de,ja,zh "
            "--figure languages.svg",
        ),
        out="",
    ),
    rows="head × relation that the text of some language decides; most tagged first",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        type | a head type | the relation's type
        relation | text | its name
        general | text | the general label of the tag in most languages that hold it, such as
            `phrase-head:dep>head`; empty for a specific tag
        tagged | languages, ≥ 0 | languages in which the head holds the tag
        by_chance | languages, ≥ 0 | languages in which a head of that layer holds it by chance
        p_value | (0, 1] | probability of at least `tagged` languages by chance
        decidable | languages, ≥ 0 | languages whose text gives the tag, or rejects it
        holds_in | codes joined by `;` | languages that give the tag
        not_in | codes joined by `;` | languages that reject it
        inconclusive_in | codes joined by `;` | languages whose text is inconclusive
        undecided_in | codes joined by `;` | languages whose text cannot decide it
        lift | [−1, 1] | mean lift over the languages that decide
        ci_low, ci_high | [−1, 1] | ends of its 95 % interval over documents
        correlation | [−1, 1] | Spearman's rank correlation of the heads' lifts, mean over pairs of
            languages with 50 queries or more; empty for fewer than two
        correlation_low, correlation_high | [−1, 1] | ends of its 95 % interval, by Fisher's z
        correlation_by_chance | [−1, 1] | its expectation if heads are shuffled within layers
    """),
    figure=HeatMap(x="language", y="tag", value="lift", mark="tagged"),
    bad_call={"languages": ""},
)


@study(STUDY)
def languages(
    model: Annotated[
        Any,
        PlainValidator(check_model),
        Field(description="A name or path as for classify; in Python also a loaded model."),
    ],
    corpus: Annotated[
        Paths,
        Field(
            description="Treebanks or folders of them, named as in Universal Dependencies: "
            "de_pud-ud-test.conllu."
        ),
    ],
    *,
    languages: Annotated[
        Names | None, Field(description="Codes of the languages to read. Default: all.")
    ] = None,
    out: Annotated[
        PathName, Field(description="Folder of the runs and of languages.csv.")
    ] = "runs/languages",
    progress: Progress = True,
    on_message: OnMessage = lambda line: None,
    **settings: Any,
) -> StudyResult:
    """Classify a model's heads in each language of some treebanks, and compare the languages.

    Each language has a run with its own baselines and intervals. Parallel treebanks are
    read up to the same document, all of it unless `all` is False. Complete runs are kept, so that
    the same call resumes after a stop.

    Raises:
        CorpusError: a file's name has no language, or a requested language is missing.
        HeadscopeError: there is only one language, or a type needs English stimuli.
        RunError: the folder holds another sweep, every language failed, or no text decides any
            relation.
    """
    treebanks = by_language(listed(corpus), languages or ())
    if len(treebanks) < 2:
        raise HeadscopeError(f"{len(treebanks)} languages; name treebanks of at least two")
    if settings.get("types") is None:
        settings["types"] = TYPES
    # intervals come from resampled documents
    settings["challenge"] = False
    settings["keep_sums"] = True
    run_settings = settings_of(None, settings)
    _check_any_language(run_settings)
    folder = Path(out)
    check_writable(folder / TABLE)
    revision = settings.pop("revision", None)
    settings["revisions"] = None if revision is None else [revision]
    settings["corpora"] = [[str(file) for file in files] for files in treebanks.values()]
    with progress_bar(progress) as bar:
        if not isinstance(model, str):
            model = the_model(model)
        documents = _documents(model, treebanks, run_settings)
        settings["documents"] = documents or run_settings.documents
        # a language that ended early would have read other documents than the others
        settings.setdefault("all", documents is not None)
        done = sweep(models=[model], out=folder, progress=bar, on_message=on_message, **settings)
    cells = done.table.set_index([list(treebanks)])
    runs, failed = _loaded(cells, folder)
    shared = documents if settings["all"] else None
    result = compared(runs, documents=shared, failed=failed, seed=run_settings.seed)
    write_file(folder / TABLE, result.csv(), overwrite=True)
    return result


def _check_any_language(settings: Settings) -> None:
    """Refuse a type with a stimulus in English."""
    stimuli = all_stimuli()
    for name, head_type in check_types(settings.types).items():
        for relation in head_type.relations:
            for stimulus in relation.stimuli:
                if not stimuli[stimulus].any_language:
                    raise HeadscopeError(
                        f"{name} needs English stimuli, which other languages do not have"
                    )


def _documents(
    model: Any, treebanks: Mapping[str, Sequence[Path]], settings: Settings
) -> int | None:
    name, revision = where(model, settings.revision)
    loading = settings.model_copy(update={"revision": revision}).loading()
    loaded = LastModel().open(name, **loading)
    return shared_documents(treebanks, loaded.tokenizer, settings, loaded.longest_window)


def _loaded(cells: pd.DataFrame, folder: Path) -> tuple[dict[str, Result], dict[str, str]]:
    """Complete runs, and errors of the others, by language."""
    is_complete = cells["status"] == COMPLETE
    errors = cells.loc[~is_complete, "error"]
    failed = {str(language): str(error) for language, error in errors.items()}
    if not is_complete.any():
        raise RunError(f"no language could be read: {'; '.join(failed.values())}")
    runs: dict[str, Result] = {}
    for language, name in cells.loc[is_complete, "folder"].items():
        runs[str(language)] = load(folder / name, with_tally=True)
    return runs, failed


def compared(
    runs: Mapping[str, Result],
    *,
    documents: int | None = None,
    failed: Mapping[str, str] | None = None,
    seed: int = 0,
) -> StudyResult:
    """Compare the runs of one model, loaded with their sums, on several languages.

    If all runs read the same documents, `documents` is their number.

    Raises:
        RunError: no text decides any relation.
    """
    tallies = {name: run.tally for name, run in runs.items() if run.tally is not None}
    evidence = evidence_of(runs)
    if not evidence["decidable"].any():
        raise RunError(
            f"no text decides any relation: the most frequent has {evidence['n'].max():.0f} "
            "queries; read more text (--max-tokens), or longer treebanks"
        )
    # blocks of fewer documents are stretches of text, which differ between languages
    parallel = documents is not None and documents >= MIN_BLOCKS
    agreement = lift_agreement(evidence, tallies, parallel=parallel, seed=seed)
    table = heads_by_language(evidence, tallies, parallel=parallel, seed=seed)
    table = table.join(agreement, on="id").reset_index()
    order = ["tagged", "lift", *HEAD, "relation"]
    table = table.sort_values(order, ascending=[False, False, True, True, True])
    table = table.drop(columns="id").reset_index(drop=True)
    rows = _shown_rows(table)
    columns = ["label", "tagged", "decidable", "by_chance", "lift", "ci_low", "ci_high", "holds_in"]
    model = next(iter(runs.values())).name
    texts = "texts differ"
    if documents is not None:
        texts = f"the same {documents} documents in each"
    notes = []
    for language, error in (failed or {}).items():
        notes.append(f"{language} failed: {error}")
    return StudyResult(
        title=f"{model} in {len(runs)} languages ({', '.join(runs)}; {texts}): tags by head",
        table=table,
        terminal_table=rows[[*HEAD, *columns]],
        notes=notes,
        draw=partial(STUDY.draw, table=lifts_by_language(rows, evidence)),
    )


def _shown_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The first tags of a sorted table, or its first rows if no head has a tag."""
    tags = table[table["tagged"] > 0]
    if not len(tags):
        return table.assign(label=table["relation"]).head(SHOWN_ROWS)
    has_general_label = tags["general"] != ""
    labels = tags["general"].where(has_general_label, tags["relation"])
    # of tags with one general label the first
    tags = tags.assign(label=labels).drop_duplicates([*HEAD, "type", "label"])
    return tags.head(SHOWN_ROWS)


def shared_documents(
    treebanks: Mapping[str, Sequence[Path]],
    tokenizer: TextTokenizer,
    settings: Settings,
    longest: int,
) -> int | None:
    """Number of documents to read in every language; None if the treebanks are not parallel.

    Documents of parallel treebanks have the same names in the same order, as in Parallel UD.
    Languages need different numbers of tokens for the same content, so that a number of tokens
    would end them at different sentences. `longest` is the model's longest window.
    """
    names: list[list[str]] = []
    for files in treebanks.values():
        text = TextWindows(
            files,
            tokenizer,
            max_tokens=settings.max_tokens,
            max_documents=settings.documents,
            max_length=min(settings.max_length, longest),
            seed=settings.seed,
        )
        name_of_document = {window.document: window.name.rpartition("#")[0] for window in text}
        document_names = list(name_of_document.values())
        if text.tokens >= settings.max_tokens:
            # the last document may continue after the last token
            document_names = document_names[:-1]
        names.append(document_names)
    count = min(len(document_names) for document_names in names)
    first = names[0][:count]
    is_parallel = all(document_names[:count] == first for document_names in names)
    return count if count and is_parallel else None


def evidence_of(runs: Mapping[str, Result]) -> pd.DataFrame:
    """The evidence of all runs with its `language`, and whether the text decides: `decidable`.

    A text decides a relation if it has enough queries, enough queries that the best baseline gets
    wrong, and enough documents for an interval.
    """
    tables = []
    for language, run in runs.items():
        table = with_thresholds(run.evidence, run.thresholds)
        decidable = is_decidable(table).groupby(table["id"]).transform("any")
        tables.append(table.assign(language=language, decidable=decidable))
    return pd.concat(tables, ignore_index=True)


def heads_by_language(
    evidence: pd.DataFrame, tallies: Mapping[str, Tally], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """Counts of languages, and the mean lift, of each head and relation that a text decides.

    If `parallel`, the blocks of the tallies hold the same documents in every language.
    """
    decided = evidence[evidence["decidable"]]
    decided = decided.assign(
        tagged=decided["tagged"].astype(bool),
        closed=~decided["verdict"].isin(OPEN),
    )
    tags = decided[decided["tagged"]]
    groups = decided.groupby(ID, sort=False)
    table = groups[["type", "relation"]].first()
    table["general"] = _general_labels(tags).reindex(table.index, fill_value="")
    table["tagged"] = groups["tagged"].sum()
    table = table.join(tags_by_chance(decided))
    table["decidable"] = groups["closed"].sum()
    is_unidentifiable = (evidence["verdict"] == UNIDENTIFIABLE).to_numpy(bool)
    rows_of_list = {
        "holds_in": tags,
        "not_in": decided[decided["closed"] & ~decided["tagged"]],
        "inconclusive_in": decided[decided["verdict"] == INCONCLUSIVE],
        "undecided_in": evidence[~evidence["decidable"] | is_unidentifiable],
    }
    for name, rows in rows_of_list.items():
        codes = rows.groupby(ID)["language"].agg(";".join)
        table[name] = codes.reindex(table.index, fill_value="")
    table["lift"] = groups["lift"].mean()
    return table.join(lift_bounds(decided, tallies, parallel=parallel, seed=seed))


def _general_labels(tags: pd.DataFrame) -> pd.Series:
    """The most frequent general label of each head's tag over languages; empty without one."""
    names = shown_relations(tags)
    is_general = names != tags["relation"]
    labels = tags.assign(label=names.where(is_general, ""))
    # of equally frequent labels the general one, which claims less
    return labels.groupby(ID)["label"].agg(lambda column: column.mode().iloc[-1])


def lifts_by_language(rows: pd.DataFrame, evidence: pd.DataFrame) -> pd.DataFrame:
    """Lift and tag of each row in each language; no lift if the text does not decide."""
    keys = [*HEAD, "type", "relation"]
    decided = evidence["decidable"] & (evidence["verdict"] != UNIDENTIFIABLE)
    cells = evidence.loc[decided, [*keys, "language", "lift", "tagged"]]
    languages = evidence[["language"]].drop_duplicates()
    every_cell = rows[[*keys, "label"]].merge(languages, how="cross")
    table = every_cell.merge(cells, how="left", on=[*keys, "language"])
    tags = []
    for row in table.itertuples():
        tags.append(f"{head_name(row.layer, row.head)} {row.label}")
    in_order = list(dict.fromkeys(tags))
    return table.assign(tag=pd.Categorical(tags, in_order))
