"""Conditions of a tag, a row each, which also word the reasons."""

from __future__ import annotations

from math import isnan
from operator import itemgetter

import numpy as np
import pandas as pd

from headscope.measure.tally import MIN_BLOCKS
from headscope.relations import head_types
from headscope.relations.baselines import baseline_in_words
from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.condition import Condition, Margin, Number, Numbers, Row, Truth
from headscope.statistics.ratio import Z_95

MAX_Q = 0.01
TIMES_CONTROL = 1.5
"""Least mass in units of the strictest control. A lift can be certain and still be small: a head
that puts 0.31 on prepositions that belong to its noun and 0.25 on others at the same distance is a
head for prepositions."""
MIN_HARD = 10
"""Fewest hard queries that can decide a relation."""
FEWEST_WRONG = 5
"""Fewest queries where the surrogate is wrong that can tell a head from it."""
SECOND = 0.5
"""Least share of the threshold that a direct effect must have over the matched control, too."""
STANDS_OUT = 0.5
"""Least lift of an effect in units of the standard deviation of a head's effects over the tokens of
the text. A head with large effects raises whatever it attends to by chance: with random V and O the
lift's mean over a hundred tokens is some tenths of it, and of either sign."""
LEAST_TOP = 0.2
"""Least share of hard queries at which the target must have the most attention of all tokens but
sinks. Ours, as the share beyond the surrogate: a head that attends more to words which are no
candidates, such as "of", at more than four of five does not look for its target there."""
LEAST_REPLICATES = 0.5
"""Least probability of the tag on another text of this size: below it another text is more likely
not to give the tag."""
QUERIES, Q_VALUE, HARD_QUERIES = "queries", "q value", "hard queries"
ANOTHER_TEXT = "another text"
SURFACE = "surface features"
"""Words for what a head may follow that its surrogate, fitted on them, does as well."""


# rows that the text cannot decide


def _has_baseline(numbers: Numbers) -> Truth:
    both: Truth = numbers.has("beat_baseline_by") & numbers.has("hard_n")
    return both


def is_open(numbers: Numbers) -> Truth:
    """Rows whose hard queries cannot distinguish the relation from baselines.

    They are too few, or lie in too few documents, or baselines are right at so many of them that
    even the interval of a head that is always right would include their rate.
    """
    queries = numbers["hard_n"]
    # Wilson's lower end of a rate of 1, the largest that so many queries can reach
    largest_low = queries / (queries + Z_95**2)
    is_reachable = _bound(numbers) < largest_low
    has_queries = queries >= MIN_HARD
    enough = has_queries & numbers.has("hard_low") & is_reachable
    open_rows: Truth = _has_baseline(numbers) & ~enough
    return open_rows


def has_open_surrogate(numbers: Numbers) -> Truth:
    """Rows whose surrogate is wrong at too few queries to tell the head from it.

    A surrogate that is right wherever the relation was judged explains all that the head does.
    """
    rows: Truth = numbers["surrogate_wrong"] < FEWEST_WRONG
    return rows


def has_no_interval(numbers: Numbers) -> Truth:
    """Rows whose queries lie in too few blocks of documents for an interval of the lift."""
    rows: Truth = (numbers["taggable"] > 0) & ~numbers.has("ci_low")
    return rows


def _bound(numbers: Numbers) -> Number:
    bound: Number = numbers["hard_baseline_rate"] + numbers["beat_baseline_by"]
    return bound


# the strictest control of a row


def _strictest(numbers: Numbers) -> Number:
    # the margin multiplies every control by `TIMES_CONTROL`, but the multiple of chance that a
    # relation states is the whole factor
    of_chance = numbers["times_chance"] * numbers["chance"] / TIMES_CONTROL
    controls = [numbers["control"], numbers["matched_control"], of_chance]
    return np.asarray(np.fmax.reduce(controls))


def _control_margin(numbers: Numbers) -> Margin:
    strictest = _strictest(numbers)
    # mass and control vary together over documents; the other controls count as fixed
    is_control = strictest == numbers["control"]
    error = np.where(is_control, numbers["control_error"], numbers["mass_error"])
    above = numbers["mass"] - TIMES_CONTROL * strictest
    return Margin.within(above, error)


def matched_control_keys(type: str) -> str:
    """Keys of the matched control of a head type's relations, in words.

    >>> matched_control_keys("syntactic")
    'keys of that class and distance from other words'
    """
    head_type = head_types().get(type)
    return "other keys" if head_type is None else head_type.matched_control_keys


