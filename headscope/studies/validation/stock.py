"""What ships with headscope: a line for each file, and the checks that it must pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.corpus.aligned import aligned_files, read_translations
from headscope.corpus.census import Census, census
from headscope.corpus.controlled.sentences import controlled_corpus
from headscope.corpus.read import file_sha256, read_corpus
from headscope.corpus.shipped import data_folder
from headscope.corpus.structure.annotate import MARKS, rule_kind
from headscope.corpus.structure.built import structure_corpus
from headscope.corpus.word_pairs import read_pairs
from headscope.errors import HeadscopeError
from headscope.relations.relation import MIN_QUERIES
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
class Check:
    """One thing asked of a file, with what was found."""

    file: str
    asked: str
    found: str
    holds: bool


@dataclass(frozen=True)
class Item:
    """A file that ships."""

    file: str
    what: str
    check: Callable[[Path], list[Check]]
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


def _gum(path: Path) -> list[Check]:
    table = pd.read_csv(path / "documents.csv")
    free, same = table["licence"].str.fullmatch(FREE), 0
    for listed in table.itertuples():
        file = path / str(listed.genre) / f"{listed.document}.conllu.xz"
        same += file.is_file() and file_sha256(file) == listed.sha256
    read = read_corpus(path)
    row = partial(_row, "gum")
    return [
        row("documents", len(read), len(table)),
        row("… with the sha256 of documents.csv", same, len(read)),
        row("… that anyone may pass on", int(free.sum()), len(read)),
        row("genres", table["genre"].nunique(), 9),
        row("sentences", sum(d.sentences for d in read), int(table["sentences"].sum())),
        row("words", sum(len(d.words) for d in read), int(table["words"].sum())),
        row("mentions", sum(len(d.mentions) for d in read), 35_000),
    ]


def _gold(path: Path) -> list[Check]:
    c = census(path)
    common = sum(n >= MIN_QUERIES for name, n in c.links.items() if not name.startswith("punct"))
    row = partial(_row, "gold.conllu")
    return [
        *_counts("gold.conllu", c, sentences=500, documents=70),
        row("pronouns with an earlier noun", c.pronouns, 350),
        row("… contested by an entity that agrees, %", 100 * c.contested // c.pronouns, 33),
        row("… whose nearest earlier noun is wrong, %", 100 * c.nearest_wrong // c.pronouns, 40),
        row(f"relations with {MIN_QUERIES} queries", common, 16),
    ]


def _controlled(path: Path) -> list[Check]:
    c = census(path)
    name = "controlled.conllu"
    checks = _counts(name, c, sentences=1500, documents=1)
    for relation in KEY_RELATIONS:
        offset, nearest = c.best_offset(relation), c.nearest_noun[relation] / c.links[relation]
        found = f"{offset:.2f}, nearest noun {nearest:.2f}"
        asked = f"best fixed distance on {relation} at most {BEST_RULE}"
        checks.append(Check(name, asked, found, max(offset, nearest) <= BEST_RULE))
    built = path.read_text(encoding="utf-8") == controlled_corpus()
    return [*checks, Check(name, "is what the generator writes", str(built), built)]


def _aligned(path: Path) -> list[Check]:
    pairs = [pair for files in aligned_files(path) for pair in read_translations(files)]
    linked = same = 0
    for pair in pairs:
        source, target = len(pair.source.words), len(pair.target.words)
        place = (2 * pair.links[:, 1] + 1) * source // (2 * target)
        linked += len(place)
        same += int((place == pair.links[:, 0]).sum())
    share = same / linked
    asked = f"links on the diagonal at most {BEST_RULE}"
    return [
        _row("aligned", "pairs of sentences", len(pairs), 400),
        _row("aligned", "documents", 1 + max(pair.document for pair in pairs), 40),
        _row("aligned", "links between words", linked, 3000),
        Check("aligned", asked, f"{share:.2f}", share <= BEST_RULE),
    ]


def _structure(path: Path) -> list[Check]:
    asked: Counter[str] = Counter()
    alike: Counter[str] = Counter()
    for document in read_corpus(path):
        right = {(each.kind, each.query): each.right for each in document.arrows}
        for (kind, query), own in right.items():
            if kind in MARKS:
                asked[kind] += 1
                alike[kind] += right[rule_kind(kind), query][-1] in own
    checks = []
    for kind in MARKS:
        share = alike[kind] / asked[kind]
        least = f"what is nearest and alike is right at {kind}, at most {BEST_ALIKE}"
        checks += [
            _row("structure", f"queries of {kind}", asked[kind], 300),
            Check("structure", least, f"{share:.2f}", share <= BEST_ALIKE),
        ]
    same = all(
        (path / name).read_text(encoding="utf-8") == text for name, text in structure_corpus()
    )
    return [*checks, Check("structure", "is what the generator writes", str(same), same)]


def _pairs(path: Path) -> list[Check]:
    lexicon = read_pairs(path)
    counts = pd.Series([pair.relation for pair in lexicon.pairs]).value_counts()
    distinct = len({(frozenset((p.first, p.second))) for p in lexicon.pairs})
    return [
        _row("word_pairs.csv", "pairs", len(lexicon.pairs), 1000),
        _row("word_pairs.csv", "different pairs", distinct, len(lexicon.pairs)),
        *(_row("word_pairs.csv", f"pairs of {name}", int(n), 100) for name, n in counts.items()),
    ]


def _known(path: Path) -> list[Check]:
    table = pd.read_csv(path)
    row = partial(_row, "known_heads.csv")
    return [
        row("rows", len(table), 1),
        row("rows with a source", int(table["source"].count()), len(table)),
    ]


def _published(path: Path) -> list[Check]:
    table = pd.read_csv(path)
    whole = table.groupby(["model", "metric"]).size()
    sizes = {"gpt2-small": 144, "distilgpt2": 72}
    return [
        _row("published_scores.csv", f"heads of {model}, {metric}", int(n), sizes[str(model)])
        for (model, metric), n in whole.items()
    ]


def _patterns(path: Path) -> list[Check]:
    """GPT-2 small's previous-token head (Vig & Belinkov 2019, 5.3.2) is where it is known to be."""
    with np.load(path, allow_pickle=False) as arrays:
        texts = [name for name in arrays.files if not name.endswith("_tokens")]
        found = {name: arrays[name][4, 11].astype(float) for name in texts}
    previous = {name: float(head.diagonal(-1).mean()) for name, head in found.items()}
    return [
        Check(path.name, f"L4H11 of {name} at the token before", f"{mass:.2f}", mass > 0.995)
        for name, mass in previous.items()
    ]


