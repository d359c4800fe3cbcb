"""Relations: the keys that a query should attend to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.options import described
from headscope.relations.pairs import Pairs, balance
from headscope.relations.query_sampling import queries_in_turn
from headscope.relations.window_pairs import WindowPairs

FindPairs = Callable[[Window], Pairs]
DrawControl = Callable[[Window, Pairs, np.random.Generator], Pairs]
Control = TypeVar("Control", bound=Callable[..., Pairs])
FindPicks = Callable[[Window], Int[ndarray, " position"]]

MIN_QUERIES = 50
"""Relations with fewer queries are reported but never tagged."""
SINK, SINK_POSITION = "sink", "sink/position"
"""The type of attention sinks, and its relation that is summed where the patterns are read."""
PARTIAL_SINK = 0.3
"""Least mass at which a sink without a tag is shown as a partial sink: most of what such a
head has left goes elsewhere."""


@dataclass(frozen=True)
class Threshold:
    """Threshold of a tag, its source, and further conditions that not all relations share."""

    threshold: float
    """Least mass; of a direct effect the least lift, in logits."""
    source: str
    """Source of the threshold."""
    meaning: str = ""
    """Targets in words, for sentences: "it puts 0.8 of its attention on {meaning}"."""
    taggable: bool = True
    """False for relations that are reported only."""
    times_chance: float | None = None
    """Least mass in units of the mass that a uniform head would put there."""
    beat_baseline_by: float | None = None
    """Least distance of its mean preference at hard queries above that of any baseline."""
    broad: bool = False
    """True if it says what kind of key gets the attention and no more: such a tag comes after
    those that say which key."""
    paired_relation: str | None = None
    """A relation whose mass must clear the same threshold, if it was measured."""
    beats_surrogate: bool = False
    """True if a tag requires that the head exceeds its surrogate, which is fitted on surface
    features; see `headscope.statistics.surrogate`."""
    surrogate_share: float = 0.5
    """Least share of the queries where the surrogate is wrong at which a head is right.
    It is 0.2 for types whose lazy heads in causal models stay below that."""
    sign: int | None = None
    """Sign of a direct effect: 1 if the head must raise the logits of the tokens in question,
    −1 if it must lower them; None for attention."""

    def record(self) -> dict[str, Any]:
        """The threshold as `run.json` states it."""
        record = asdict(self)
        if self.sign is None:
            del record["sign"]
        return record


above_baseline = partial(Threshold, beat_baseline_by=0.10)
"""Thresholds of a relation whose heads must exceed baselines at hard queries by 10 points."""
above_surrogate = partial(
    Threshold, beat_baseline_by=0.05, beats_surrogate=True, surrogate_share=0.2
)
"""Thresholds of a relation whose heads must exceed baselines by 5 points, and their surrogates."""


@dataclass(frozen=True)
class Baseline:
    """The baselines that a head of a relation must exceed.

    The best of `headscope.relations.baselines.BASELINES` is chosen on the text. Queries where it
    is wrong are hard queries.
    """

    find: FindPicks | None = None
    """A further baseline of the relation: the key at each query, −1 if it picks none."""
    without: frozenset[str] = frozenset()
    """Names of baselines that are equivalent to the relation."""
    by_class: bool = True
    """True if the best is chosen separately for each class of query words."""
    any_word: bool = False
    """True if every word competes with the target at hard and easy queries; else words of the parts
    of speech that targets have."""


@dataclass(frozen=True)
class Label:
    """Place of a relation in a tree of labels, for heads that do not distinguish some of them."""

    name: str
    """Name in lists, e.g. `det`."""
    general: tuple[str, ...]
    """Names of relations above it, the most general first, e.g. `phrase-head:dep>head`; labels with
    the same first name are compared."""


@dataclass(frozen=True)
class Relation:
    """One row of the table of relations.

    `pairs` finds the target cells of a window. `control` draws cells that a head hits as often as
    the targets if it attends without regard to the relation. All else of scoring is shared.
    """

    type: str
    name: str
    pairs: FindPairs
    control: DrawControl
    thresholds: Threshold
    stimuli: tuple[str, ...] = ("text",)
    """Names of its stimuli, keys of `headscope.relations.all_stimuli()`."""
    baseline: Baseline | None = None
    """The baselines to beat, where there are any."""
    has_hits: bool = True
    """True if a hit rate makes sense: not where the target is the first token."""
    matched_control: DrawControl | None = None
    """A matched control, e.g. the same distance from other queries."""
    label: Label | None = None
    """Place in a tree of labels, if it is in one."""
    of_template: bool = False
    """True if its keys are tokens of a chat template, which other relations leave out."""

    def __post_init__(self) -> None:
        for name in ("pairs", "control", "matched_control"):
            find = getattr(self, name)
            if find is None:
                continue
            # cells of headscope's own functions are checked by its tests
            function = getattr(find, "func", find)
            if not str(function.__module__).startswith("headscope."):
                object.__setattr__(self, name, Checked(find, f"{self.id}: its {name}"))

    @property
    def id(self) -> str:
        """The relation's full name, e.g. `syntactic/obj:dep>head`."""
        return f"{self.type}/{self.name}"

    @property
    def sign(self) -> int:
        """The side of 0 on which its lift must lie: 1, or −1 for what a head must lower."""
        return self.thresholds.sign or 1

    def targets_in(self, window_pairs: WindowPairs) -> Pairs:
        """Targets in a window; `WindowPairs.targets` finds them once."""
        window = window_pairs.window
        return _in_message(self.pairs(window), window, any_key=self.of_template)

    def cells_in(self, window_pairs: WindowPairs, seed: Sequence[int]) -> PairSet | None:
        """Balanced targets and controls in a window of its stimuli; None when it has none."""
        window = window_pairs.window
        targets = queries_in_turn(window, window_pairs.targets(self))
        if not len(targets):
            return None
        # seeding takes longer than most controls
        rng = np.random.default_rng(seed) if _draws(self.control) else _UNUSED
        controls = _in_message(self.control(window, targets, rng), window)
        targets, controls = balance(targets, controls)
        return PairSet(targets, controls) if len(targets) else None


