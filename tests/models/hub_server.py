"""The Hugging Face hub's protocol on this machine: what its client asks when it downloads."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from huggingface_hub import close_session, constants


@dataclass
class Hub:
    """The models of a hub, and what goes wrong with it."""

    url: str = ""
    models: dict[str, dict[str, Path]] = field(default_factory=dict)
    """Folders by name and revision."""
    gated: str = ""
    status: int = 200
    """Any other number is the answer to everything."""
    is_silent: bool = False
    is_over: threading.Event = field(default_factory=threading.Event)

    def commit(self, name: str, revision: str) -> str:
        """The commit of a revision; a commit stands for itself.

        Raises:
            KeyError: the model has no such revision.
        """
        commits = {key: _commit(folder) for key, folder in self.models[name].items()}
        return revision if revision in commits.values() else commits[revision]

    def folder(self, name: str, commit: str) -> Path:
        """The files of a commit."""
        return next(f for f in self.models[name].values() if _commit(f) == commit)


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
    server = _Server(("127.0.0.1", 0), type("_Pages", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        hub.is_over.set()
        close_session()


class _Server(ThreadingHTTPServer):
    """Each request in a thread; a client that hangs up is no error to print."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.hub.is_silent:
            self.hub.is_over.wait(60)
        elif self.hub.status != 200:
            self._reply({}, self.hub.status)
        elif match := re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/([^?]+))?", path):
            self._facts(*match.groups())
        elif match := re.fullmatch(r"/(.+?)/resolve/(.+?)/(.+)", path):
            self._file(*match.groups())
        else:
            self._refuse(404, "EntryNotFound")

    do_HEAD = do_GET  # noqa: N815

    def _facts(self, name: str, kind: str | None, revision: str | None) -> None:
        if name not in self.hub.models:
            self._refuse(404, "RepoNotFound")
            return
        try:
            commit = self.hub.commit(name, revision or "main")
        except KeyError:
            self._refuse(404, "RevisionNotFound")
            return
        files = self.hub.folder(name, commit).iterdir()
        if kind == "tree":
            self._reply([_entry(file) for file in files])
        else:
            facts = {"id": name, "sha": commit, "private": False, "tags": [], "downloads": 0}
            self._reply(facts | {"siblings": [{"rfilename": file.name} for file in files]})

    def _file(self, name: str, revision: str, file: str) -> None:
        if name == self.hub.gated:
            self._refuse(401, "GatedRepo")
            return
        commit = self.hub.commit(name, revision)
        content = (self.hub.folder(name, commit) / file).read_bytes()
        self._send(content, 200, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": commit})

    def _refuse(self, status: int, code: str) -> None:
        self._reply({"error": code}, status, **{"X-Error-Code": code, "X-Error-Message": code})

    def _reply(self, facts: Any, status: int = 200, **headers: str) -> None:
        headers |= {"Content-Type": "application/json"}
        self._send(json.dumps(facts).encode(), status, headers)

    def _send(self, body: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entry(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    return {"type": "file", "path": file.name, "size": len(content), "oid": _oid(content)}


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _commit(folder: Path) -> str:
    oids = "".join(file.name + _oid(file.read_bytes()) for file in sorted(folder.iterdir()))
    return hashlib.sha1(oids.encode()).hexdigest()
