"""Languages: heads of one model with the same relation in treebanks of several languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field, PlainValidator
from scipy.stats import rankdata

from headscope.corpus.shipped import listed
from headscope.corpus.treebank_languages import by_language
from headscope.errors import HeadscopeError, RunError
from headscope.heads import head_name
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.models.last_model import LastModel
from headscope.options import Names, OnMessage, PathName, Paths, check_model
from headscope.progress import Progress, progress_bar
from headscope.relations import all_stimuli, check_types
from headscope.relations.relation import MIN_QUERIES
from headscope.resolve import load, the_model
from headscope.runs.write import check_writable, write_file
from headscope.settings import Settings, settings_of
from headscope.statistics.general_labels import shown_relations
from headscope.statistics.ratio import LEVEL, resample
from headscope.statistics.result import Result
from headscope.statistics.tags import (
    INCONCLUSIVE,
    OPEN,
    UNIDENTIFIABLE,
    is_decidable,
)
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.stimulus import TextTokenizer
from headscope.studies.study import Command, Study, study, table_columns
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
    # treebanks by the language that their files state
    treebanks = by_language(listed(corpus), languages or ())
    if len(treebanks) < 2:
        raise HeadscopeError(f"{len(treebanks)} languages; name treebanks of at least two")
    if settings.get("types") is None:
        settings["types"] = TYPES
    # intervals come from resampled documents
    settings["challenge"] = False
    settings["keep_sums"] = True
    run_settings = settings_of(None, settings)
    # a type with a stimulus in English alone is no type of other languages
    stimuli = all_stimuli()
    for name, head_type in check_types(run_settings.types).items():
        for relation in head_type.relations:
            for stimulus in relation.stimuli:
                if not stimuli[stimulus].any_language:
                    raise HeadscopeError(
                        f"{name} needs English stimuli, which other languages do not have"
                    )
    # the sweep classifies the model once in each language
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
    # complete runs, and errors of the others, by language
    is_complete = cells["status"] == COMPLETE
    errors = cells.loc[~is_complete, "error"]
    failed = {str(language): str(error) for language, error in errors.items()}
    if not is_complete.any():
        raise RunError(f"no language could be read: {'; '.join(failed.values())}")
    runs: dict[str, Result] = {}
    for language, name in cells.loc[is_complete, "folder"].items():
        runs[str(language)] = load(folder / name, with_tally=True)
    shared = documents if settings["all"] else None
    result = compared(runs, documents=shared, failed=failed, seed=run_settings.seed)
    write_file(folder / TABLE, result.csv(), overwrite=True)
    return result


def _documents(
    model: Any, treebanks: Mapping[str, Sequence[Path]], settings: Settings
) -> int | None:
    name, revision = where(model, settings.revision)
    loading = settings.model_copy(update={"revision": revision}).loading()
    loaded = LastModel().open(name, **loading)
    return shared_documents(treebanks, loaded.tokenizer, settings, loaded.longest_window)


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
    # evidence of all languages, of which some decide a relation
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
    # the terminal shows the first tags
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
    # names of the documents in each language, as far as they are read
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
    # parallel if all have the same documents in the same order
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
        table = run.evidence_with_thresholds
        decidable = is_decidable(table).groupby(table["id"]).transform("any")
        tables.append(table.assign(language=language, decidable=decidable))
    return pd.concat(tables, ignore_index=True)


def heads_by_language(
    evidence: pd.DataFrame, tallies: Mapping[str, Tally], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """Counts of languages, and the mean lift, of each head and relation that a text decides.

    If `parallel`, the blocks of the tallies hold the same documents in every language.
    """
    # rows that the text can decide, and of these the tags
    decided = evidence[evidence["decidable"]]
    decided = decided.assign(
        tagged=decided["tagged"].astype(bool),
        closed=~decided["verdict"].isin(OPEN),
    )
    tags = decided[decided["tagged"]]
    groups = decided.groupby(ID, sort=False)
    table = groups[["type", "relation"]].first()
    # of equally frequent labels the general one, which claims less
    names = shown_relations(tags)
    is_general = names != tags["relation"]
    labels = tags.assign(label=names.where(is_general, ""))
    table["general"] = (
        labels.groupby(ID)["label"]
        .agg(lambda column: column.mode().iloc[-1])
        .reindex(table.index, fill_value="")
    )
    # counts of languages, beside those that chance gives
    table["tagged"] = groups["tagged"].sum()
    table = table.join(tags_by_chance(decided))
    table["decidable"] = groups["closed"].sum()
    is_unidentifiable = (evidence["verdict"] == UNIDENTIFIABLE).to_numpy(bool)
    # the languages themselves, by what was found in them
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


HEAD, ID = ["layer", "head"], ["layer", "head", "id"]
RESAMPLES = 200
_NORMAL_95 = 1.96
_LARGEST = 1 - 1e-9
Lifts = Float[ndarray, "*resample language head"]


def tags_by_chance(decided: pd.DataFrame) -> pd.DataFrame:
    """The number of languages in which a head of each layer would have a tag by chance.

    By chance, each language's heads are shuffled within their layers. `by_chance` is the expected
    number, and `p_value` the probability of at least as many as observed (Poisson's binomial).
    """
    tables = []
    for relation, rows in decided.groupby("id", sort=False):
        # by chance a head has a tag in each language as often as the heads of its layer have
        tags = rows.pivot(index=HEAD, columns="language", values="tagged").eq(True)
        shares = tags.groupby("layer").transform("mean").to_numpy(float)
        counts = tags.sum(axis=1).to_numpy(int)
        p_values = [at_least(int(count), row) for count, row in zip(counts, shares, strict=True)]
        table = pd.DataFrame(index=tags.index)
        table["by_chance"] = shares.sum(1)
        table["p_value"] = p_values
        table["id"] = relation
        tables.append(table.set_index("id", append=True))
    return pd.concat(tables)


def at_least(count: int, chances: Float[ndarray, " language"]) -> float:
    """Probability that at least `count` of some independent events happen.

    >>> at_least(2, np.array([0.5, 0.5]))
    0.25
    >>> round(at_least(1, np.array([0.5, 0.2, 0.0])), 3)
    0.6
    """
    exactly = np.ones(1)
    for chance in chances:
        exactly = np.convolve(exactly, [1 - chance, chance])
    return float(min(1.0, exactly[count:].sum()))


def lift_bounds(
    decided: pd.DataFrame, tallies: Mapping[str, Tally], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """The 95 % interval of each head's mean lift over the languages that decide a relation."""
    ends = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    tables = []
    # the languages of a relation are resampled together if they have the same documents
    for relation, names in _languages_by_relation(decided).items():
        counted = [tallies[name] for name in names]
        lifts = resampled_lifts(counted, relation, parallel=parallel, seed=seed)
        means = lifts.mean(1)
        low, high = np.nanquantile(means, ends, axis=0)
        # runs of one model have the same heads
        first = counted[0]
        columns: dict[str, Any] = {
            "layer": np.repeat(first.numbers, first.heads),
            "head": np.tile(np.arange(first.heads), first.layers),
            "id": relation,
            "ci_low": low,
            "ci_high": high,
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables).set_index(ID)


def _languages_by_relation(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Languages of the rows of each relation, in the order of the rows."""
    languages = rows.groupby("id", sort=False)["language"].unique()
    return {str(relation): list(names) for relation, names in languages.items()}


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of each block of a language's text, for one relation."""

    excess: Float[ndarray, "block head"]
    """Mass on targets minus mass on controls."""
    queries: Float[ndarray, " block"]

    def lifts(self) -> Float[ndarray, " head"]:
        """Lift of each head over all blocks."""
        return np.asarray(self.excess.sum(0) / self.queries.sum())


def _sums(tally: Tally, relation: str) -> _Sums:
    index = tally.relations.index(relation)
    excess = tally.target[:, index] - tally.control[:, index]
    return _Sums(
        excess=excess.reshape(len(excess), -1),
        queries=tally.queries[:, index],
    )


def resampled_lifts(
    tallies: Sequence[Tally], relation: str, *, parallel: bool, seed: int
) -> Float[ndarray, "resample language head"]:
    """Lifts in resamples of the documents, the same documents in every language if parallel."""
    sums = [_sums(tally, relation) for tally in tallies]
    in_any = np.any([part.queries > 0 for part in sums], axis=0)
    lifts = []
    for number, part in enumerate(sums):
        # parallel texts are resampled together, so that a difference is of languages, not of texts
        blocks = in_any if parallel else part.queries > 0
        stream = 0 if parallel else number
        rng = np.random.default_rng([seed, stream])
        draws = resample(int(blocks.sum()), rng)
        excess = draws @ part.excess[blocks]
        queries = draws @ part.queries[blocks]
        with np.errstate(divide="ignore", invalid="ignore"):
            lifts.append(excess / queries[:, None])
    return np.stack(lifts, axis=1)


def lift_agreement(
    evidence: pd.DataFrame, tallies: Mapping[str, Tally], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """Agreement of the heads' lifts between the languages that have 50 queries of a relation.

    The columns are those of the study from `correlation` on. The interval is that of Fisher's z
    with the standard error of resampled documents.
    """
    often = evidence[evidence["n"] >= MIN_QUERIES]
    rows = []
    for relation, names in _languages_by_relation(often).items():
        if len(names) < 2:
            continue
        # ranks of the heads in each language, which agree as far as their products are large
        counted = [tallies[name] for name in names]
        sums = [_sums(tally, relation) for tally in counted]
        ranks = unit_ranks(np.stack([part.lifts() for part in sums]))
        correlation = float(mean_product(ranks))
        # too few blocks have no interval
        error = float("nan")
        if all((part.queries > 0).sum() >= MIN_BLOCKS for part in sums):
            lifts = resampled_lifts(counted, relation, parallel=parallel, seed=seed)
            correlations = mean_product(unit_ranks(lifts[:RESAMPLES]))
            error = float(np.nanstd(_fisher_z(correlations)))
        # the interval is symmetric in Fisher's z
        centre = _fisher_z(correlation)
        ends = np.tanh([centre - _NORMAL_95 * error, centre + _NORMAL_95 * error])
        low, high = (float(end) for end in ends)
        # agreement of layers alone: each head's rank is replaced by the mean of its layer
        heads = counted[0].heads
        grid = ranks.reshape(len(ranks), counted[0].layers, heads)
        by_layer = np.asarray(grid.mean(-1).repeat(heads, axis=-1))
        rows.append(
            {
                "id": relation,
                "correlation": correlation,
                "correlation_low": low,
                "correlation_high": high,
                "correlation_by_chance": float(mean_product(by_layer)),
            }
        )
    columns = ["correlation", "correlation_low", "correlation_high", "correlation_by_chance"]
    return pd.DataFrame(rows, columns=["id", *columns]).set_index("id")


def _fisher_z(correlation: ndarray | float) -> ndarray:
    """Fisher's transformation of correlations, finite at −1 and 1."""
    return np.asarray(np.arctanh(np.clip(correlation, -_LARGEST, _LARGEST)))


def unit_ranks(lifts: Lifts) -> Lifts:
    """Ranks of the heads in each language, centred and of length 1; 0 if all are equal.

    The product of the ranks of two languages is Spearman's rank correlation.
    """
    ranks = rankdata(lifts, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    squares = (centred**2).sum(-1, keepdims=True)
    length = np.sqrt(squares)
    zeros = np.zeros_like(centred)
    return np.asarray(np.divide(centred, length, out=zeros, where=length > 0))


def mean_product(ranks: Lifts) -> Float[ndarray, "*resample"]:
    """Mean over pairs of languages of the product of their ranks.

    >>> lifts = np.array([[0.1, 0.2, 0.3], [1, 5, 9], [3, 2, 1]])
    >>> float(mean_product(unit_ranks(lifts)).round(2))
    -0.33
    """
    count = ranks.shape[-2]
    square_of_sum = (ranks.sum(-2) ** 2).sum(-1)
    sum_of_squares = (ranks**2).sum((-2, -1))
    pairs = square_of_sum - sum_of_squares
    return np.asarray(pairs / (count * (count - 1)))
