"""Several runs of a sweep at once: processes of this machine, or of a Ray cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TypeVar

from headscope.errors import HeadscopeError, first_line
from headscope.packages import optional_package

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def results_of_processes(
    function: Callable[[_Item], _Result], items: Sequence[_Item], workers: int
) -> Generator[_Result, None, None]:
    """Call a function in several processes of this machine; yield the results in order.

    Raises:
        HeadscopeError: a process was killed.
    """
    threads = max(1, (os.cpu_count() or 1) // workers)
    others = active_children()
    with ProcessPoolExecutor(workers, get_context("spawn"), _start, (threads,)) as pool:
        try:
            yield from pool.map(function, items)
        except BrokenProcessPool as error:
            raise HeadscopeError(
                "a process of the sweep was killed, perhaps because memory ran out; use fewer "
                "--workers and repeat the command: complete runs are kept"
            ) from error
        except BaseException:  # else a stop would wait for the runs to end
            for process in set(active_children()).difference(others):
                process.terminate()
            raise


def _start(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends the others
    import torch

    torch.set_num_threads(threads)


def results_of_cluster(
    function: Callable[[_Item], _Result], items: Sequence[_Item], workers: int, address: str
) -> Generator[_Result, None, None]:
    """Connect to a Ray cluster and call a function in its processes; yield the results in order.

    The processes start in the current folder, which all machines of the cluster must share.

    Raises:
        HeadscopeError: Ray is not installed, or the cluster cannot be used.
    """
    optional_package(f"--address {address}", "ray")
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise HeadscopeError(
            f"Ray at {address} cannot be used: {first_line(error):.300}"
        ) from error
    return _results_of_pool(function, items, workers)


def _results_of_pool(
    function: Callable[[_Item], _Result], items: Sequence[_Item], workers: int
) -> Generator[_Result, None, None]:
    import ray
    from ray.util.multiprocessing import Pool

    gpus = min(1.0, ray.cluster_resources().get("GPU", 0) / workers)
    try:
        with Pool(workers, os.chdir, (Path.cwd(),), ray_remote_args={"num_gpus": gpus}) as pool:
            yield from pool.imap(function, items)
    finally:
        ray.shutdown()
