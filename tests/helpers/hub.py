"""The Hugging Face hub's protocol on this machine: what its own client asks when it downloads.

Revisions are commits of whole folders. Large files lie on another host (here another port), to which
the hub redirects; small ones at another path of the hub. Anything may go wrong, by a `Fault`.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from huggingface_hub import close_session, constants
from huggingface_hub.utils import _http

from tests.helpers.loopback import QuietHandler, serve

LARGE = (".safetensors", ".bin")
"""What is kept in large file storage."""


@dataclass
class Fault:
    """What goes wrong with the answers to some requests."""

    path: str
    """A regular expression that is searched in the path."""
    method: str = "GET|HEAD"
    times: int = 1_000
    """How many requests it happens to."""
    status: int = 0
    """The answer, where it is none of those that are due."""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Bytes of the body after which the connection breaks."""
    stalls: bool = False
    """It does not break there, and nothing more comes."""
    content: bytes | None = None
    """Other content than the file's, sent as if it were."""
    ignores_range: bool = False


@dataclass
class Hub:
    """The models of a hub, what goes wrong with it, and what it was asked."""

    url: str = ""
    storage: str = ""
    """Address of the large files."""
    models: dict[str, dict[str, Path]] = field(default_factory=dict)
    """By name and by revision the folder."""
    renamed: dict[str, str] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and Range of each."""
    chunks: str = ""
    """Address of a Xet storage, which large files are announced to lie in; none by default."""
    told: list[str] = field(default_factory=list)
    """The tokens that came to the storage, which is none of the hub's hosts."""
    is_over: threading.Event = field(default_factory=threading.Event)

    def commit(self, name: str, revision: str) -> str:
        """The commit that a revision stands for; a commit stands for itself.

        Raises:
            KeyError: the model has no such revision.
        """
        commits = {key: _commit(name, folder) for key, folder in self.models[name].items()}
        return revision if revision in commits.values() else commits[revision]

    def folder(self, name: str, commit: str) -> Path:
        """The files of a commit."""
        folders = self.models[name].values()
        return next(folder for folder in folders if _commit(name, folder) == commit)

    def asked(self, pattern: str) -> list[str]:
        """The requests whose path a pattern is in, as `GET bytes=5-`."""
        found = [r for r in self.requests if re.search(pattern, r[1])]
        return [f"{method} {span}".strip() for method, _, span in found]


