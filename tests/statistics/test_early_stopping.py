"""Early stopping: tags that the rest of a text is expected to change, and tags that it changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.reading import read
from headscope.measure.rounds import Stopped
from headscope.measure.sums import BatchSums, StoppedEarly, Sums
from headscope.measure.tally import BLOCKS, Tally
from headscope.relations import relations_of
from headscope.relations.parts import EASY, HARD, MATCHED_CONTROL, part_name
from headscope.statistics.condition import Numbers
from headscope.statistics.conditions import (
    ANOTHER_TEXT,
    CONDITIONS,
    HARD_QUERIES,
    Q_VALUE,
    QUERIES,
    failures,
    is_open,
)
from headscope.statistics.early_stopping import (
    EXPECTED_AT_MOST,
    ExpectedTagChanges,
    PartialEvidence,
    StoppingRule,
)
from headscope.statistics.estimates import weigh
from headscope.statistics.tags import TAGGED, verdicts, with_thresholds
from tests.helpers.readers import CountingReader

(SINK,) = (each for each in relations_of(["sink"]) if each.name == "first-token")
HEADS = 4000


def near_the_threshold(rng: np.random.Generator) -> Tally:
    """Heads whose masses lie around the threshold, in blocks that differ from one another."""
    tally = Tally.zeros((SINK.id,), 1, HEADS)
    queries = rng.integers(20, 60, BLOCKS)
    mass = rng.uniform(SINK.thresholds.threshold - 0.1, SINK.thresholds.threshold + 0.1, HEADS)
    of_block = np.clip(mass + rng.normal(0, 0.15, (BLOCKS, HEADS)), 0, 1)
    tally.queries[:, 0] = queries
    tally.target[:, 0, 0] = queries[:, None] * of_block
    return tally


def windows(count: int, stimulus: str = "text") -> list[Window]:
    return [
        Window(f"{stimulus}{i}#0", np.arange(50), ("a",) * 50, document=i, stimulus=stimulus)
        for i in range(count)
    ]


def beginning(tally: Tally, blocks: int) -> Tally:
    """The same sums as far as some documents have been read."""
    part = replace(tally, **{n: a.copy() for n, a in tally.arrays().items() if "." not in n})
    for name in ("target", "control", "hits", "queries", "chance"):
        getattr(part, name)[blocks:] = 0
    return part


@pytest.mark.parametrize("blocks", [16, 32, 48])
def test_as_many_tags_change_as_were_expected(blocks):
    whole = near_the_threshold(np.random.default_rng(blocks))
    part = beginning(whole, blocks)
    thresholds = {SINK.id: SINK.thresholds}
    then, now = (
        verdicts(with_thresholds(weigh(each, [SINK], seed=0), thresholds)).to_numpy() == TAGGED
        for each in (part, whole)
    )
    expected = changes_of(part, blocks / BLOCKS)
    changed = int((then != now).sum())
    assert 40 < changed < HEADS / 6
    assert expected.tags == then.sum()
    assert abs(expected.changes - changed) < 4 * changed**0.5


def changes_of(tally: Tally, share: float) -> ExpectedTagChanges:
    return PartialEvidence(tally, [SINK]).tag_changes([SINK], share)


NOT_PROJECTED = {
    # without queries enough there is no margin
    QUERIES,
    # surrogates are fitted when all is read
    "surrogate",
    # effects have no rounds
    *("effect", "matched control tokens", "moved", "stands out"),
    # a text that is not read to its end is another text to itself
    ANOTHER_TEXT,
}
"""Conditions of a tag that reading does not wait for."""
EVERY = {relation.id: relation for relation in relations_of(["all"])}
SYNTAX = EVERY["syntactic/obj:dep>head"]
CHANCE = next(each for each in EVERY.values() if each.thresholds.times_chance is not None)
OFFSET = EVERY["positional/offset-2"]
RANDOM = EVERY["positional/offset-2-random"]
CASES = {
    "syntax": [SYNTAX],
    "chance": [CHANCE],
    "paired": [OFFSET, RANDOM],
    "matched": [replace(OFFSET, matched_control=SYNTAX.control)],
    "all": [SYNTAX, CHANCE, OFFSET, RANDOM],
}
FACTS = {
    SYNTAX.id: {"hard_queries": 4 * BLOCKS, "baselines": [[1.0, 0.0], [0.8, 0.3], [0.0, 0.35]]}
}
PARTS = (HARD, EASY, MATCHED_CONTROL)
HEADS_AROUND = 200


def around_every_threshold(relations, rng: np.random.Generator, *, without=()) -> Tally:
    """Heads near the thresholds of relations, with parts of each but for some."""
    names = [relation.id for relation in relations]
    parts = [
        part_name(name, part)
        for name in names
        for part in PARTS
        if part not in without and (part == MATCHED_CONTROL or name == SYNTAX.id)
    ]
    tally = Tally.zeros((*names, *parts), 1, HEADS_AROUND)
    tally.queries[:] = rng.integers(8, 16, tally.queries.shape)
    tally.chance[:] = 0.02 * tally.queries
    shape = tally.target.shape
    queries = tally.queries[..., None, None]
    mass = rng.uniform(0, 0.5, (1, *shape[1:])) + rng.normal(0, 0.05, shape)
    control = rng.uniform(0, 0.25, (1, *shape[1:])) + rng.normal(0, 0.02, shape)
    rate = rng.uniform(0, 1, (1, *shape[1:]))
    tally.target[:] = queries * mass.clip(0, 1)
    tally.control[:] = queries * control.clip(0, 1)
    tally.hits[:] = rng.binomial(queries.astype(int), np.broadcast_to(rate, shape))
    return tally


def one_head(tally: Tally, head: int) -> Tally:
    """The same sums of a single head."""
    sums = {name: getattr(tally, name) for name in ("target", "control", "hits")}
    return replace(tally, **{name: array[..., head : head + 1] for name, array in sums.items()})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("without", [(), (EASY,), (MATCHED_CONTROL,), (HARD, EASY)])
@pytest.mark.parametrize("interim_tests", [1, 4])
def test_once_all_is_read_the_margins_are_those_of_the_verdicts(case, without, interim_tests):
    """Margin by margin: a condition holds as far as read exactly where the verdict has it hold."""
    relations = CASES[case]
    tally = around_every_threshold(relations, np.random.default_rng(len(case)), without=without)
    thresholds = {relation.id: relation.thresholds for relation in relations}
    evidence = weigh(tally, relations, seed=0, rates=FACTS)
    evidence["q_value"] = np.minimum(1, interim_tests * evidence["q_value"])
    partial = PartialEvidence(tally, relations, rates=FACTS, interim_tests=interim_tests)
    table = with_thresholds(evidence, thresholds)
    failed = failures(table)
    named = set()
    for relation in relations:
        margins = partial.margins(relation, 1.0)
        if HARD in without and relation is SYNTAX:
            assert not margins
            continue
        rows = (table["id"] == relation.id).to_numpy()
        assert not is_open(Numbers(table[rows])).any()
        for name, margin in margins.items():
            assert (margin.above >= 0).tolist() == (~failed.loc[rows, name]).tolist(), name
        # what has no margin fails nowhere
        assert not failed.loc[rows].drop(columns=[*margins]).to_numpy().any()
        named |= {*margins}
    tagged = verdicts(table).to_numpy() == TAGGED
    assert partial.tag_changes(relations, 1.0).tags == tagged.sum()
    assert named.isdisjoint(NOT_PROJECTED)
    if case == "all" and HARD not in without:
        assert named | NOT_PROJECTED == {condition.name for condition in CONDITIONS}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "blocks", [8, 32, *(pytest.param(number, marks=pytest.mark.slow) for number in (16, 48))]
)
def test_no_tag_that_the_same_sums_give_is_expected_away(case, blocks):
    relations = CASES[case]
    whole = around_every_threshold(relations, np.random.default_rng(blocks))
    part = beginning(whole, blocks)
    thresholds = {relation.id: relation.thresholds for relation in relations}
    partial = PartialEvidence(part, relations, rates=FACTS)
    evidence = weigh(part, relations, seed=0, rates=FACTS)
    tagged = verdicts(with_thresholds(evidence, thresholds)).to_numpy() == TAGGED
    assert tagged.any()
    share = blocks / BLOCKS
    # the interval of the whole text is narrower, so that no tag is lost by its width
    assert partial.tag_changes(relations, share).tags >= tagged.sum()
    for relation in relations:
        for head in np.flatnonzero(tagged & (evidence["id"] == relation.id)) % HEADS_AROUND:
            alone = PartialEvidence(one_head(part, head), [relation], rates=FACTS)
            assert alone.expected_tags([relation], share) > EXPECTED_AT_MOST


def test_an_interval_narrows_with_the_root_of_the_text():
    """Preference of 0.4 and 0.6 at 20 hard queries in each of 16 blocks."""
    tally = Tally.zeros((SYNTAX.id, part_name(SYNTAX.id, HARD)), 1, 1)
    tally.queries[:16] = 20
    tally.target[:16] = 0.9 * 20
    tally.hits[:16, 1, 0, 0] = np.resize([8.0, 12.0], 16)
    facts = {SYNTAX.id: {"hard_queries": 1280, "baselines": [[1.0, 0.1], [0.0, 0.4]]}}
    margins = PartialEvidence(tally, [SYNTAX], rates=facts).margins(SYNTAX, 0.25)
    margin = margins[HARD_QUERIES]
    # Student's interval by hand, with t = 2.131450 for 15 degrees of freedom
    half = 2.131450 * np.std([0.4, 0.6] * 8, ddof=1) / 4
    # without easy queries the head counts as always right there
    bound = 0.1 + SYNTAX.thresholds.beat_baseline_by
    assert margin.above.item() == pytest.approx(0.5 - bound - half / 2, abs=1e-6)
    assert margin.error.item() == pytest.approx(half / 1.959964 * 0.75**0.5, abs=1e-6)


def test_the_deviation_of_a_q_value_grows_with_the_root_of_the_text():
    """A head with q = 0.5 is 0 deviations off; it needs half of 2.326 after a quarter."""
    tally = Tally.zeros((SINK.id,), 1, 1)
    tally.queries[:16] = 20
    tally.target[:16] = 0.5 * 20
    tally.control[:16, 0, 0, 0] = 0.5 * 20 + np.resize([1.0, -1.0], 16)
    margin = PartialEvidence(tally, [SINK]).margins(SINK, 0.25)[Q_VALUE]
    assert margin.above.item() == pytest.approx(-2.326348 / 2, abs=1e-6)
    assert margin.error.item() == pytest.approx(0.75**0.5)


def test_far_from_every_threshold_nothing_is_expected_to_change():
    tally = near_the_threshold(np.random.default_rng(0))
    tally.target[:, 0, 0, : HEADS // 2] = 0
    tally.target[:, 0, 0, HEADS // 2 :] = 0.9 * tally.queries
    assert changes_of(tally, 0.25).should_stop
    assert changes_of(tally, 0.25).tags == HEADS // 2
    near = near_the_threshold(np.random.default_rng(0))
    for other in (near, Tally.zeros((SINK.id,), 1, 3)):  # without any tag reading goes on
        assert not changes_of(other, 0.25).should_stop


def test_one_looks_three_times_and_not_before_there_is_some_text():
    assert StoppingRule([SINK], {}, 40_000).interim_tokens == [10_000, 20_000, 30_000]
    assert StoppingRule([SINK], {}, 20_000).interim_tokens == [10_000, 15_000]
    assert StoppingRule([SINK], {}, 8_000).interim_tokens == []
    assert StoppingRule([SINK], {}, 40_000, read_all=True).interim_tokens == []


def test_what_is_read_beside_a_text_comes_in_portions_that_can_say_how_sure_they_are():
    beside = windows(64, "repeat")
    assert StoppingRule([SINK], {}, 8_000, beside).rounds == {
        "text": [0.0, 1.0],
        "repeat": [0.125, 0.25, 0.5, 0.75, 1.0],
    }
    pairs = [replace(window, stimulus="pairs") for window in beside]
    assert StoppingRule([SINK], {}, 8_000, pairs).rounds["pairs"] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert StoppingRule([SINK], {}, 8_000, beside[:20]).rounds["repeat"] == [0.4, 0.8, 1.0]
    assert StoppingRule([SINK], {}, 8_000, beside[:16]).rounds["repeat"] == [0.5, 1.0]
    assert StoppingRule([SINK], {}, 8_000, beside[:8]).rounds["repeat"] == [1.0]
    assert StoppingRule([SINK], {}, 8_000, beside, read_all=True).rounds["repeat"] == [1.0]


REPEAT = replace(SINK, stimuli=("repeat",))


@pytest.mark.parametrize(
    ("stimulus", "mass", "documents", "number", "ends"),
    [
        # before the text, a stimulus without a head near a tag
        ("repeat", 0.3, 8, 0, True),
        ("repeat", 0.9, 8, 0, False),  # more documents narrow the intervals of tags
        ("repeat", 0.3, 7, 0, False),
        ("pairs", 0.3, 8, 0, False),
        # later, a stimulus whose rest would change next to nothing
        ("repeat", 0.9, 16, 1, True),
        ("repeat", None, 16, 1, False),
        ("repeat", 0.9, 64, 4, False),  # the last round leaves nothing to end
    ],
)
def test_another_stimulus_ends_if_its_rest_would_change_next_to_nothing(
    stimulus, mass, documents, number, ends
):
    asked = replace(SINK, stimuli=(stimulus,))
    limits = StoppingRule([asked], {}, 8_000, windows(64, stimulus))
    tally = near_the_threshold(np.random.default_rng(0))  # its threshold is 0.4
    if mass is not None:
        noise = np.random.default_rng(1).normal(0, 0.01, tally.target.shape)
        tally.target[:] = (mass + noise) * tally.queries[..., None, None]
    found = limits.should_stop(beginning(tally, documents), number, {})
    assert set(found) == ({stimulus} if ends else set())
    assert all(changes < 1 for changes in found.values())


def test_what_has_ended_is_not_asked_again_and_said_in_the_run():
    # the round before the text wins no tag and is not corrected for
    for rounds, looks in ((1, 1), (2, 1), (3, 2)):
        ended = {"repeat": StoppedEarly(rounds, 0)}
        limits = StoppingRule([REPEAT], {}, 8_000, windows(64, "repeat"))
        assert limits.record(8_000, 30, ended)["looks"] == looks
    stopped = {"repeat": StoppedEarly(2, 0.3)}  # after the round before the text, and one more
    limits = StoppingRule([REPEAT], {}, 40_000, windows(64, "repeat"))
    tally = near_the_threshold(np.random.default_rng(0))
    tally.target[:] = 0.9 * tally.queries[..., None, None]
    assert "repeat" not in limits.should_stop(tally, 3, stopped)
    assert limits.record(39_990, 130, stopped) == {
        "tokens": 39_990,
        "documents": 130,
        "of": 40_000,
        "looks": 4,
        "expected_changes": None,
        "repeat": {"documents": 16, "of": 64, "expected_changes": 0.3},
    }


def count_windows(tally: Tally, batch: Batch) -> None:
    tally.queries[0, 0] += len(batch.windows)


@dataclass
class BreakingReader(CountingReader):
    """Counts windows and notes their names; stops after some batches."""

    stop_after: float = math.inf
    names: list[str] = field(default_factory=list)

    def read(self, prepared: Any, sample: Any) -> BatchSums:
        if len(self.names) >= self.stop_after:
            raise KeyboardInterrupt
        self.names.append(",".join(window.name for window in prepared.batch.windows))
        return super().read(prepared, sample)


@pytest.mark.parametrize("text_ends", [1, 2, None])
@pytest.mark.parametrize("beside_ends", [0, 2, None])
def test_reading_ends_at_the_look_that_says_so_and_a_broken_run_at_the_same(text_ends, beside_ends):
    looks = [400, 800, 1200]
    ends = {"text": text_ends, "repeat": beside_ends}

    class Stopping:
        interim_tokens = looks

        def should_stop(self, tally: Tally, number: int, stopped: Stopped) -> dict[str, float]:
            asked.append(number)
            return {name: 0.5 for name, last in ends.items() if last == number}

    asked: list[int] = []

    def read_by(reader: BreakingReader, sums: Sums) -> None:
        read(reader, windows(32), windows(64, "repeat"), sums, stopping=Stopping())

    def empty() -> Sums:
        return Sums(Tally.zeros((SINK.id,), 1, 1))

    sums, whole = empty(), BreakingReader(count_windows, 100)
    read_by(whole, sums)
    tokens = 1600 if text_ends is None else looks[text_ends - 1]
    tokens += 50 * (64 if beside_ends is None else (8, 16, 32)[beside_ends])
    assert sums.tokens == tokens == 50 * sums.tally.queries.sum()
    stopped = {name: StoppedEarly(last + 1, 0.5) for name, last in ends.items() if last is not None}
    assert sums.stopped == stopped
    for broken_after in range(0, len(whole.names), 3):
        sums = empty()
        asked.clear()
        first = BreakingReader(count_windows, 100, stop_after=broken_after)
        with pytest.raises(KeyboardInterrupt):
            read_by(first, sums)
        decided = asked[-1:]
        asked.clear()
        second = BreakingReader(count_windows, 100)
        read_by(second, sums)
        # the sums of later batches would decide an earlier round otherwise
        assert asked[:1] >= decided
        assert first.names + second.names == whole.names
        assert sums.tokens == tokens
        assert sums.stopped == stopped
