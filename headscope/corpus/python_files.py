"""Python files as documents: every word and mark is a word, and its grammar is the annotation.

Gold links go from places to what they point back to, by grammar alone: no guesses. Names are
resolved by Python's rules of scope. A name that is bound in several places points to the nearest of
them above it in the text, which need not be the one that has run last.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from headscope.corpus.document import Document, Word
from headscope.corpus.gold_links import Arrow, arrow
from headscope.errors import CorpusError, first_line

KINDS = ("definition", "bracket", "block")
OPENERS = {")": "(", "]": "[", "}": "{"}
_FAR = 64
"""Brackets and blocks before a query that are looked through for candidates."""
LONGEST = 200_000
"""Characters of a file: a longer one is a table that a program wrote, and is not read."""
_NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError)
"""Errors of the parser and tokenizer for text that is not Python, or too deeply nested."""
_WORD = re.compile(r"\w+|[^\w\s]")


def is_code(document: Document) -> bool:
    """True for a document of code, with names and blocks that point somewhere."""
    return any(arrow.kind in KINDS for arrow in document.arrows)


def read_python(path: Path, text: str) -> Document:
    """A file as a document: its words, a line of code as a sentence, and its arrows.

    Raises:
        CorpusError: with the line, where it does not parse; or it is too long.
    """
    if len(text) > LONGEST:
        raise CorpusError(f"{path}: {len(text):,} characters of code; {LONGEST:,} are read at most")
    try:
        # the parser and the tokenizer raise many kinds of errors for text that is not Python
        source = SourceFile(text)
        links = [*_of_names(names_of(source)), *_of_brackets(source), *_of_blocks(source)]
        line_ends = [token.start for token in source.tokens if token.kind == tokenize.NEWLINE]
    except _NO_PYTHON as error:
        line = getattr(error, "lineno", None) or 1
        raise CorpusError(f"{path}:{line}: no Python: {first_line(error):.100}") from error
    # a sentence is a line of code, however many lines of text it has
    words = []
    for match in _WORD.finditer(text):
        first, end = match.span()
        line_number = bisect_right(line_ends, first - 1)
        words.append(Word(match.group(), first, end, line_number))
    folder = path.parent.name
    name = f"{folder}.{path.stem}" if folder else path.stem
    return Document(name, text, tuple(words), source=str(path)).with_arrows(links)


def _of_names(occurrences: list[Occurrence]) -> Iterator[Arrow | None]:
    """Arrows from uses of variables and parameters to what binds them.

    The candidates are the last bindings of the variables and parameters of the same scope.
    """
    # what is assigned is worked out before the name is bound: bindings come at their ends
    events = [(occurrence.start, False, occurrence) for occurrence in occurrences]
    events += [
        (occurrence.bound_from, True, occurrence)
        for occurrence in occurrences
        if occurrence.role != USE
    ]
    bound: dict[int, dict[Variable, int]] = {}
    """Last binding of each variable and parameter of a scope, by scope."""
    binder: dict[Variable, Occurrence] = {}
    for _, binds, occurrence in sorted(events, key=lambda event: event[:2]):
        variable = occurrence.variable
        if variable is None:
            continue
        if binds:
            binder[variable] = occurrence
            if occurrence.role == VARIABLE:
                bound.setdefault(variable[0], {})[variable] = occurrence.start
        elif occurrence.role == USE and variable in binder:
            origin = binder[variable]
            if origin.role == VARIABLE:
                candidates = bound[variable[0]].values()
                yield arrow("definition", occurrence.start, [origin.start], candidates)


def _of_brackets(source: SourceFile) -> Iterator[Arrow | None]:
    """Arrows from a closing bracket to the one that it closes, among all that open before it."""
    # brackets of every kind are candidates: which of them is open is what a head must know
    openers: list[int] = []
    waiting: list[int] = []
    for token in source.tokens:
        if token.kind != tokenize.OP:
            continue
        if token.text in OPENERS.values():
            openers.append(token.start)
            waiting.append(token.start)
        elif token.text in OPENERS and waiting:
            yield arrow("bracket", token.start, [waiting.pop()], openers[-_FAR:])


def _of_blocks(source: SourceFile) -> Iterator[Arrow | None]:
    """Arrows from the first word of a line to that of the line that opened its block."""
    opened: list[int] = []
    waiting: list[int] = []
    line = None
    """Start of the current line."""
    starts = True
    for token in source.tokens:
        # a block is opened by the line above it, and stays open until the indentation ends
        if token.kind == tokenize.INDENT:
            if line is not None:
                opened.append(line)
                waiting.append(line)
        elif token.kind == tokenize.DEDENT:
            if waiting:
                waiting.pop()
        elif token.kind == tokenize.NEWLINE:
            starts = True
        elif starts and token.kind != tokenize.ENDMARKER:
            starts, line = False, token.start
            # a line that begins with a mark has no word that could be a query
            if waiting and token.kind == tokenize.NAME:
                yield arrow("block", line, waiting[-1:], opened[-_FAR:])


MODULE, FUNCTION, CLASS, COMPREHENSION = "module", "function", "class", "comprehension"
USE, VARIABLE, DEFINITION = "use", "variable", "definition"
"""Roles of an occurrence of a name: it is read, bound as a variable or parameter, or bound by an
import, a `def` or a `class`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Variable = tuple[int, str]
"""The scope that binds a name, and the name."""


