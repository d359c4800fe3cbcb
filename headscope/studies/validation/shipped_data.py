"""Data that ship with headscope: a line for each file, and the checks that it must pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.corpus.aligned import aligned_files, read_translations
from headscope.corpus.census import Census, census
from headscope.corpus.controlled.sentences import controlled_corpus
from headscope.corpus.controlled.tasks import read_tasks
from headscope.corpus.read import file_sha256, read_corpus
from headscope.corpus.shipped import data_folder
from headscope.corpus.structure import MARKS, rule_kind
from headscope.corpus.structure.built import structure_corpus
from headscope.corpus.word_pairs import read_pairs
from headscope.errors import HeadscopeError
from headscope.relations.relation import MIN_QUERIES
from headscope.runs.atlas import SUFFIX, atlas_names
from headscope.runs.store import load
from headscope.statistics.rule_changes import changes_in_words, rule_changes
from headscope.studies.validation.published_scores import SHIPPED, SOURCES, shipped_scores
from headscope.views.tables import plain_table

KEY_RELATIONS = (
    "nsubj:head>dep",
    "nsubj:pass:head>dep",
    "obj:dep>head",
    "det:head>dep",
    "amod:head>dep",
    "nmod:poss:head>dep",
    "aux:head>dep",
    "case:head>dep",
    "conj:dep>head",
    "acl:relcl:dep>head",
)
"""Relations that the controlled corpus is made for."""
LINKED = "english-german.align"
FREE = r"CC-BY-(SA-)?[234]\.\d|CC0-1\.0|public domain"
"""Licences that let anyone pass a text on, changed and for money too."""
BEST_RULE = 0.6
"""What a fixed distance, or the nearest noun, may get right of them."""
BEST_ALIKE = 0.7
"""What the nearest mark of the right form may get right in built Markdown."""


@dataclass(frozen=True)
class FileCheck:
    """One thing asked of a file, with what was found."""

    requirement: str
    result: str
    holds: bool
    file: str = ""
    """Its name, once all checks are put together."""


@dataclass(frozen=True)
class Item:
    """A file that ships."""

    file: str
    what: str
    check: Callable[[Path], Iterator[FileCheck]]
    table: str = ""
    """Of a folder, the file in it that states the checksums of the others."""

    @property
    def path(self) -> Path:
        return data_folder() / self.file

    @property
    def stated(self) -> Path:
        """The file whose checksum stands in `data/README.md`."""
        return self.path / self.table

    @property
    def size(self) -> int:
        """Bytes, of a folder those of all its files; 0 if it is not there."""
        files = self.path.rglob("*") if self.table else [self.path]
        return sum(path.stat().st_size for path in files if path.is_file())


def _gum(path: Path) -> Iterator[FileCheck]:
    table = pd.read_csv(path / "documents.csv")
    free, same = table["licence"].str.fullmatch(FREE), 0
    for listed in table.itertuples():
        file = path / str(listed.genre) / f"{listed.document}.conllu.xz"
        same += file.is_file() and file_sha256(file) == listed.sha256
    read = read_corpus(path)
    yield _at_least("documents", len(read), len(table))
    yield _at_least("… with the sha256 of documents.csv", same, len(read))
    yield _at_least("… that anyone may pass on", int(free.sum()), len(read))
    yield _at_least("genres", table["genre"].nunique(), 9)
    yield _at_least("sentences", sum(d.sentences for d in read), int(table["sentences"].sum()))
    yield _at_least("words", sum(len(d.words) for d in read), int(table["words"].sum()))
    yield _at_least("mentions", sum(len(d.mentions) for d in read), 35_000)


def _gold(path: Path) -> Iterator[FileCheck]:
    c = census(path)
    common = sum(n >= MIN_QUERIES for name, n in c.links.items() if not name.startswith("punct"))
    yield from _counts(c, sentences=500, documents=70)
    yield _at_least("pronouns with an earlier noun", c.pronouns, 350)
    contested, wrong = 100 * c.contested // c.pronouns, 100 * c.nearest_wrong // c.pronouns
    yield _at_least("… contested by an entity that agrees, %", contested, 33)
    yield _at_least("… whose nearest earlier noun is wrong, %", wrong, 40)
    yield _at_least(f"relations with {MIN_QUERIES} queries", common, 16)


def _controlled(path: Path) -> Iterator[FileCheck]:
    c = census(path)
    yield from _counts(c, sentences=1500, documents=1)
    for relation in KEY_RELATIONS:
        offset, nearest = c.best_offset(relation), c.nearest_noun[relation] / c.links[relation]
        shares = f"{offset:.2f}, nearest noun {nearest:.2f}"
        requirement = f"best fixed distance on {relation} at most {BEST_RULE}"
        yield FileCheck(requirement, shares, max(offset, nearest) <= BEST_RULE)
    yield _generated(path.read_text(encoding="utf-8") == controlled_corpus())


def _aligned(path: Path) -> Iterator[FileCheck]:
    pairs = [pair for files in aligned_files(path) for pair in read_translations(files)]
    linked = same = 0
    for pair in pairs:
        source, target = len(pair.source.words), len(pair.target.words)
        position = (2 * pair.links[:, 1] + 1) * source // (2 * target)
        linked += len(position)
        same += int((position == pair.links[:, 0]).sum())
    yield _at_least("pairs of sentences", len(pairs), 400)
    yield _at_least("documents", 1 + max(pair.document for pair in pairs), 40)
    yield _at_least("links between words", linked, 3000)
    yield _at_most("links on the diagonal at most", same / linked, BEST_RULE)


def _structure(path: Path) -> Iterator[FileCheck]:
    queries: Counter[str] = Counter()
    baseline_right: Counter[str] = Counter()
    for document in read_corpus(path):
        right = {(arrow.kind, arrow.query): arrow.right for arrow in document.arrows}
        for (kind, query), targets in right.items():
            if kind in MARKS:
                queries[kind] += 1
                baseline_right[kind] += right[rule_kind(kind), query][-1] in targets
    for kind in MARKS:
        yield _at_least(f"queries of {kind}", queries[kind], 300)
        least = f"what is nearest and alike is right at {kind}, at most"
        yield _at_most(least, baseline_right[kind] / queries[kind], BEST_ALIKE)
    files = ((path / name, text) for name, text in structure_corpus())
    yield _generated(all(file.read_text(encoding="utf-8") == text for file, text in files))


def _pairs(path: Path) -> Iterator[FileCheck]:
    pairs = read_pairs(path).pairs
    counts = pd.Series([pair.relation for pair in pairs]).value_counts()
    yield _at_least("pairs", len(pairs), 1000)
    distinct = len({frozenset((pair.first, pair.second)) for pair in pairs})
    yield _at_least("different pairs", distinct, len(pairs))
    for name, n in counts.items():
        yield _at_least(f"pairs of {name}", int(n), 100)


def _known(path: Path) -> Iterator[FileCheck]:
    table = pd.read_csv(path)
    yield _at_least("rows", len(table), 1)
    yield _at_least("rows with a source", int(table["source"].count()), len(table))


def _published(path: Path) -> Iterator[FileCheck]:
    sizes = {"gpt2-small": 144, "distilgpt2": 72}
    for (model, metric), n in pd.read_csv(path).groupby(["model", "metric"]).size().items():
        yield _at_least(f"heads of {model}, {metric}", int(n), sizes[str(model)])


def _published_models(path: Path) -> Iterator[FileCheck]:
    """All heads of each score but of lists, a source for each, and 2 MB at most."""
    table, sources = shipped_scores(), pd.read_csv(path.with_name(SOURCES))
    yield FileCheck(
        "2 MB at most", f"{path.stat().st_size / 1e6:.1f} MB", path.stat().st_size < 2e6
    )
    yield _at_least("models", table["model"].nunique(), 60)
    yield _at_least("scores", len(table), 205_800)
    keys = ["model", "revision", "metric"]
    stated = set(map(tuple, sources.dropna()[keys].to_numpy()))
    unstated = set(map(tuple, table[keys].drop_duplicates().to_numpy())) - stated
    yield FileCheck("scores without a source", str(len(unstated)), not unstated)


def _patterns(path: Path) -> Iterator[FileCheck]:
    """GPT-2 small's previous-token head (Vig & Belinkov 2019, 5.3.2) is where it is known to be."""
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            if not name.endswith("_tokens"):
                mass = float(arrays[name][4, 11].astype(float).diagonal(-1).mean())
                yield FileCheck(f"L4H11 of {name} at the token before", f"{mass:.2f}", mass > 0.995)


