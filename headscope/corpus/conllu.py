"""CoNLL-U (Universal Dependencies) with CorefUD `Entity=` mentions and eRST `Discourse=` units.

Rows are checked: ten columns, and a tree over the words. Documents add what a model needs: the
surface text and character offsets (multi-word ranges, spaces, paragraphs) and document boundaries.
Empty nodes (`8.1`) are left out, and mentions shrink to their words.
Format: https://universaldependencies.org/format.html (comments), misc.html (MISC);
https://ufal.mff.cuni.cz/corefud (`global.Entity`); https://aclanthology.org/2025.cl-1.3
(eRST).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path

from headscope.corpus.document import Document, Word, own_label
from headscope.corpus.gold_links import Arrow
from headscope.corpus.mentions import EntityReader
from headscope.corpus.shipped import uncompressed
from headscope.errors import CorpusError

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_ID = re.compile(r"([0-9]{1,9})(?:([-.])([0-9]{1,9}))?")
_HEAD = re.compile(r"[0-9]{1,9}|_")
_DISCOURSE = re.compile(r"(?:^|;)(?P<name>[^:;]+):(?P<unit>\d+)(?:->(?P<target>\d+))?")
UNIT, CAUSAL, OTHER, AHEAD = "discourse-unit", "discourse-causal", "discourse-other", "-ahead"
"""Kinds of arrows from a head word of a discourse unit to the head word before it, and from a
satellite to an earlier nucleus; with `AHEAD` from a nucleus to an earlier satellite."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a sentence. `id` is a word's number, `(1, "-", 2)` or `(8, ".", 1)`."""

    line: int
    id: int | tuple[int, str, int]
    form: str
    lemma: str
    upos: str
    feats: str
    head: int
    """0 for a root or without annotation."""
    deprel: str
    surface: str
    """The form with the spaces that the text has inside it."""
    space_before: str
    space_after: str
    new_paragraph: bool
    """True if a paragraph starts here, within a sentence or not."""
    entity: str
    """The value of `Entity=`, empty without one."""
    discourse: str
    """The value of `Discourse=` at the first word of a discourse unit, empty elsewhere."""


def parse_rows(path: Path, lines: list[tuple[int, str]]) -> list[Row]:
    """The rows of a sentence, given with their line numbers.

    Raises:
        CorpusError: with file and line, for a row that is not CoNLL-U, and for rows that do not
            make a sentence: word ids count up from 1, ranges cover words that follow, no form is
            empty, and heads exist.
    """
    # each row alone, then the order of words and ranges
    rows = [_row(f"{path}:{number}", number, line) for number, line in lines]
    words = [row for row in rows if isinstance(row.id, int)]
    count = len(words)
    for expected, row in enumerate(words, start=1):
        if row.id != expected:
            raise CorpusError(f"{path}:{row.line}: word id {row.id}, but {expected} comes next")
        if row.head > count:
            raise CorpusError(
                f"{path}:{row.line}: head {row.head} is out of range; this sentence has words "
                f"1 to {count}, and 0 is the root"
            )
    # a range stands right before its first word, and ranges do not overlap
    covered, following = 0, 1
    for of_range in rows:
        if isinstance(of_range.id, int):
            following = of_range.id + 1
        elif of_range.id[1] == "-":
            first, _, last = of_range.id
            if first != following or first <= covered or last > count:
                raise CorpusError(
                    f"{path}:{of_range.line}: range {first}-{last} does not fit; it must start "
                    f"with the next word, {following}, overlap no other and end by word {count}"
                )
            covered = last
    return rows


def _row(location: str, number: int, line: str) -> Row:
    # the first fault of the columns is reported
    cells = line.strip(" ").split("\t")
    fault = _fault_of(cells)
    if fault:
        raise CorpusError(f"{location}: {fault}")
    name, form, lemma, upos, _, feats, head, deprel, _, attributes = cells
    # a word's number, or the two numbers of a range or an empty node
    _, first, mark, last, _ = _ID.split(name)
    misc: dict[str, str] = {}
    for part in attributes.split("|"):
        key, _, value = part.partition("=")
        value = value.strip(" ")  # other spaces may be the value of SpacesAfter
        misc[key.strip()] = "" if value == "_" else value
    after = "" if misc.get("SpaceAfter") == "No" else " "
    return Row(
        line=number,
        id=(int(first), mark, int(last)) if mark else int(first),
        form=form,
        lemma="" if lemma == "_" != form else lemma,
        upos=upos,
        feats=feats if feats != "_" else "",
        head=0 if head == "_" else int(head),
        deprel=deprel,
        surface=_spaces(location, "SpacesInToken", misc, form) or form,
        space_before=_spaces(location, "SpacesBefore", misc),
        space_after=_spaces(location, "SpacesAfter", misc) or after,
        new_paragraph=misc.get("NewPar") == "Yes",
        entity=misc.get("Entity", ""),
        discourse=misc.get("Discourse", ""),
    )


