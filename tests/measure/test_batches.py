"""A document lies in one block; of too few documents it is said that their stretches do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headscope.corpus.text import LONGEST
from headscope.corpus.window import Window
from headscope.measure.batches import (
    AT_ONCE,
    STRETCHES,
    TextBlocks,
    assign_blocks,
    in_stretches,
)
from headscope.measure.reading import prefetched, read
from headscope.measure.sums import Sums, names_beside_text
from headscope.measure.tally import BLOCKS, MIN_BLOCKS, Tally
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.natural_text import TextWindows
from tests.helpers.readers import CountingReader


def made_up(lengths: list[int], *, in_turns: bool = False) -> list[Window]:
    """Windows of documents of so many windows each, one after the other or in turns."""
    places = [(place, number) for number, count in enumerate(lengths) for place in range(count)]
    order = sorted(places) if in_turns else places
    return [Window(f"{n}#{i}", np.arange(9), ("a",) * 9, document=n) for i, n in order]


def blocks_in_the_end(windows: list[Window]) -> np.ndarray:
    """The block of each window when all have come; the sums are those of the blocks."""
    tally = Tally.zeros(("a/b",), 1, 1)
    found = np.empty(0, int)
    dealer = TextBlocks()
    for start in range(0, len(windows), AT_ONCE):
        batch = dealer.deal(windows[start : start + AT_ONCE])
        if batch.merge is not None:
            tally.merge(batch.merge)
            found = batch.merge[found]
        np.add.at(tally.queries[:, 0], batch.blocks, 1)
        found = np.append(found, batch.blocks)
    assert np.bincount(found, minlength=BLOCKS).tolist() == tally.queries[:, 0].tolist()
    return found


MANY = [[3] * 8, [40, 1, 1, 1, 1, 1, 1, 1], [2] * 1000, [500, *[5] * 70]]


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("lengths", MANY, ids=lambda own: f"{len(own)} of {sum(own)}")
def test_all_windows_of_a_document_lie_in_one_block(lengths, in_turns):
    windows = made_up(lengths, in_turns=in_turns)
    blocks = blocks_in_the_end(windows)
    of_document = {w.document: set() for w in windows}
    for window, block in zip(windows, blocks.tolist(), strict=True):
        of_document[window.document].add(block)
    assert {len(own) for own in of_document.values()} == {1}
    held = np.bincount([block for (block,) in of_document.values()], minlength=BLOCKS)
    assert np.ptp(held[: len(lengths)]) <= 1
    assert (held > 0).sum() == min(BLOCKS, len(lengths))


@pytest.mark.parametrize("lengths", [[20], [129], [5000], [1000, 1, 1, 1, 1, 1, 1], [300] * 7])
def test_a_few_documents_lie_in_long_stretches(lengths):
    windows = made_up(lengths)
    blocks = blocks_in_the_end(windows)
    assert MIN_BLOCKS < len(set(blocks.tolist())) <= STRETCHES
    documents = {
        b: {w.document for w, own in zip(windows, blocks, strict=True) if own == b}
        for b in set(blocks.tolist())
    }
    assert {len(own) for own in documents.values()} == {1}
    # each block is one stretch: it is never left and entered again
    assert (np.diff(blocks) != 0).sum() == len(documents) - 1


def test_the_pieces_of_a_long_text_are_one_document(tmp_path: Path):
    (tmp_path / "long.txt").write_text("All of this is said again. " * (3 * LONGEST // 27))
    (tmp_path / "short.txt").write_text("This is said once.")
    tokenizer = load_model("mini").tokenizer
    text = TextWindows([tmp_path], tokenizer, max_tokens=10**6, max_length=200, seed=0)
    numbers = {}
    for window in text:
        numbers.setdefault(window.name.split("#")[0], set()).add(window.document)
    pieces = [own for name, own in numbers.items() if name.startswith("long.")]
    assert len(pieces) >= 3
    assert len(set.union(*pieces)) == 1
    assert numbers["short"] != pieces[0]
    assert text.documents == 2


class TwoRounds:
    """Reading that asks once whether to go on, and always does."""

    interim_tokens = (30,)

    def should_stop(self, tally, number, stopped):
        return {}


def test_documents_of_other_stimuli_keep_their_blocks_when_stretches_of_text_are_merged():
    text = made_up([4, 2, *[1] * 8])
    repeats = repeats_of(32, 9)
    of_stimulus = {"text": "positional/offset-1", "repeat": "induction/repeat"}
    every = relations_of(["positional", "induction"])
    relations = [relation for relation in every if relation.id in of_stimulus.values()]
    names = tuple(relation.id for relation in relations)
    sums = Sums(Tally.zeros(names, 1, 1), beside_text=names_beside_text(relations))

    def count(tally, batch):
        for window, block in zip(batch.windows, batch.blocks, strict=True):
            tally.queries[block, names.index(of_stimulus[window.stimulus])] += 1

    read(CountingReader(count, batch_tokens=9), text, repeats, sums, stopping=TwoRounds())
    queries = dict(zip(names, sums.tally.queries.T.tolist(), strict=True))
    assert queries["induction/repeat"] == [1] * 32 + [0] * (BLOCKS - 32)
    assert queries["positional/offset-1"][:10] == [4, 2, *[1] * 8]


def test_a_window_longer_than_those_before_it_shares_no_stretch_with_the_next():
    dealer = TextBlocks()
    dealer.assign_blocks([0], [900])
    assigned = dealer.assign_blocks([0, 0], [3_000, 900])
    longer, following = (assigned.query_blocks[row].tolist() for row in range(2))
    assert len({*following}) == len({*longer}) == 8
    assert {*longer}.isdisjoint(following)


@pytest.mark.parametrize(("documents", "length"), [(2, 4_000), (MIN_BLOCKS - 1, 900)])
def test_few_documents_of_another_stimulus_are_cut_into_stretches(documents, length):
    batch = in_stretches(assign_blocks(repeats_of(documents, length)))
    blocks = np.concatenate([batch.blocks_of_queries(row) for row in range(documents)])
    assert MIN_BLOCKS <= len(set(blocks.tolist())) <= STRETCHES
    assert (np.diff(blocks) != 0).sum() == len(set(blocks.tolist())) - 1


def test_documents_enough_of_another_stimulus_are_left_whole():
    batch = assign_blocks(repeats_of(MIN_BLOCKS, 900))
    for row in range(MIN_BLOCKS):
        assert set(in_stretches(batch).blocks_of_queries(row).tolist()) == {batch.blocks[row]}


def repeats_of(documents: int, length: int) -> list[Window]:
    return [
        Window(f"r{n}", np.arange(length), ("a",) * length, document=n, stimulus="repeat")
        for n in range(documents)
    ]


def test_no_more_windows_than_a_chunk_are_asked_for():
    asked = []

    def stream():
        for i in range(1000):
            asked.append(i)
            yield Window(str(i), np.arange(9), ("a",) * 9)

    def stop(tally, batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(CountingReader(stop, batch_tokens=9), stream(), [], Sums(Tally.zeros((), 1, 1)))
    assert len(asked) == AT_ONCE


def test_prefetched_work_keeps_order_and_raises_in_its_place():
    def items():
        yield from range(5)
        raise KeyError("six")

    made = []
    with pytest.raises(KeyError, match="six"):  # noqa: PT012, items come before the error
        for item in prefetched(items()):
            made.append(item)
    assert made == [0, 1, 2, 3, 4]
    assert list(prefetched(iter([]))) == []
