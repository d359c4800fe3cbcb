"""The number of processes a sweep runs in, and what starts them."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import AbstractContextManager, nullcontext

from headscope.errors import HeadscopeError
from headscope.measure.backend import Backend
from headscope.measure.in_process import InProcess
from headscope.models.packages import check_packages, install_command, is_installed

FIRST, LAST = (3, 11), (3, 14)
MACHINES = {"Linux": ("x86_64", "aarch64"), "Darwin": ("arm64",), "Windows": ("AMD64",)}
"""CPython versions and machines for which PyPI has a build of the Ray that the extra asks for, as
of Ray 2.60: none for Intel Macs, for Windows on ARM, and for musl."""
MAX_WORKERS = 4
"""Workers unless more are asked for: each of them holds the model."""


def workers_of(workers: int | None, address: str | None) -> tuple[int, str]:
    """The number of Ray workers, 0 for this process alone, and a line if Ray is missing.

    Raises:
        HeadscopeError: a cluster is named, and Ray is not installed or no worker asked for.
    """
    if not is_installed("ray"):
        odd = without_ray()
        if address is not None and odd:
            raise HeadscopeError(f"--address {address} needs Ray, which has no build for {odd}")
        if address is not None:
            check_packages(f"--address {address}", ["ray"])
        if workers == 0:
            return 0, ""
        if odd:
            return 0, f"Ray has no build for {odd}: one process does it all"
        command = install_command("ray")
        return 0, f"Ray is not installed: one process does it all ({command} for more)"
    if workers == 0 and address is not None:
        raise HeadscopeError("--engine-workers 0 uses no cluster, but --address names one")
    return min(MAX_WORKERS, _cores()) if workers is None else workers, ""


def without_ray() -> str:
    """The Python or system here in words if Ray has no build for it, else nothing."""
    name, system, machine = sys.implementation.name, platform.system(), platform.machine()
    libc = platform.libc_ver()[0] or "another C library" if system == "Linux" else ""
    version = ".".join(map(str, sys.version_info[:2]))
    if name != "cpython" or not FIRST <= sys.version_info[:2] <= LAST:
        return f"{'Python' if name == 'cpython' else name} {version}"
    if machine not in MACHINES.get(system, ()):
        return f"{system} on {machine}"
    return "" if libc in ("", "glibc") else f"Linux with {libc}, only with glibc"


def backend_of(workers: int, address: str | None) -> AbstractContextManager[Backend]:
    """The backend that reads the models of a sweep, to be used in a `with` statement."""
    if workers == 0:
        return nullcontext(InProcess())
    import torch

    from headscope.studies.sweep.shards import Shards

    return Shards(workers, address=address, threads=max(1, torch.get_num_threads() // workers))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