def _fault_of(cells: list[str]) -> str:
    """The fault of the cells of a row; empty for a sound one."""
    if len(cells) != len(COLUMNS):
        return f"{len(cells)} columns, but CoNLL-U has {len(COLUMNS)}, separated by tabs"
    name, form, head = cells[0], cells[1], cells[6]
    if _ID.fullmatch(name) is None:
        return f"not CoNLL-U: {name!r:.40} is not a valid ID"
    if _HEAD.fullmatch(head) is None:
        return f"not CoNLL-U: {head!r:.40} is not a valid head"
    if not form.strip(" "):  # a no-break or an ideographic space can be a word
        return f"the form of word {name} is empty"
    return ""


# https://ufal.mff.cuni.cz/udpipe/1/users-manual; the last is Stanza's
_ESCAPES = {
    r"\s": " ",
    r"\t": "\t",
    r"\r": "\r",
    r"\n": "\n",
    r"\p": "|",
    r"\\": "\\",
}


def _unescaped_character(escape: re.Match[str]) -> str:
    if len(escape[0]) > 2:  # such as \\u00A0 and \\u3000
        return chr(int(escape[0][2:], 16))
    return _ESCAPES.get(escape[0], escape[0])


def _spaces(location: str, key: str, misc: Mapping[str, str], form: str = "") -> str:
    """The value of an attribute: spaces, and for `SpacesInToken` the form among them."""
    text = re.sub(r"\\(?:u[0-9A-Fa-f]{4}|.)", _unescaped_character, misc.get(key, ""))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text and "".join(text.split()) != "".join(form.split()):
        raise CorpusError(
            f"{location}: cannot read {key}={misc[key]:.60}; expected spaces like \\s"
        )
    return text


def read_conllu(path: Path, text: str) -> Iterator[Document]:
    """The documents of one CoNLL-U file, in order.

    A document goes on where `newdoc` repeats its id. In a file without any `newdoc` the sentences
    of a document share their `sent_id` up to its last three digits, if all ids are equally long and
    their numbers start again in each document; else the file is one document. Comments above an
    empty line belong to the next sentence.

    Raises:
        CorpusError: with file and line, for anything that is not valid CoNLL-U.
    """
    stem = uncompressed(path).stem
    builder = _Builder(str(path), stem)
    document_of = _documents_by_sentence(text)
    comments, first_line = dict[str, str](), 1
    # comments are kept until their sentence comes
    for first_line, lines in _blocks(text):
        comments |= _comments(lines)
        if "global.Entity" in comments:
            builder.entity_format(comments.pop("global.Entity"))
        if comments.get("global.columns", "").split() not in ([], [*COLUMNS]):
            raise CorpusError(
                f"{path}:{first_line}: cannot read global.columns = "
                f"{comments['global.columns']:.100}; expected {' '.join(COLUMNS)}"
            )
        rows = [(first_line + i, line) for i, line in enumerate(lines) if not line.startswith("#")]
        if not rows:
            continue
        # a document begins where a comment says so, or the sentence's id changes
        name = comments.get("newdoc")
        if document_of:
            name = document_of.get(comments.get("sent_id", ""))
        if name is not None and (not name or name != builder.name):
            yield from builder.end_document()
            builder.name = name or stem
        builder.add_sentence(parse_rows(path, rows), comments)
        comments = {}
    yield from builder.end_document(f"{path}:{first_line}" if comments else "")
    if not builder.documents:
        raise CorpusError(f"{path}: no sentence in this file; expected CoNLL-U")