def _tasks(path: Path) -> Iterator[FileCheck]:
    for name, pairs in read_tasks(path).items():
        yield _at_least(f"pairs of {name}", len(pairs), 24)


def _mini(path: Path) -> Iterator[FileCheck]:
    megabytes = path.stat().st_size / 1e6
    yield FileCheck("at most 16 MB", f"{megabytes:.1f} MB", megabytes <= 16)


def _atlases(path: Path) -> Iterator[FileCheck]:
    """Every atlas is whole, judged by the rules that are installed, and all of them are small."""
    table = pd.read_csv(path / "atlases.csv", keep_default_na=False)
    size = sum(file.stat().st_size for file in path.glob(f"*{SUFFIX}"))
    yield FileCheck("6 MB at most", f"{size / 1e6:.1f} MB", size <= 6e6)
    yield FileCheck("names that load", ", ".join(atlas_names()), len(atlas_names()) == len(table))
    for row in table.itertuples():
        file = path / str(row.file)
        same = file.is_file() and file_sha256(file) == row.sha256
        yield FileCheck(f"sha256 of {row.file} stands in atlases.csv", str(same), same)
        run = load(file)
        yield _at_least(f"heads of {row.model}", len(run.heads), int(row.heads))
        changes = rule_changes(run)
        words = changes_in_words(changes) if changes else "yes"
        yield FileCheck(f"{row.model} is judged by the installed rules", words, not changes)