def strictest_control(row: Row) -> tuple[float, str]:
    """The largest of a row's control masses, and its keys in words.

    A multiple of evenly spread attention is a control of relations that state `times_chance`.

    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched_control": 0.34})
    (0.34, 'keys of that class and distance from other words (matched)')
    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched_control": float("nan")})
    (0.01, 'control keys')
    >>> strictest_control({"type": "syntactic", "control": float("nan")})  # no finite attention
    (nan, 'control keys')
    """
    # the comparison in words names the one control that decides
    controls = [
        (row["control"], "control keys"),
        (row.get("matched_control"), f"{matched_control_keys(row['type'])} (matched)"),
    ]
    times_chance = row.get("times_chance", float("nan"))
    if not isnan(times_chance):
        multiple = times_chance / TIMES_CONTROL
        keys = f"the same keys by evenly spread attention, × {multiple:g}"
        mass = row["chance"] * times_chance / TIMES_CONTROL
        controls.append((mass, keys))
    known = []
    for mass, keys in controls:
        if mass is not None and not isnan(mass):
            known.append((mass, keys))
    return max(known, key=itemgetter(0), default=controls[0])


def _control_in_words(row: Row) -> str:
    control, keys = strictest_control(row)
    return f"mass {row['mass']:.3f}, {TIMES_CONTROL:g} × {control:.3f} on {keys}"


# reasons why the text cannot decide


def _interval(low: float, high: float) -> str:
    return "(no interval: too few documents)" if isnan(low) else f"[{low:.3f}, {high:.3f}]"


def _lift(row: Row, lift: str, ends: str) -> str:
    low, high = row[f"{ends}_low"], row[f"{ends}_high"]
    return f"{row[lift]:+.2f} [{low:+.2f}, {high:+.2f}]"


def _hard_in_words(row: Row) -> str:
    if is_open(Numbers(row))[0]:
        return open_in_words(row)
    baseline = baseline_in_words(row["baseline"])
    interval = _interval(row["hard_low"], row["hard_high"])
    bound = f"{row['hard_baseline_rate']:.2f} + {row['beat_baseline_by']:.2f}"
    return (
        f"preference {row['hard_rate']:.2f} {interval} at {row['hard_n']:,.0f} queries where "
        f"“{baseline}” is wrong; baselines {bound}"
    )


def open_in_words(row: Row) -> str:
    """Reason why the text cannot distinguish the relation of a row from baselines."""
    baseline = baseline_in_words(row["baseline"])
    hard = f"{row['hard_n']:,.0f} hard queries, where “{baseline}” is wrong"
    if row["hard_n"] < MIN_HARD:
        return f"{hard}; needs {MIN_HARD}"
    if isnan(row["hard_low"]):
        return f"{hard}, in too few documents for an interval"
    return f"at {hard}, baselines reach a mean preference of {row['hard_baseline_rate']:.2f}"


def undecided_in_words(row: Row) -> str:
    """Reason why the text cannot decide the relation of a row that is `not identifiable`."""
    if isnan(row["ci_low"]):
        return (
            f"its {row['n']:,} queries lie in fewer than {MIN_BLOCKS} blocks of documents, too few "
            "for an interval"
        )
    if alternative(row) == SURFACE:
        return (
            f"its surrogate is wrong at {row['surrogate_wrong']:,.0f} of the queries that were "
            f"read again; needs {FEWEST_WRONG}"
        )
    return open_in_words(row)


def alternative(row: Row) -> str:
    """The simpler explanation that a `not identifiable` row may have: a baseline, or `SURFACE`."""
    numbers = Numbers(row)
    is_of_surface = has_open_surrogate(numbers)[0] and not is_open(numbers)[0]
    return SURFACE if is_of_surface else str(row["baseline"])


# conditions of more than one comparison, and the numbers of each condition in words


def _has_enough_queries(numbers: Numbers) -> Truth:
    is_taggable = numbers["taggable"] > 0
    is_enough: Truth = is_taggable & (numbers["n"] >= MIN_QUERIES)
    return is_enough


def _queries_in_words(row: Row) -> str:
    if not row["taggable"]:
        return "this relation is reported and never gives a tag"
    return f"{row['n']:,} queries, needs {MIN_QUERIES}"


def _mass_in_words(row: Row) -> str:
    return f"mass {row['mass']:.3f}, threshold {row['threshold']:g}"


def _is_significant(numbers: Numbers) -> Truth:
    is_discovery = numbers["q_value"] < MAX_Q
    is_significant: Truth = is_discovery & (numbers["lift"] > 0)
    return is_significant