@dataclass
class _Builder:
    """Grows one document at a time out of sentences."""

    path: str
    name: str
    documents: int = 0
    entity_field: int = 0
    text: list[str] = field(default_factory=list)
    length: int = 0
    """Characters of the text so far."""
    space: str = ""
    """The space behind the last token."""
    sentences: int = 0
    words: list[Word] = field(default_factory=list)
    discourse: dict[int, str] = field(default_factory=dict)
    """The value of `Discourse=` at words that start a discourse unit."""
    entities: EntityReader = field(init=False)

    def __post_init__(self) -> None:
        self.entities = EntityReader(self.path)

    def entity_format(self, fields: str) -> None:
        names = [name.lower() for name in fields.split("-")]
        self.entity_field = next((i for i, n in enumerate(names) if n in ("eid", "grp")), 0)

    def add_sentence(self, rows: list[Row], comments: Mapping[str, str]) -> None:
        # words, numbered through the document
        self.entities.field_index = self.entity_field
        # heads are numbered within their sentence, and words through the document
        base = len(self.words)
        for row, start, end in self._surface(rows, "newpar" in comments):
            self.words.append(
                Word(
                    form=row.form,
                    start=start,
                    end=end,
                    sentence=self.sentences,
                    lemma=row.lemma,
                    upos=row.upos,
                    feats=row.feats,
                    head=base + row.head - 1 if row.head else -1,
                    deprel=row.deprel,
                )
            )
            if row.discourse:
                self.discourse[len(self.words) - 1] = row.discourse
        # a mention that opens or closes on an empty node has the words of the text inside it alone
        for row in rows:
            if isinstance(row.id, int):
                first = last = base + row.id - 1
            elif row.id[1] == ".":
                last = base + row.id[0] - 1
                first = last + 1
            else:
                continue
            self.entities.read(row.entity, first=first, last=last, line=row.line)
        self.entities.end_sentence()
        self.sentences += 1

    def end_document(self, skipped_comments: str = "") -> Iterator[Document]:
        # a mark of a document at the beginning of a file ends none
        if self.words:
            mentions = self.entities.finish(self.words)
            skipped = self.entities.discontinuous
            yield Document(
                self.name,
                "".join(self.text),
                tuple(self.words),
                mentions,
                skipped,
                source=self.path,
                arrows=tuple(_discourse_arrows(self.words, self.discourse)),
                skipped_comments=skipped_comments,
                zero_mentions=self.entities.zeros,
            )
            self.documents += 1
        # the next document starts from nothing
        self.text, self.length, self.space, self.sentences = [], 0, "", 0
        self.words, self.discourse, self.entities = [], {}, EntityReader(self.path)

    def _surface(self, rows: list[Row], paragraph: bool) -> Iterator[tuple[Row, int, int]]:
        """Write each token's characters to the text and give the words' spans."""
        range_start, range_end, last_in_range, spelled = 0, 0, 0, False
        forms = [row.form for row in rows if isinstance(row.id, int)]
        for row in rows:
            # a part of a range such as "don't", which was written as a whole
            if isinstance(row.id, int) and row.id <= last_in_range:
                if spelled:
                    end = range_start + len(row.form)
                    yield row, range_start, end
                    range_start = end
                else:
                    yield row, range_start, range_end
                continue
            if isinstance(row.id, tuple) and row.id[1] == ".":
                continue  # an empty node has no place in the text
            # spaces as the file states them, and a line break before a paragraph
            starts_paragraph = paragraph or row.new_paragraph
            self.space += row.space_before
            if self.text and starts_paragraph and "\n" not in self.space:
                self.space = "\n"
            self._write(self.space)
            start, paragraph = self.length, False
            self._write(row.surface)
            self.space = row.space_after
            if isinstance(row.id, int):
                yield row, start, self.length
            else:
                first, _, last_in_range = row.id
                range_start, range_end = start, self.length
                # the parts get their own characters only when they spell the whole token
                spelled = "".join(forms[first - 1 : last_in_range]) == row.surface

    def _write(self, piece: str) -> None:
        # a text that grows piece by piece would be copied whole for each of them
        self.text.append(piece)
        self.length += len(piece)


_NEWDOC = re.compile(r"^#+\s*newdoc\b", re.MULTILINE)
SENT_ID = re.compile(r"^#+\s*sent_id\s*=\s*(\S+)", re.MULTILINE)


_NUMBERED = re.compile(r"[0-9]{3,18}$")


