"""The one family of errors that headscope raises for its users.

Every message states the expected and the actual value, and a remedy. The command line prints it
on stderr and exits with code 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches

LONGEST = 1200
"""Characters of a message; file names and options may have thousands."""
LISTED_ROWS = 10
"""Invalid rows that a message lists."""


class HeadscopeError(Exception):
    """Error that a user can correct; the message states how.

    It is one line of characters that a terminal shows, whatever is in the names that it quotes: an
    escape sequence in a file's name must not write over the screen.
    """

    def __init__(self, message: str = "") -> None:
        text = str(message)
        # its beginning says what is wrong, and its end what to do
        if len(text) > LONGEST:
            text = f"{text[: LONGEST - 400]} … {text[-390:]}"
        if not text.isprintable():
            text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
        super().__init__(text)


class ModelError(HeadscopeError):
    """A model cannot be found, loaded, or does not behave like a causal transformer."""


class CorpusError(HeadscopeError):
    """A corpus file cannot be read, or has no text for any relation; the message names the file."""


class PatternError(HeadscopeError):
    """Attention patterns from outside do not fit their document."""


class RunError(HeadscopeError):
    """A run folder is missing, damaged, or in the way."""


class WriteError(HeadscopeError):
    """A file to write is there already, or cannot be written."""


class RunStoppedError(KeyboardInterrupt):
    """A run was interrupted; the message states how to continue."""


class ArgumentError(HeadscopeError):
    """An argument of a public function has a value that it does not take."""


class ShapeError(HeadscopeError, ValueError):
    """Sizes or tensors that do not fit together; the message gives the numbers of both."""


class ChoiceError(HeadscopeError):
    """A name that is not one of the choices.

    >>> raise ChoiceError("dtype", "int8", ["float32", "float16"])
    Traceback (most recent call last):
    headscope.errors.ChoiceError: no dtype named 'int8'; choose from: float32, float16
    >>> raise ChoiceError("dtype", "flaot16", ["float16"])
    Traceback (most recent call last):
    headscope.errors.ChoiceError: no dtype named 'flaot16' (is float16 meant?); choose from: float16
    """

    def __init__(self, what: str, value: str, choices: Iterable[str]) -> None:
        choices = list(choices)
        super().__init__(
            f"no {what} named {value!r:.80}{nearest_name(value, choices)}; choose from: "
            f"{', '.join(choices)}"
        )


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Check that a name is one of the choices.

    Raises:
        ChoiceError: it is not.
    """
    allowed = list(choices)
    if value not in allowed:
        raise ChoiceError(what, value, allowed)


@dataclass(frozen=True)
class InvalidRow:
    """A row of a file that cannot be used."""

    number: int
    """Number of the row in the file, its header counted."""
    reason: str


def check_rows(
    kind: type[HeadscopeError], name: str, invalid: Sequence[InvalidRow], *, of: int
) -> None:
    """Check that a file has rows, and no invalid ones.

    Args:
        kind: the error.
        name: the file.
        invalid: its invalid rows.
        of: number of all rows.

    Raises:
        HeadscopeError: there are no rows, or invalid ones; the message lists them.

    >>> check_rows(CorpusError, "a.csv", [InvalidRow(3, "no head")], of=9)
    Traceback (most recent call last):
    headscope.errors.CorpusError: a.csv: 1 of 9 rows are invalid: row 3: no head
    """
    if of and not invalid:
        return
    reasons = [f"row {row.number}: {row.reason}" for row in invalid]
    unlisted = len(reasons) - LISTED_ROWS
    listed = "; ".join(reasons[:LISTED_ROWS])
    if unlisted > 0:
        listed += f"; and {unlisted} more"
    fault = f"{len(invalid)} of {of} rows are invalid: {listed}" if of else "there are no rows"
    raise kind(f"{name}: {fault}")


@contextmanager
def reported_as(
    kind: type[HeadscopeError], message: str, *errors: type[Exception]
) -> Iterator[None]:
    r"""Turn errors of other libraries into one for users, which ends with their first line.

    >>> with reported_as(CorpusError, "a.csv: not a table", ValueError):
    ...     raise ValueError("no header\nTraceback …")
    Traceback (most recent call last):
    headscope.errors.CorpusError: a.csv: not a table: no header
    """
    try:
        yield
    except errors as error:
        raise kind(f"{message}: {first_line(error):.150}") from error


def nearest_name(value: str, choices: Iterable[str], *, folder: str = "") -> str:
    """The one of the choices that a mistyped name may mean, to be added to a message.

    Args:
        value: the name; capitals do not count.
        choices: the names that there are.
        folder: what stands before the choice in the message, such as `runs/`.

    >>> nearest_name("SmolM2", ["smollm2", "minilm"]), nearest_name("gpt2", ["smollm2", "minilm"])
    (' (is smollm2 meant?)', '')
    """
    by_small_letters = {choice.casefold(): choice for choice in choices}
    # a long name from a file is no typing error, and comparing takes its square
    near = get_close_matches(value[:80].casefold(), by_small_letters, 1, cutoff=0.75)
    if not near or by_small_letters[near[0]] == value:
        return ""
    return f" (is {folder}{by_small_letters[near[0]]} meant?)"


def first_line(error: BaseException) -> str:
    r"""The first line of another library's error; the name of its kind where it says nothing.

    >>> first_line(ValueError("no such key\nTraceback …")), first_line(KeyError())
    ('no such key', 'KeyError')
    >>> first_line(KeyError("dtype"))
    "'dtype' is missing"
    """
    if type(error) is KeyError and len(error.args) == 1:
        return f"{error.args[0]!r:.80} is missing"
    return str(error).strip().split("\n")[0] or type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Test if an error means that memory ran out; on processors torch states it in words only.

    >>> is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"))
    True
    """
    words = ("not enough memory", "can't allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)
