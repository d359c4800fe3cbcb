"""CoNLL-U (Universal Dependencies) with CorefUD `Entity=` mentions.

Tokens are parsed by the `conllu` library; this file adds what a model needs on top: the
surface text and character offsets (multi-word ranges, `SpaceAfter=No`, paragraphs), document
boundaries, and errors that name the file and the line. Empty nodes (`8.1`) are left out.
Format: https://universaldependencies.org/format.html, https://ufal.mff.cuni.cz/corefud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import conllu
from conllu.exceptions import ParseException
from conllu.models import Token

from headscope.corpus.document import Document, Word
from headscope.corpus.entities import EntityReader
from headscope.errors import CorpusError

_COLUMNS = 10


def read_conllu(path: Path, text: str) -> Iterator[Document]:
    """The documents of one CoNLL-U file, in order; a file without `newdoc` is one document.

    Raises:
        CorpusError: with file and line, for anything that is not valid CoNLL-U.
    """
    builder = _Builder(str(path), path.stem)
    for first_line, lines in _blocks(text):
        comments = dict(_comment(line) for line in lines if line.startswith("#"))
        if "global.Entity" in comments:
            builder.entity_format(comments["global.Entity"])
        if (name := comments.get("newdoc id", comments.get("newdoc"))) is not None:
            yield from builder.end_document()
            builder.name = name or path.stem
        builder.add_sentence(_parse(path, first_line, lines), "newpar" in comments)
    yield from builder.end_document()
    if not builder.documents:
        raise CorpusError(f"{path}: no sentence in this file; expected CoNLL-U")


@dataclass
class _Builder:
    """Grows one document at a time out of sentences."""

    place: str
    name: str
    documents: int = 0
    entity_field: int = 0
    text: str = ""
    glue: str = ""
    sentences: int = 0
    words: list[Word] = field(default_factory=list)
    entities: EntityReader | None = None

    def entity_format(self, fields: str) -> None:
        names = [name.lower() for name in fields.split("-")]
        self.entity_field = next((i for i, n in enumerate(names) if n in ("eid", "grp")), 0)

    def add_sentence(self, tokens: list[tuple[int, Token]], paragraph: bool) -> None:
        if self.entities is None:
            self.entities = EntityReader(self.place, self.entity_field)
        if self.text:
            self.text += "\n" if paragraph else self.glue
        base = len(self.words)
        for line, token, start, end in self._surface(tokens):
            head = token["head"]
            self.words.append(
                Word(
                    form=token["form"],
                    start=start,
                    end=end,
                    sentence=self.sentences,
                    lemma=token["lemma"] or "",
                    upos=token["upos"] or "",
                    feats=token["feats"] or "",
                    head=base + head - 1 if head else -1,
                    deprel=token["deprel"] or "",
                )
            )
            if "Entity" in (token["misc"] or {}):
                self.entities.read(token["misc"]["Entity"], len(self.words) - 1, line)
        self.entities.end_sentence()
        self.sentences += 1

    def end_document(self) -> Iterator[Document]:
        if self.words and self.entities is not None:
            mentions = self.entities.finish(self.words)
            skipped = self.entities.discontinuous
            yield Document(
                self.name, self.text, tuple(self.words), mentions, skipped, source=self.place
            )
            self.documents += 1
        self.text, self.glue, self.sentences, self.words, self.entities = "", "", 0, [], None

    def _surface(self, tokens: list[tuple[int, Token]]) -> Iterator[tuple[int, Token, int, int]]:
        """Write each token's characters to the text and give the words' spans."""
        space, range_start, range_end, last_in_range = "", 0, 0, 0
        for line, token in tokens:
            number = token["id"]
            after = "" if (token["misc"] or {}).get("SpaceAfter") == "No" else " "
            if isinstance(number, tuple):
                if number[1] == ".":
                    continue  # an empty node has no place in the text
                last_in_range = number[2]
                parts = [t["form"] for _, t in tokens if _within(t["id"], number)]
                range_start = len(self.text) + len(space)
                self.text += space + token["form"]
                range_end, space = len(self.text), after
                # the parts get their own characters only when they spell the whole token
                spelled = "".join(parts) == token["form"]
            elif number <= last_in_range:
                if spelled:
                    end = range_start + len(token["form"])
                    yield line, token, range_start, end
                    range_start = end
                else:
                    yield line, token, range_start, range_end
            else:
                start = len(self.text) + len(space)
                self.text += space + token["form"]
                yield line, token, start, len(self.text)
                space = after
        self.glue = space


def _within(number: object, span: tuple[int, str, int]) -> bool:
    return isinstance(number, int) and span[0] <= number <= span[2]


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


def _comment(line: str) -> tuple[str, str]:
    key, _, value = line.lstrip("#").partition("=")
    return key.strip(), value.strip()


# feats stay as written; enhanced dependencies and xpos are not read
_FIELD_PARSERS: dict[str, Callable[[list[str], int], object]] = {
    "feats": lambda columns, i: columns[i] if columns[i] != "_" else "",
    "deps": lambda columns, i: None,
    "xpos": lambda columns, i: None,
}


def _parse(path: Path, first_line: int, lines: list[str]) -> list[tuple[int, Token]]:
    """The sentence's tokens with their line numbers, checked."""
    rows = [(first_line + i, line) for i, line in enumerate(lines) if not line.startswith("#")]
    if not rows:
        raise CorpusError(f"{path}:{first_line}: comments without a sentence below them")
    for number, row in rows:
        if (columns := row.count("\t") + 1) != _COLUMNS:
            raise CorpusError(
                f"{path}:{number}: {columns} columns, but CoNLL-U has {_COLUMNS}, separated by tabs"
            )
    try:
        tokens = conllu.parse("\n".join(row for _, row in rows), field_parsers=_FIELD_PARSERS)[0]
    except ParseException:
        _blame(path, rows)
        raise
    numbered = [(number, token) for (number, _), token in zip(rows, tokens, strict=True)]
    _check_tree(path, numbered)
    return numbered


def _blame(path: Path, rows: list[tuple[int, str]]) -> None:
    """Find the row that the parser refuses, and name its line."""
    for number, row in rows:
        try:
            conllu.parse(row, field_parsers=_FIELD_PARSERS)
        except ParseException as error:
            raise CorpusError(f"{path}:{number}: not CoNLL-U: {error}") from error


def _check_tree(path: Path, tokens: list[tuple[int, Token]]) -> None:
    """Ids count up from 1, no form is empty, heads exist, and no word governs itself."""
    words = [(line, token) for line, token in tokens if isinstance(token["id"], int)]
    if not words:
        raise CorpusError(f"{path}:{tokens[0][0]}: a sentence without a word")
    for expected, (line, token) in enumerate(words, start=1):
        if token["id"] != expected:
            raise CorpusError(f"{path}:{line}: word id {token['id']}, but {expected} comes next")
        head = token["head"]
        if head is not None and not 0 <= head <= len(words):
            raise CorpusError(
                f"{path}:{line}: head {head} is out of range; this sentence has words "
                f"1 to {len(words)}, and 0 is the root"
            )
    for line, token in tokens:
        if not token["form"].strip():
            raise CorpusError(f"{path}:{line}: the form of word {token['id']} is empty")
    heads = [0, *(token["head"] or 0 for _, token in words)]
    for line, token in words:
        above, steps = heads[token["id"]], 0
        while above and steps <= len(words):
            above, steps = heads[above], steps + 1
        if above:
            raise CorpusError(
                f"{path}:{line}: a cycle: word {token['id']} ({token['form']}) governs itself; "
                "every word must lead to the root"
            )
