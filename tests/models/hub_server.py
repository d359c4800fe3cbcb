"""The Hugging Face hub's protocol on this machine: what its client asks when it downloads."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from huggingface_hub import close_session, constants


def commit_of(folder: Path) -> str:
    """The commit whose files are those of a folder."""
    return sha1(str(folder).encode()).hexdigest()


class Hub(ThreadingHTTPServer):
    """The models of a hub, and what goes wrong with it; each request has a thread."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.models: dict[str, dict[str, Path]] = {}
        """Folders by name and revision."""
        self.gated = ""
        self.status = 200
        """Any other number is the answer to everything."""
        self.damaged = ""
        """Name of a file whose last bytes are sent as zeros."""
        self.is_silent = False
        self.is_over = threading.Event()

    def folder(self, name: str, revision: str) -> Path | None:
        """The files of a revision or a commit, if the model has it."""
        folders = self.models[name].items()
        return next((f for key, f in folders if revision in (key, commit_of(f))), None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, but not that a client hangs up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def use(url: str, monkeypatch: Any, cache: Path) -> None:
    """Have the client of this process ask this hub, as HF_ENDPOINT does from its start."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    close_session()


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """The hub, as long as it is there."""
    hub = Hub()
    threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        hub.is_over.set()
        close_session()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.server.is_silent:
            self.server.is_over.wait(60)
        elif self.server.status != 200:
            self._send(self.server.status)
        elif match := re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/([^?]+))?", path):
            self._facts(*match.groups())
        elif match := re.fullmatch(r"/(.+?)/resolve/(.+?)/(.+)", path):
            self._file(*match.groups())
        else:
            self._refuse(404, "EntryNotFound")

    do_HEAD = do_GET  # noqa: N815

    def _facts(self, name: str, kind: str | None, revision: str | None) -> None:
        if name not in self.server.models:
            self._refuse(404, "RepoNotFound")
            return
        folder = self.server.folder(name, revision or "main")
        if folder is None:
            self._refuse(404, "RevisionNotFound")
            return
        files = [_entry(file) for file in folder.iterdir()]
        facts = {"id": name, "sha": commit_of(folder)}
        self._send(200, json.dumps(files if kind == "tree" else facts).encode())

    def _file(self, name: str, revision: str, file: str) -> None:
        folder = self.server.folder(name, revision)
        if name == self.server.gated or folder is None:
            self._refuse(401, "GatedRepo")
            return
        content = (folder / file).read_bytes()
        etag = f'"{_checksum(folder / file)}"'
        if file == self.server.damaged:
            content = content[:-64] + bytes(64)
        self._send(200, content, {"ETag": etag, "X-Repo-Commit": commit_of(folder)})

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(
        self, status: int, body: bytes = b"{}", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entry(file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    return {"type": "file", "path": file.name, "size": size, "oid": _checksum(file)}


def _checksum(file: Path) -> str:
    """The sha256 of a large file; the hub names others by git's sha1."""
    is_large = file.suffix == ".safetensors" or file.name == "tokenizer.json"
    return (sha256 if is_large else sha1)(file.read_bytes()).hexdigest()