def _documents_by_sentence(text: str) -> dict[str, str]:
    """The document of each `sent_id` in a file that marks none; empty if ids show none.

    The ids of a document share all but their last three digits, as in Parallel UD. Ids that count
    through the whole file show no documents: `s0999` and `s1000` are neighbours.
    """
    # ids show documents only if all have a number at the end, of the same width
    names = SENT_ID.findall(text)
    endings = [_NUMBERED.search(name) for name in names]
    numbers = [ending for ending in endings if ending]
    widths = {len(name) for name in names}
    has_other_ids = len(numbers) < len(names) or len(widths) != 1
    if has_other_ids or _NEWDOC.search(text):
        return {}
    # each document is one stretch, and numbers jump farther between documents than within them
    steps_within, steps_between, borders = list[int](), list[int](), 0
    for earlier, later in pairwise(numbers):
        step = abs(int(later[0]) - int(earlier[0]))
        if later.string[:-3] == earlier.string[:-3]:
            steps_within.append(step)
            continue
        borders += 1
        # ids of other letters name another document, wherever their numbers start
        if later.string[: later.start()] == earlier.string[: earlier.start()]:
            steps_between.append(step)
    document_of = {name: name[:-3] for name in names}
    if not steps_within or not borders or borders != len({*document_of.values()}) - 1:
        return {}
    is_farther = min(steps_between, default=max(steps_within) + 1) > max(steps_within)
    return document_of if is_farther else {}


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Sentences as `(number of the first line, lines)`."""
    first, lines = 1, list[str]()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            if not lines:
                first = number
            lines.append(line)
        elif lines:
            yield first, lines
            lines = []
    if lines:
        yield first, lines


def _comments(lines: list[str]) -> dict[str, str]:
    """The comments of a sentence by their keys; the id of a document is the value of `newdoc`.

    >>> _comments(["# newdoc id = d1", "# newpar", "# global.Entity = eid"])
    {'newdoc': 'd1', 'newpar': '', 'global.Entity': 'eid'}
    """
    comments: dict[str, str] = {}
    for line in lines:
        if line.startswith("#"):
            # `newdoc id = d1` counts as `newdoc`, whose value a plain `newdoc` does not erase
            key, _, value = line.lstrip("#").partition("=")
            key = re.sub(r"^(newdoc|newpar)\s.*", r"\1", key.strip())
            comments[key] = value.strip() or comments.get(key, "")
    return comments


def _discourse_arrows(words: list[Word], values: Mapping[int, str]) -> Iterator[Arrow]:
    """Arrows between the discourse units of a document, from the later word to the earlier one.

    A satellite stands at the connective that opens it, or else at its head word. Multinuclear
    relations (`_m`) have no satellite; parts of a divided unit (`same-unit_m`) are one unit.
    """
    # each unit begins at a word with a relation, and goes on to the next one
    relations = [list(_DISCOURSE.finditer(value)) for value in values.values()]
    units = _Units()
    ends = [*values, len(words)][1:]
    for links, first, end in zip(relations, values, ends, strict=True):
        for relation in links[:1]:
            units.add(relation, range(first, end))
    # the head of a unit is its first word, marks apart, whose governor lies outside
    heads = {}
    for unit, rows in units.words.items():
        governed = {*rows}
        outside = (row for row in rows if words[row].head not in governed)
        heads[unit] = next((row for row in outside if words[row].upos != "PUNCT"), rows[0])
    # units in the order of their heads, each pointing to the one before
    starts = sorted({words[head].start for head in heads.values()})
    for before, start in pairwise(starts):
        yield Arrow(UNIT, start, (before,), ())
    # relations point to the nucleus; those of several nuclei have no direction
    for relation in chain.from_iterable(relations):
        target_unit: str | None = relation["target"]
        if target_unit is None or relation["name"].endswith("_m"):
            continue
        unit = units.undivided(relation["unit"])
        nucleus = units.undivided(target_unit)
        if nucleus not in heads or unit == nucleus:
            continue
        kind = CAUSAL if relation["name"].startswith("causal-") else OTHER
        # a conjunction or adverb that opens the unit and belongs to its head stands for it
        unit_head = heads[unit]
        opening = next((row for row in units.words[unit] if words[row].upos != "PUNCT"), unit_head)
        is_connective = own_label(words[opening].deprel) in ("mark", "cc", "advmod")
        connective = opening if is_connective and words[opening].head == unit_head else unit_head
        source = words[connective].start
        target = words[heads[nucleus]].start
        if target < source:
            yield Arrow(kind, source, (target,), ())
        else:
            yield Arrow(kind + AHEAD, target, (source,), ())


@dataclass
class _Units:
    """The discourse units of a document, and the numbers of their words."""

    words: dict[str, list[int]] = field(default_factory=dict)
    _unit_of_part: dict[str, str] = field(default_factory=dict)
    """The unit that a part belongs to."""

    def undivided(self, unit: str) -> str:
        """The unit, or the one that it is a part of."""
        return self._unit_of_part.get(unit, unit)

    def add(self, relation: re.Match[str], words: Iterable[int]) -> None:
        """Add the words of a unit or of a part of one."""
        unit = relation["unit"]
        if relation["name"] == "same-unit_m":
            self._unit_of_part[unit] = self.undivided(relation["target"])
        self.words.setdefault(self.undivided(unit), []).extend(words)