def _significance_in_words(row: Row) -> str:
    q = row["q_value"]
    q_value = "not known (too few documents)" if isnan(q) else f"{q:.2g}"
    interval = _interval(row["ci_low"], row["ci_high"])
    lift = f"lift {row['lift']:.3f} {interval}"
    return f"q {q_value}, must be below {MAX_Q:g}; {lift}"


def _beats_baselines(numbers: Numbers) -> Truth:
    is_above = numbers["hard_low"] > _bound(numbers)
    beats: Truth = ~is_open(numbers) & is_above
    return beats


def _top_in_words(row: Row) -> str:
    interval = _interval(row["top_low"], row["top_high"])
    return (
        f"the target has the most attention of all tokens but sinks at {row['top_rate']:.2f} "
        f"{interval} of {row['hard_n']:,.0f} hard queries, needs {LEAST_TOP:g}"
    )


def _surrogate_in_words(row: Row) -> str:
    if has_open_surrogate(Numbers(row))[0]:
        return undecided_in_words(row)
    interval = _interval(row["beyond_low"], row["beyond_high"])
    return (
        f"the target has the most attention of all candidates at {row['beyond_surrogate']:.2f} "
        f"{interval} of {row['surrogate_wrong']:,.0f} queries where its surrogate is wrong, needs "
        f"{row['surrogate_share']:g}"
    )


def _paired_in_words(row: Row) -> str:
    mass = f"mass {row['paired_mass']:.3f} for {row['paired_relation']}"
    return f"{mass}, threshold {row['threshold']:g}"


def _effect_in_words(row: Row) -> str:
    return f"lift {row['lift']:+.2f}, threshold {row['threshold']:g}"


def _exceeds_matched_control(numbers: Numbers) -> Truth:
    required = SECOND * numbers["threshold"]
    is_large = numbers["second_lift"] >= required
    exceeds: Truth = is_large & (numbers["second_low"] > 0)
    return exceeds


def _matched_control_in_words(row: Row) -> str:
    lift = _lift(row, "second_lift", "second")
    required = SECOND * row["threshold"]
    return f"over {row['second']} {lift}, needs {required:g}"


def _is_moved(numbers: Numbers) -> Truth:
    is_large = numbers["moved"] >= numbers["threshold"]
    is_moved: Truth = is_large & (numbers["moved_low"] > 0)
    return is_moved


def _moved_in_words(row: Row) -> str:
    lift = _lift(row, "moved", "moved")
    return f"without its own position {lift}, needs {row['threshold']:g}"


def _spread_in_words(row: Row) -> str:
    times = abs(row["lift"] / row["spread"])
    return f"{times:.1f} × the spread of its effects over the text's tokens, needs {STANDS_OUT:g}"


def _holds_here(numbers: Numbers) -> Truth:
    """Rows that meet every condition of `ON_THIS_TEXT` and have a number in `replicates`."""
    rows = numbers.has("replicates")
    for condition in ON_THIS_TEXT:
        rows = rows & ~condition.fails(numbers)
    return rows


def _another_text_in_words(row: Row) -> str:
    return (
        f"another text of this size gives the tag with probability {row['replicates']:.2f}, "
        f"needs {LEAST_REPLICATES:g}"
    )


BESIDE_LIFT = ("matched control tokens", "moved", "stands out")
"""Conditions that the sentence on a direct effect states after its lift."""