@dataclass(frozen=True)
class Occurrence:
    """A name where it stands."""

    name: str
    start: int
    """First character in the text."""
    role: str
    within: int
    """The scope that it stands in, by its number."""
    bound_from: int
    """Character from which on a bound name is bound: what is assigned is worked out before."""
    variable: Variable | None = None
    """None for what no scope of the file binds, such as a builtin."""


@dataclass
class Scope:
    """A stretch of code that binds names."""

    kind: str
    parent: int
    bound: set[str] = field(default_factory=set)
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Names that are declared `global` or `nonlocal` here."""


def names_of(source: SourceFile) -> list[Occurrence]:
    """The names of a file in the order of the text."""
    visitor = _Visitor(source)
    visitor.visit(source.tree)
    occurrences = []
    for occurrence in sorted(visitor.raw, key=lambda raw: raw.start):
        scope = visitor.owner(occurrence.name, occurrence.within)
        variable = None if scope is None else (scope, occurrence.name)
        occurrences.append(replace(occurrence, variable=variable))
    return occurrences


class _Visitor(ast.NodeVisitor):
    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.scopes = [Scope(MODULE, -1)]
        self.current = 0
        self.raw: list[Occurrence] = []
        self.until = 0
        """End of the assignment whose targets are visited."""

    def owner(self, name: str, scope: int) -> int | None:
        # from the scope where the name stands outwards, past classes: their names are not seen
        # from the functions in them
        standing = scope
        while scope >= 0:
            current = self.scopes[scope]
            if current.elsewhere.get(name) == "global":
                return 0
            visible = current.kind != CLASS or scope == standing
            if visible and name in current.bound and name not in current.elsewhere:
                return scope
            scope = current.parent
        return None

    def _note(self, name: str, start: int | None, role: str) -> None:
        if start is None:
            return
        bound_from = max(start, self.until)
        self.raw.append(Occurrence(name, start, role, self.current, bound_from))
        if role != USE:
            self.scopes[self.current].bound.add(name)

    @contextmanager
    def _inside(self, kind: str) -> Iterator[None]:
        self.scopes.append(Scope(kind, self.current))
        before, self.current = self.current, len(self.scopes) - 1
        try:
            yield
        finally:
            self.current = before

    def visit_Name(self, node: ast.Name) -> None:
        role = USE if isinstance(node.ctx, ast.Load) else VARIABLE
        self._note(node.id, self.source.start(node), role)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nothing of it is read."""

    def visit_Assign(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        # the value is worked out first, and the targets are bound at the end of the statement
        before, end = self.until, self.source.end(node)
        if isinstance(node, ast.AnnAssign):
            self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
        self.until = end
        self._all(node.targets if isinstance(node, ast.Assign) else [node.target])
        self.until = before

    visit_AugAssign = visit_AnnAssign = visit_Assign

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        inner, here = self.current, self.current
        while self.scopes[here].kind == COMPREHENSION:  # binds around the comprehension
            here = self.scopes[here].parent
        self.current = here
        self.visit(node.target)
        self.current = inner

    def visit_Global(self, node: ast.Global) -> None:
        self.scopes[self.current].elsewhere |= dict.fromkeys(node.names, "global")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scopes[self.current].elsewhere |= dict.fromkeys(node.names, "nonlocal")

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            # the tree has the place of the whole alias, whose last word is the name after "as"
            start = self.source.start(alias)
            if alias.asname is not None:
                end = self.source.end(alias)
                self._note(alias.asname, end - len(alias.asname), DEFINITION)
            elif alias.name != "*":
                self._note(alias.name.split(".")[0], start, DEFINITION)

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name is not None and node.type is not None:
            end = self.source.end(node.type)
            self._note(node.name, self.source.after(end, ("as",)), VARIABLE)
        self._all(node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._all(node.decorator_list)
        name = self.source.after(self.source.start(node), ("async", "def"))
        self._note(node.name, name, DEFINITION)
        self._function(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, [node.body])

    def _function(self, node: Function, body: Iterable[ast.AST]) -> None:
        # defaults and annotations are worked out in the scope around the function
        arguments = node.args
        self._all(arguments.defaults)
        self._all(default for default in arguments.kw_defaults if default is not None)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for starred in (arguments.vararg, arguments.kwarg):
            if starred is not None:
                every.append(starred)
        self._all(parameter.annotation for parameter in every if parameter.annotation is not None)
        if not isinstance(node, ast.Lambda) and node.returns is not None:
            self.visit(node.returns)
        with self._inside(FUNCTION):
            for parameter in every:
                self._note(parameter.arg, self.source.start(parameter), VARIABLE)
            self._all(body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._all([*node.decorator_list, *node.bases, *node.keywords])
        keyword = self.source.start(node)
        name = self.source.after(keyword, ("class",))
        self._note(node.name, name, DEFINITION)
        with self._inside(CLASS):
            self._all(node.body)

    def visit_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        # Python works out the first iterable in the scope around the comprehension
        self.visit(node.generators[0].iter)
        with self._inside(COMPREHENSION):
            for number, generator in enumerate(node.generators):
                if number:
                    self.visit(generator.iter)
                self.visit(generator.target)
                self._all(generator.ifs)
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            self._all(parts)

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)


@dataclass(frozen=True)
class Token:
    """A token outside strings, or the end of a line or a block."""

    kind: int
    """Kind of token, as in Python's `tokenize`."""
    text: str
    start: int
    """First character in the file."""


Node = ast.expr | ast.stmt | ast.arg | ast.alias | ast.keyword
"""A node that states its place."""


class SourceFile:
    """A file that parses.

    Args:
        text: the file, with line feeds alone.

    Raises:
        SyntaxError: it does not parse, with the line.
        ValueError: likewise, for what Python finds before it reads.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        with warnings.catch_warnings():  # about odd escapes in the file, which are not ours
            warnings.simplefilter("ignore")
            self.tree = ast.parse(text)
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def start(self, node: Node) -> int:
        """The first character of a node."""
        return self._character(node.lineno, node.col_offset)

    def end(self, node: Node) -> int:
        """The character after a node."""
        return self._character(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _character(self, line: int, column: int) -> int:
        """The character at a line, counted from 1, and a column in bytes, as the tree counts."""
        line_text = self._lines[line - 1]
        if not line_text.isascii():
            before = line_text.encode()[:column]
            column = len(before.decode(errors="ignore"))
        return self._starts[line - 1] + column

    @cached_property
    def tokens(self) -> list[Token]:
        """Tokens in the order of the text; what stands within f-strings is left out."""
        return list(self._tokens())

    def _tokens(self) -> Iterator[Token]:
        # an f-string counts as one token, whatever Python's version makes of it
        opens = getattr(tokenize, "FSTRING_START", -1)
        closes = getattr(tokenize, "FSTRING_END", -1)
        left_out = (closes, tokenize.COMMENT, tokenize.NL)
        depth = 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == opens:
                depth += 1
            if token.type == closes:
                depth -= 1
            if depth or token.type in left_out:
                continue
            line, column = token.start
            start = self._starts[line - 1] + column
            yield Token(token.type, token.string, start)

    @cached_property
    def _names(self) -> tuple[list[int], list[str]]:
        name_tokens = [token for token in self.tokens if token.kind == tokenize.NAME]
        return [token.start for token in name_tokens], [token.text for token in name_tokens]

    def after(self, start: int, words: Iterable[str]) -> int | None:
        """The first character of the next name at or behind a character, skipping these words."""
        skipped = set(words)
        starts, texts = self._names
        for index in range(bisect_left(starts, start), len(starts)):
            if texts[index] not in skipped:
                return None if keyword.iskeyword(texts[index]) else starts[index]
        return None