@dataclass(frozen=True)
class Checked:
    """A user's function that finds pairs or controls, and whose cells are checked each time."""

    func: Callable[..., Pairs]
    name: str
    """Name in errors: `words/two-back: its pairs`."""

    def __call__(self, window: Window, *options: object) -> Pairs:
        """Cells of the function in a window.

        Raises:
            HeadscopeError: they are not `Pairs`, or outside the window.
        """
        cells = self.func(window, *options)
        if not isinstance(cells, Pairs):
            raise HeadscopeError(f"{self.name} are {described(cells)}, expected hs.pairs(…)")
        # a negative position would be read from the end of the window, without an error
        positions = np.concatenate([cells.query, cells.key, cells.owner])
        is_outside = (positions < 0) | (positions >= len(window))
        outside = positions[is_outside]
        if outside.size:
            raise HeadscopeError(
                f"{self.name} hold position {outside[0]}; window {window.name!r:.80} has the "
                f"positions 0 to {len(window) - 1}"
            )
        return cells


@dataclass(frozen=True, eq=False)
class PairSet:
    """Cells of one relation in one window."""

    targets: Pairs
    controls: Pairs
    matched_control: Pairs | None = None
    """Controls of a second kind, where they are of the same queries."""


def targets_of(relation: Relation, window: Window) -> Pairs:
    """Targets of a single relation in a window; of several relations use one `WindowPairs`."""
    return WindowPairs(window).targets(relation)


def _in_message(cells: Pairs, window: Window, *, any_key: bool = False) -> Pairs:
    """Without the queries, and the keys, that are of a chat template around the window's text.

    The first token stays, which is the attention sink whatever follows it.
    """
    if window.begins == 1:
        return cells
    positions = np.arange(len(window))
    is_text = (positions >= window.begins) & (positions < window.stop)
    is_inside = is_text[cells.query] & is_text[cells.owner]
    if not any_key:
        is_inside &= is_text[cells.key] | (cells.key == 0)
    return cells.where(is_inside)


def draws_nothing(control: Control) -> Control:
    """Mark a control that leaves its generator alone."""
    control.draws = False  # type: ignore[attr-defined]
    return control


def _draws(control: DrawControl) -> bool:
    function = getattr(control, "func", control)
    return bool(getattr(function, "draws", True))


_UNUSED = np.random.default_rng(0)