ITEMS = (
    Item("gum", "natural English, nine genres, with syntax and coreference", _gum, "documents.csv"),
    Item("corpora/gold.conllu", "English written for headscope with syntax and coreference", _gold),
    Item("corpora/controlled.conllu", "built English with known trees and references", _controlled),
    Item("aligned", "built English with its German, word by word", _aligned, LINKED),
    Item("structure", "built Markdown: brackets, quotes, lists", _structure, "documents.csv"),
    Item("word_pairs.csv", "related words: synonyms, antonyms, kinds, categories, parts", _pairs),
    Item("task_words.csv", "tasks for few-shot prompts: questions with their answers", _tasks),
    Item("known_heads.csv", "heads that the literature describes, with sources", _known),
    Item("published_scores.csv", "published scores of every head of two models", _published),
    Item(SHIPPED, "published scores of every head of 60 models", _published_models),
    Item("gpt2_small_patterns/patterns.npz", "GPT-2 small's attention on two texts", _patterns),
    Item("gpt2_small_patterns/explainer.npz", "GPT-2 small's attention on five prompts", _patterns),
    Item("mini/model.safetensors", "mini, a small GPT-2-layout model trained for headscope", _mini),
    Item("atlas", "results for mini, minilm and smollm2: atlas:NAME", _atlases, "atlases.csv"),
)


def check_all() -> list[FileCheck]:
    """Every check of every file; the checksum is that which `data/README.md` states."""
    return [replace(check, file=item.path.name) for item in ITEMS for check in _checks(item)]


def _checks(item: Item) -> Iterator[FileCheck]:
    if not item.stated.is_file():
        yield FileCheck("is there", "absent", False)
        return
    readme = (data_folder() / "README.md").read_text(encoding="utf-8")
    sha256 = file_sha256(item.stated)
    yield FileCheck("sha256 stands in README.md", f"{sha256[:12]}…", sha256 in readme)
    try:
        yield from list(item.check(item.path))
    except (HeadscopeError, ValueError, KeyError, ZeroDivisionError) as error:
        yield FileCheck("can be counted", f"{type(error).__name__}: {error}", False)


def stock_table() -> RenderableType:
    """The files that ship, what they are, and the folder that they lie in."""
    table = plain_table("file", "what it is", "size")
    for item in ITEMS:
        size = f"{item.size / 1e3:,.0f} kB" if item.stated.is_file() else "absent"
        table.add_row(item.file, item.what, size)
    return Group(Text(f"in {data_folder()}"), table)


def check_table(checks: Sequence[FileCheck]) -> Table:
    """A row per check: what was asked of the file, and what was found."""
    table = plain_table("file", "asked", "found", "")
    for check in checks:
        table.add_row(check.file, check.requirement, check.result, "yes" if check.holds else "NO")
    return table


def _counts(c: Census, *, sentences: int, documents: int) -> Iterator[FileCheck]:
    yield _at_least("documents", c.documents, documents)
    yield _at_least("sentences", c.sentences, sentences)
    yield _at_least("words", c.words, 1)
    yield _at_least("mentions", c.mentions, 1)


def _at_least(what: str, count: int, least: int) -> FileCheck:
    return FileCheck(f"{what}, at least {least:,}", f"{count:,}", count >= least)


def _at_most(what: str, share: float, limit: float) -> FileCheck:
    return FileCheck(f"{what} {limit}", f"{share:.2f}", share <= limit)


def _generated(same: bool) -> FileCheck:
    return FileCheck("is what the generator writes", str(same), same)
