"""Few long windows of text: intervals come from stretches within them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.measure.batch_reader import BatchReader
from headscope.measure.batches import AT_ONCE, STRETCH, STRETCHES, Batch, TextBlocks, assign_blocks
from headscope.measure.example_reader import Sample
from headscope.measure.sink_positions import LATE
from headscope.measure.tally import BLOCKS, MIN_BLOCKS, Tally
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.relations.controls import same_distance
from headscope.relations.effects import EFFECTS, sum_names
from headscope.relations.pairs import pairs
from headscope.relations.relation import Relation, Threshold
from headscope.stimuli.natural_text import TextWindows
from tests.helpers.models import save_model

LENGTH = 1024
EVERY = (*relations_of(["all"]), *EFFECTS)


def long_windows(counts: list[int], length: int) -> list[Window]:
    """Windows of documents of so many windows each."""
    numbers = np.repeat(np.arange(len(counts)), counts)
    return [
        Window(f"w{i}", np.arange(length), ("a",) * length, document=int(n))
        for i, n in enumerate(numbers)
    ]


def blocks_of_text(windows: list[Window]) -> list[np.ndarray]:
    """The block of each query when all windows have come, however they come."""
    dealer = TextBlocks()
    blocks: list[np.ndarray] = []
    for start in range(0, len(windows), AT_ONCE):
        batch = dealer.deal(windows[start : start + AT_ONCE])
        if batch.merge is not None:
            blocks = [batch.merge[each] for each in blocks]
        blocks += [batch.blocks_of_queries(row) for row in range(len(batch.windows))]
    return blocks


@pytest.mark.parametrize("counts", [[1], [4], [2, 1, 1], [9, 1], [200], [1, 2, 3, 4, 5, 6, 7]])
@pytest.mark.parametrize("length", [300, 2048, 5000])
def test_queries_of_long_windows_lie_in_stretches_of_text(counts, length):
    windows = long_windows(counts, length)
    blocks = np.concatenate(blocks_of_text(windows))
    documents = np.repeat([window.document for window in windows], length)
    sizes = np.bincount(blocks, minlength=BLOCKS)
    used = np.flatnonzero(sizes)
    assert MIN_BLOCKS <= len(used) <= STRETCHES
    assert sizes[used].min() >= STRETCH / 2
    # each block is one stretch of one document: it is never left and entered again
    assert (np.diff(blocks) != 0).sum() == len(used) - 1
    assert all(len(np.unique(documents[blocks == block])) == 1 for block in used)


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    return load_model(str(save_model("llama", tokenizer, folder, context=LENGTH)))


@pytest.fixture(scope="module")
def text(model) -> Batch:
    windows = TextWindows(
        asked_corpora("gum"), model.tokenizer, max_tokens=4 * LENGTH, max_length=LENGTH, seed=0
    )
    long = [window for window in windows if len(window) > LENGTH / 2]
    assert len(long) < MIN_BLOCKS
    return assign_blocks(long)


def tally_of(model, batch: Batch, relations: Sequence[Relation] = EVERY) -> Tally:
    """The sums of relations and effects in one batch."""
    reader = BatchReader(model, relations, seed=0)
    tally = Tally.zeros(sum_names(relations), model.layers, model.heads)
    for each in reader.read(reader.prepare(batch), Sample(0, seed=0)).readers:
        each.add_to(tally)
    return tally


def test_stretches_change_no_sum_and_hold_the_controls_of_their_queries(model, text):
    cut, whole = tally_of(model, text), tally_of(model, replace(text, query_blocks={}))
    for name, array in cut.arrays().items():
        own = array.sum(0), whole.arrays()[name].sum(0)
        assert np.allclose(*own, rtol=1e-4, atol=1e-4), name
    blocks = (cut.queries > 0).sum(0)
    assert (blocks[whole.queries.sum(0) > 200] >= MIN_BLOCKS).all()
    index = cut.relations.index("positional/offset-1")
    assert (cut.queries[:, index] > 0).sum() > 2 * (whole.queries[:, index] > 0).sum()


def test_a_control_in_a_stretch_without_queries_counts_where_its_query_lies(model, text):
    def one_query(window: Window):
        return pairs(np.array([400]), np.array([390]))

    once = Relation("made", "once", one_query, same_distance, Threshold(0.1, "", ""))
    cut, whole = (tally_of(model, each, [once]) for each in (text, replace(text, query_blocks={})))
    assert (cut.queries > 0).sum() == len(text.windows)
    assert (whole.control.sum(0) > 0).all()
    assert np.allclose(cut.control.sum(0), whole.control.sum(0))


def test_late_queries_of_a_long_window_lie_in_several_stretches(model, text):
    tally = tally_of(model, text)
    late = tally.queries[:, tally.relations.index("sink/position")]
    assert late.sum() > LATE * len(text.windows)
    assert (late > 0).sum() > len(text.windows)


def test_the_first_lines_say_that_intervals_rest_on_stretches(tmp_path, command):
    (tmp_path / "one.txt").write_text("The old key was in the house, and she told them. " * 60)
    options = ["--types", "positional,syntactic", "--quick", "--out", tmp_path / "run"]
    _, printed, _ = command("classify", "mini", "--corpus", tmp_path / "one.txt", *options)
    before_heads = printed.partition("not the default")[0]
    assert "16 blocks" in " ".join(before_heads.split())
    assert printed.count("other texts") == 1
