"""Cells one after the other, or by workers two at a time: one is judged while the next is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar, runtime_checkable

from headscope.measure.backend import Backend
from headscope.studies.sweep.cell_order import Turns

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