def _mini(path: Path) -> list[Check]:
    megabytes = path.stat().st_size / 1e6
    return [Check("model.safetensors", "at most 16 MB", f"{megabytes:.1f} MB", megabytes <= 16)]


ITEMS = (
    Item("gum", "natural English, nine genres, with syntax and coreference", _gum, "documents.csv"),
    Item("corpora/gold.conllu", "English written for headscope with syntax and coreference", _gold),
    Item("corpora/controlled.conllu", "built English with known trees and references", _controlled),
    Item("aligned", "built English with its German, word by word", _aligned, LINKED),
    Item("structure", "built Markdown: brackets, quotes, lists", _structure, "documents.csv"),
    Item("word_pairs.csv", "related words: synonyms, antonyms, kinds, categories, parts", _pairs),
    Item("known_heads.csv", "heads that the literature describes, with sources", _known),
    Item("published_scores.csv", "published scores of every head of two models", _published),
    Item("gpt2_small_patterns/patterns.npz", "GPT-2 small's attention on two texts", _patterns),
    Item("mini/model.safetensors", "mini, a small GPT-2-layout model trained for headscope", _mini),
)


def check_all() -> list[Check]:
    """Every check of every file; the checksum is that which `data/README.md` states."""
    readme = (data_folder() / "README.md").read_text(encoding="utf-8")
    checks = []
    for item in ITEMS:
        name = item.path.name
        if not item.stated.is_file():
            checks.append(Check(name, "is there", "absent", False))
            continue
        sha256 = file_sha256(item.stated)
        known = sha256 in readme
        checks.append(Check(name, "sha256 stands in README.md", f"{sha256[:12]}…", known))
        try:
            checks += item.check(item.path)
        except (HeadscopeError, ValueError, KeyError, ZeroDivisionError) as error:
            checks.append(Check(name, "can be counted", f"{type(error).__name__}: {error}", False))
    return checks


def stock_table() -> RenderableType:
    """The files that ship, what they are, and the folder that they lie in."""
    table = plain_table("file", "what it is", "size")
    for item in ITEMS:
        size = f"{item.size / 1e3:,.0f} kB" if item.stated.is_file() else "absent"
        table.add_row(item.file, item.what, size)
    return Group(Text(f"in {data_folder()}"), table)


def check_table(checks: Sequence[Check]) -> Table:
    """What was asked of each file, and what was found."""
    table = plain_table("file", "asked", "found", "")
    for check in checks:
        table.add_row(check.file, check.asked, check.found, "yes" if check.holds else "NO")
    return table


def _counts(name: str, c: Census, *, sentences: int, documents: int) -> list[Check]:
    return [
        _row(name, "documents", c.documents, documents),
        _row(name, "sentences", c.sentences, sentences),
        _row(name, "words", c.words, 1),
        _row(name, "mentions", c.mentions, 1),
    ]


def _row(name: str, what: str, found: int, least: int) -> Check:
    return Check(name, f"{what}, at least {least:,}", f"{found:,}", found >= least)
