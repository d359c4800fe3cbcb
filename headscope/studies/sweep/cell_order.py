"""Cells one after the other, or by workers two at a time: one is judged while the next is read.

A cell that has read keeps one worker, which holds its model, until it has its examples; the next
cell reads by all others meanwhile, and by that one too as soon as it is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition
from typing import Protocol, TypeVar, runtime_checkable

from headscope.measure.backend import Backend


class Turns:
    """Who reads, and who keeps a worker. Cells are any objects; each runs in a thread of its own.

    Args:
        workers: how many there are.

    >>> turns = Turns(2)
    >>> turns.begin("a"), turns.workers("a")
    (None, [0, 1])
    >>> turns.hand_on("a"), turns.begin("b"), turns.workers("b")
    (None, None, [1])
    >>> turns.end("a"), turns.workers("b")
    (None, [0, 1])
    """

    def __init__(self, workers: int) -> None:
        self._all = range(workers)
        self._reading: object | None = None
        self._kept: dict[int, object] = {}
        self._stopped = False
        self._changed = Condition()

    def begin(self, cell: object) -> None:
        """Wait until no other cell reads and some worker is free; then this cell reads.

        Raises:
            KeyboardInterrupt: all was stopped meanwhile.
        """

        def ready() -> bool:
            return self._stopped or (self._reading in (None, cell) and bool(self._free(cell)))

        with self._changed:
            self._changed.wait_for(ready)
            if self._stopped:
                raise KeyboardInterrupt
            self._drop(cell)
            self._reading = cell
            self._changed.notify_all()

    def hand_on(self, cell: object) -> None:
        """The cell has read: it keeps one worker, and the next one may begin."""
        with self._changed:
            if self._reading is cell:
                self._kept[self._free(cell)[0]] = cell
                self._reading = None
            self._changed.notify_all()

    def end(self, cell: object) -> None:
        """The cell needs no worker any more."""
        with self._changed:
            self._drop(cell)
            self._changed.notify_all()

    def workers(self, cell: object) -> list[int]:
        """Those that a cell may use now: what it kept, or all that no other keeps.

        Raises:
            KeyboardInterrupt: all was stopped.
        """
        with self._changed:
            if self._stopped:
                raise KeyboardInterrupt
            reserved = [number for number, owner in self._kept.items() if owner is cell]
            return reserved or self._free(cell)

    def stop(self) -> None:
        """No cell begins any more, and those that run are interrupted when they ask for workers."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _free(self, cell: object) -> list[int]:
        return [number for number in self._all if self._kept.get(number, cell) is cell]

    def _drop(self, cell: object) -> None:
        self._kept = {number: owner for number, owner in self._kept.items() if owner is not cell}
        if self._reading is cell:
            self._reading = None


AT_ONCE = 2
"""Cells that run: a third would only wait for its turn, and hold sums in memory."""

_Done = TypeVar("_Done")


@runtime_checkable
class Shared(Backend, Protocol):
    """A backend whose workers can read one cell while another is judged."""

    count: int
    """Its workers."""

    def for_cell(self, turns: Turns) -> Backend:
        """The same workers for one of several cells, which take turns."""


@contextmanager
def in_turn(
    backend: Backend, cells: Sequence[Callable[[Backend], _Done]]
) -> Iterator[Iterator[_Done]]:
    """Yield the cells' results in order; when it is left early, cells that run are stopped.

    Args:
        backend: what reads them; one that is shared reads the next while a cell is judged.
        cells: each runs by the backend that it is given.
    """
    if not isinstance(backend, Shared):
        yield (cell(backend) for cell in cells)
        return
    turns = Turns(backend.count)

    def run(cell: Callable[[Backend], _Done]) -> _Done:
        cell_backend = backend.for_cell(turns)
        try:
            return cell(cell_backend)
        finally:
            cell_backend.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = [pool.submit(run, cell) for cell in cells]
        try:
            yield (result.result() for result in results)
        finally:
            turns.stop()
            pool.shutdown(cancel_futures=True)
