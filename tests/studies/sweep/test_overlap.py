"""Two cells at once: one is read while the other is judged, and never two are read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headscope.errors import HeadscopeError
from headscope.measure.in_process import InProcess
from headscope.studies.sweep.cell_order import Turns, in_turn
from headscope.studies.sweep.run_cells import run_cells
from headscope.studies.sweep.shards import Shards
from headscope.studies.sweep.spec import read_spec

SOON = 20
"""Seconds within which threads that may go on do so."""


class Workers(InProcess):
    """A backend that only says who has which workers."""

    def __init__(self, turns: Turns | None = None, count: int = 2) -> None:
        super().__init__()
        self.turns, self.count = turns or Turns(count), count

    def for_cell(self, turns: Turns) -> Workers:
        return Workers(turns, self.count)

    def close(self) -> None:
        self.turns.end(self)


def test_the_next_cell_is_read_while_one_is_judged():
    reads, judged = [threading.Event() for _ in range(3)], [threading.Event() for _ in range(3)]
    reading: list[int] = []

    def cell(number: int):
        def run(backend: Workers) -> tuple[int, list[int]]:
            backend.turns.begin(backend)
            reading.append(number)
            assert len(reading) == 1
            had = backend.turns.workers(backend)
            reading.remove(number)
            backend.turns.hand_on(backend)
            reads[number].set()
            if number < 2:  # its judging ends when the next one has been read
                assert reads[number + 1].wait(SOON)
            judged[number].set()
            return number, had

        return run

    with in_turn(Workers(), [cell(number) for number in range(3)]) as coming:
        done = list(coming)
    assert [number for number, _ in done] == [0, 1, 2]
    # the second was read by the worker that the first had left
    assert done[0][1] == [0, 1]
    assert done[1][1] == [1]


def test_one_worker_reads_the_next_cell_when_the_examples_of_one_are_there():
    turns = Turns(1)
    turns.begin("a")
    turns.hand_on("a")
    began = threading.Event()

    def begin() -> None:
        turns.begin("b")
        began.set()

    thread = threading.Thread(target=begin)
    thread.start()
    assert not began.wait(0.2)
    turns.end("a")
    assert began.wait(SOON)
    thread.join()
    assert turns.workers("b") == [0]


def test_a_worker_that_is_kept_joins_the_reading_when_it_is_free():
    turns = Turns(3)
    turns.begin("a")
    turns.hand_on("a")
    turns.begin("b")
    assert turns.workers("a") == [0]
    assert turns.workers("b") == [1, 2]
    turns.end("a")
    assert turns.workers("b") == [0, 1, 2]
    turns.hand_on("b")
    assert turns.workers("b") == [0]


def test_what_fails_lets_the_others_go_on():
    def cell(number: int):
        def run(backend: Workers) -> int:
            backend.turns.begin(backend)
            if number == 1:
                raise HeadscopeError("it broke")
            return number

        return run

    found = []
    with in_turn(Workers(), [cell(number) for number in range(4)]) as coming:
        for _ in range(4):
            try:
                found.append(next(coming))
            except HeadscopeError as error:
                found.append(str(error))
                break
    assert found == [0, "it broke"]


def test_whoever_leaves_stops_those_that_run_and_those_that_wait():
    ended: list[str] = []
    started = threading.Event()

    def reads(backend: Workers) -> None:
        backend.turns.begin(backend)
        started.set()
        try:
            while True:  # asks for workers at each shard
                backend.turns.workers(backend)
        except KeyboardInterrupt:
            ended.append("reads")
            raise

    def waits(backend: Workers) -> None:
        started.wait(SOON)
        try:
            backend.turns.begin(backend)
        except KeyboardInterrupt:
            ended.append("waits")
            raise

    def never(backend: Workers) -> None:
        ended.append("never")

    def leave() -> None:
        with in_turn(Workers(), [reads, waits, never]):
            assert started.wait(SOON)
            raise KeyboardInterrupt("by the user")

    with pytest.raises(KeyboardInterrupt, match="by the user"):
        leave()
    assert sorted(ended) == ["reads", "waits"]


def test_one_process_runs_cells_one_after_the_other():
    order: list[str] = []

    def cell(name: str):
        return lambda backend: order.append(name) or name

    with in_turn(InProcess(), [cell("a"), cell("b")]) as coming:
        assert next(coming) == "a"
        assert order == ["a"]
        assert next(coming) == "b"


FILES = ("evidence.csv", "heads.csv", "sums.npz", "patterns/examples.safetensors")


@pytest.mark.slow
def test_a_sweep_by_workers_writes_the_same_bytes_as_by_one_process(gpt2_folder, story, tmp_path):
    pytest.importorskip("ray")
    corpora = sorted(str(path) for path in Path(story).glob("*.txt"))
    how = {"types": ["positional", "induction"], "max_tokens": 1500}
    seen: dict[str, list[tuple[int, int]]] = {"one": [], "two": []}
    cells = {}
    for name in ("one", "two"):
        spec = read_spec(
            None, models=[str(gpt2_folder)], corpora=corpora, out=tmp_path / name, **how
        )
        told = seen[name]

        def note(done: int, total: int, told: list[tuple[int, int]] = told) -> None:
            told.append((done, total))

        if name == "one":
            cells[name] = run_cells(spec, progress=note)
        else:
            with Shards(2) as backend:
                cells[name] = run_cells(spec, backend=backend, progress=note)
    assert [cell.status for cell in cells["two"]] == ["complete"] * len(corpora)
    assert [cell.counts for cell in cells["one"]] == [cell.counts for cell in cells["two"]]
    for cell in cells["one"]:
        for file in FILES:
            one, two = (tmp_path / name / cell.folder / file for name in ("one", "two"))
            assert one.read_bytes() == two.read_bytes(), file
    for told in seen.values():
        assert told[-1][0] == told[-1][1]
        assert [done for done, _ in told] == sorted(done for done, _ in told)