ON_THIS_TEXT = (
    Condition(
        name=QUERIES,
        holds=_has_enough_queries,
        describe=_queries_in_words,
        means="tokens at which attention is measured",
    ),
    Condition(
        name="mass",
        holds=lambda t: t["mass"] >= t["threshold"],
        describe=_mass_in_words,
        applies=lambda t: ~t.has("sign"),
        means="mean attention of a query on its targets",
        margin=lambda t: Margin.within(t["mass"] - t["threshold"], t["mass_error"]),
    ),
    Condition(
        name=Q_VALUE,
        holds=_is_significant,
        describe=_significance_in_words,
        means="false discovery rate over all heads and relations, for lift = mass − control > 0",
        margin=lambda t: t.margin("lift", "ci"),
        states_interval=True,
    ),
    Condition(
        name="control",
        holds=lambda t: t["mass"] >= TIMES_CONTROL * _strictest(t),
        describe=_control_in_words,
        applies=lambda t: ~t.has("sign"),
        means=f"mass against {TIMES_CONTROL:g} times the strictest control",
        margin=_control_margin,
    ),
    Condition(
        name=HARD_QUERIES,
        holds=_beats_baselines,
        describe=_hard_in_words,
        applies=_has_baseline,
        means="mean preference for the target, its share of the squared attention on candidates, "
        "at hard queries, against that of the best mixture of baselines with the same mean at "
        "easy queries",
        margin=lambda t: t.margin("hard_rate", "hard", _bound(t)),
        tests_low=True,
        states_interval=True,
        is_open=is_open,
    ),
    Condition(
        name="most attention",
        holds=lambda t: t["top_rate"] >= LEAST_TOP,
        describe=_top_in_words,
        applies=lambda t: _has_baseline(t) & t.has("top_rate"),
        means="share of hard queries at which the target has the most attention of all tokens but "
        "attention sinks",
        margin=lambda t: t.margin("top_rate", "top", LEAST_TOP),
        states_interval=True,
    ),
    Condition(
        name="surrogate",
        holds=lambda t: t["beyond_surrogate"] >= t["surrogate_share"],
        describe=_surrogate_in_words,
        applies=lambda t: t.has("beyond_surrogate") | has_open_surrogate(t),
        means="a model of the head fitted on parts of speech, word forms, distance, order and "
        "repeated tokens of other documents",
        margin=lambda t: t.margin("beyond_surrogate", "beyond", t["surrogate_share"]),
        states_interval=True,
        is_open=has_open_surrogate,
    ),
    Condition(
        name="paired relation",
        holds=lambda t: t["paired_mass"] >= t["threshold"],
        describe=_paired_in_words,
        applies=lambda t: t.has("paired_mass"),
        means="a relation that must reach the threshold too: a positional head attends the same "
        "distance back in random tokens and in text",
        margin=lambda t: Margin.within(t["paired_mass"] - t["threshold"], t["paired_error"]),
    ),
    Condition(
        name="effect",
        holds=lambda t: t["lift"] >= t["threshold"],
        describe=_effect_in_words,
        applies=lambda t: t.has("sign"),
        means="direct effect on the logits of the tokens in question − that on control tokens",
        margin=lambda t: t.margin("lift", "ci", t["threshold"]),
    ),
    Condition(
        name="matched control tokens",
        holds=_exceeds_matched_control,
        describe=_matched_control_in_words,
        applies=lambda t: t.has("second_lift"),
        means="the same over control tokens of another kind",
    ),
    Condition(
        name="moved",
        holds=_is_moved,
        describe=_moved_in_words,
        applies=lambda t: t.has("moved"),
        means="the same without the effect through the query's own position, which holds earlier "
        "layers' predictions",
    ),
    Condition(
        name="stands out",
        holds=lambda t: t["lift"] >= STANDS_OUT * t["spread"],
        describe=_spread_in_words,
        applies=lambda t: t.has("spread"),
        means="the lift against the head's effect on any token of the text",
    ),
)
"""Conditions on the numbers of this text."""
CONDITIONS = (
    *ON_THIS_TEXT,
    Condition(
        name=ANOTHER_TEXT,
        holds=lambda t: t["replicates"] >= LEAST_REPLICATES,
        describe=_another_text_in_words,
        applies=_holds_here,
        means="probability that another text of this size meets the conditions above",
    ),
)
"""All conditions of a tag; `ANOTHER_TEXT` applies only to rows that meet all others."""


def failures(table: pd.DataFrame) -> pd.DataFrame:
    """For each row with thresholds a column per condition: True if it fails."""
    numbers = Numbers(table)
    columns = {condition.name: condition.fails(numbers) for condition in CONDITIONS}
    return pd.DataFrame(columns, index=table.index)


def decided_failures(table: pd.DataFrame, failed: pd.DataFrame) -> pd.DataFrame:
    """The failures of each row that the text decides: of a condition that is not open there."""
    numbers = Numbers(table)
    decided = failed.copy()
    for condition in CONDITIONS:
        if condition.is_open is not None:
            decided[condition.name] &= ~condition.is_open(numbers)
    return decided


def inconclusive(table: pd.DataFrame, failed: pd.DataFrame) -> Truth:
    """Rows where the interval of every failed condition includes its threshold."""
    numbers = Numbers(table)
    rows: Truth = np.ones(len(table), bool)
    for condition in CONDITIONS:
        includes_threshold: Truth = np.zeros(len(table), bool)
        if condition.margin is not None:
            includes_threshold = condition.margin(numbers).high >= 0
        if condition.is_open is not None:
            includes_threshold = includes_threshold | condition.is_open(numbers)
        # rows that meet all other conditions are not rejected
        if condition.name == ANOTHER_TEXT:
            includes_threshold = np.ones(len(table), bool)
        holds = ~failed[condition.name].to_numpy()
        rows &= holds | includes_threshold
    return rows