def use(hub: Hub, monkeypatch: Any, cache: Path) -> Path:
    """Have the client of this process ask this hub, as HF_ENDPOINT does from its start."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(_http, "_HUB_ORIGINS", frozenset({_http._url_origin(hub.url)}))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    close_session()
    return cache


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """The hub, as long as it is there."""
    hub = Hub()
    of_hub, of_storage = (type(base.__name__, (base,), {"hub": hub}) for base in (_Pages, _Storage))
    try:
        with serve(of_hub) as hub.url, serve(of_storage) as hub.storage:
            yield hub
    finally:
        hub.is_over.set()
        close_session()


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:  # noqa: N802, as the standard library asks
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range", "")))
        fault = self._fault(path)
        if fault.status:
            self.reply(fault.status, b"{}", fault, **fault.headers)
        else:
            self.answer(path, fault)

    do_HEAD = do_GET  # noqa: N815

    def answer(self, path: str, fault: Fault) -> None:
        raise NotImplementedError

    def reply(self, status: int, body: bytes, fault: Fault, **headers: str) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: fault.cut])
        if fault.cut is not None:
            self.wfile.flush()
            if fault.stalls:
                self.hub.is_over.wait(60)
            self.close_connection = True

    def _fault(self, path: str) -> Fault:
        for fault in self.hub.faults:
            if fault.times and re.search(fault.path, path) and self.command in fault.method:
                fault.times -= 1
                return fault
        return Fault("")


class _Pages(_Handler):
    """What the hub itself answers: facts about models, and where files are."""

    def answer(self, path: str, fault: Fault) -> None:
        if path == "/api/agent-harnesses":  # what the client asks about itself
            self._refuse(404, "EntryNotFound", "Not found", fault)
            return
        if "/xet-read-token/" in path:
            to_storage = {"X-Xet-Cas-Url": self.hub.chunks, "X-Xet-Access-Token": "token"}
            self.reply(200, b"{}", fault, **to_storage, **{"X-Xet-Token-Expiration": "99999999999"})
            return
        api = re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/([^?]+))?", path)
        kept = re.fullmatch(r"/api/resolve-cache/models/(.+)/([0-9a-f]{40})/(.+)", path)
        file = re.fullmatch(r"/(.+?)/resolve/(.+?)/(.+)", path)
        name, rest = _names(path, kept or file or api)
        if name in self.hub.renamed:
            self.reply(307, b"", fault, Location=self.path.replace(name, self.hub.renamed[name], 1))
            return
        if name not in self.hub.models:
            self._refuse(404, "RepoNotFound", "Repository not found", fault)
            return
        try:
            commit = self.hub.commit(name, rest[-2] if kept or file else (rest[-1] or "main"))
        except KeyError:
            self._refuse(404, "RevisionNotFound", "Invalid rev id", fault)
            return
        folder = self.hub.folder(name, commit)
        if kept or file:
            self._file(name, commit, folder, rest[-1], fault, is_kept=kept is not None)
        elif rest[0] == "tree":
            files = [_entry(folder, path) for path in _files(folder)]
            self.reply(200, json.dumps(files).encode(), fault, **{"Content-Type": _JSON})
        else:
            facts = {"id": name, "sha": commit, "private": False, "tags": [], "downloads": 0}
            facts |= {"siblings": [{"rfilename": path} for path in _files(folder)]}
            self.reply(200, json.dumps(facts).encode(), fault, **{"Content-Type": _JSON})

    def _file(
        self, name: str, commit: str, folder: Path, file: str, fault: Fault, *, is_kept: bool
    ) -> None:
        named = {"X-Repo-Commit": commit}
        if name in self.hub.gated:
            self._refuse(401, "GatedRepo", f"Access to model {name} is restricted", fault)
        elif file not in _files(folder):
            self._refuse(404, "EntryNotFound", "Entry not found", fault, **named)
        elif file.endswith(LARGE):
            content = (folder / file).read_bytes()
            etag, size = hashlib.sha256(content).hexdigest(), str(len(content))
            place = f"{self.hub.storage}/{name}/{etag}?X-Amz-Signature=0"
            linked = {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": size, "Location": place}
            if self.hub.chunks:
                route = f"{self.hub.url}/api/models/{name}/xet-read-token/{commit}"
                linked |= {"X-Xet-Hash": etag, "X-Xet-Refresh-Route": route}
            self.reply(302, b"", fault, **named, **linked)
        elif not is_kept:
            place = f"/api/resolve-cache/models/{name}/{commit}/{file}"
            self.reply(307, b"", fault, **named, Location=place)
        else:
            content = (folder / file).read_bytes()
            etag = _git_blob(content)
            body = content if fault.content is None else fault.content
            self.reply(200, body, fault, **named, ETag=f'"{etag}"')

    def _refuse(self, status: int, code: str, message: str, fault: Fault, **headers: str) -> None:
        named = {"X-Error-Code": code, "X-Error-Message": message, "Content-Type": _JSON}
        self.reply(status, json.dumps({"error": message}).encode(), fault, **named, **headers)


class _Storage(_Handler):
    """What the storage of large files answers, by the checksum that is a file's name there."""

    def answer(self, path: str, fault: Fault) -> None:
        self.hub.told += [self.headers[key] for key in ("Authorization",) if key in self.headers]
        _, name, etag = re.split(r"/(.+)/", path)
        folders = self.hub.models[name].values()
        contents = [(folder / file).read_bytes() for folder in folders for file in _files(folder)]
        content = next(c for c in contents if hashlib.sha256(c).hexdigest() == etag)
        content = content if fault.content is None else fault.content
        span = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if span is None or fault.ignores_range:
            self.reply(200, content, fault)
            return
        first, size = int(span[1]), len(content)
        place = {"Content-Range": f"bytes {first}-{size - 1}/{size}"}
        self.reply(206, content[first:], fault, **place)


_JSON = "application/json"


def _names(path: str, match: re.Match[str] | None) -> tuple[str, tuple[Any, ...]]:
    if match is None:
        raise ValueError(f"the hub's protocol has no {path}")
    name, *rest = match.groups()
    return name, tuple(rest)


def _files(folder: Path) -> list[str]:
    return sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file())


def _entry(folder: Path, path: str) -> dict[str, Any]:
    content = (folder / path).read_bytes()
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content)}
    entry["oid"] = _git_blob(content)
    if path.endswith(LARGE):
        sha256 = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 134}
    return entry


def _git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _commit(name: str, folder: Path) -> str:
    oids = "".join(_entry(folder, path)["oid"] + path for path in _files(folder))
    return hashlib.sha1((name + oids).encode()).hexdigest()
