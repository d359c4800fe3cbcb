"""Wheels that hold a model as data."""

from __future__ import annotations

import hashlib
from pathlib import Path
from zipfile import ZipFile

from headscope.models.packaged import PackagedModel

NAME, PACKAGE, VERSION = "tiny", "tiny-model", "1.0"
CODE = "raise SystemExit('the package was run')\n"


def build_wheel(folder: Path, files: dict[str, Path]) -> Path:
    """A wheel with these files as its data, beside code that must not run."""
    wheel = folder / f"tiny_model-{VERSION}-py3-none-any.whl"
    info = f"tiny_model-{VERSION}.dist-info"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/__init__.py", CODE)
        archive.writestr("tiny_model/model/setup.py", CODE)
        for name, path in files.items():
            archive.write(path, name)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def row_of(wheel: Path, file: str) -> PackagedModel:
    """The row of the table that pins a wheel."""
    return PackagedModel(
        name=NAME,
        title="Tiny",
        architecture="GPT-2, 2 × 2 heads",
        package=PACKAGE,
        version=VERSION,
        file=file,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        licence="CC0-1.0",
    )
