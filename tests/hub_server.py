"""A stand-in for the Hugging Face hub on loopback, with data sets to read and faults to order.

In a test: `with running(Server()) as server: … server.endpoint`. As a program, for a browser to try the panel with:

    python tests/hub_server.py --port 0

It prints its address, the value for HF_ENDPOINT, and serves until it is ended. `POST /_stand-in/heal` ends all faults.
Two servers: the hub itself, and a store on another port that it redirects downloads to, as the real one does.
"""

import argparse
import contextlib
import hashlib
import http.server
import io
import json
import random
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TOKEN = "hf_demonstration"  # the only one that opens what is private or gated
ROWS = 3_000
GROUP_ROWS = 100
TRICKLE_BYTES_PER_S = 40

ADJECTIVES = ["old", "quiet", "small", "bright", "tired", "kind", "clever", "green", "heavy", "warm"]
NOUNS = ["laptop", "kitchen", "garden", "train", "fox", "teacher", "river", "lamp", "cat", "window"]
VERBS = [
    "waits for",
    "looks at",
    "learns from",
    "repairs",
    "remembers",
    "sings to",
    "paints",
    "follows",
    "carries",
    "greets",
]
ENDS = [
    "in the morning",
    "after the rain",
    "every day",
    "without a word",
    "near the harbour",
    "and smiles",
    "again and again",
]


def sentence(draw: random.Random) -> str:
    who, whom = draw.choice(NOUNS), draw.choice(NOUNS)
    return (
        f"The {draw.choice(ADJECTIVES)} {who} {draw.choice(VERBS)} the {draw.choice(ADJECTIVES)} {whom} "
        f"{draw.choice(ENDS)}."
    )


def stories(start: int, rows: int, columns: tuple[str, ...] = ("title", "text")) -> dict[str, list[str]]:
    """Rows whose text begins with their number, so that an order can be told from what was read."""
    table: dict[str, list[str]] = {name: [] for name in columns}
    for n in range(start, start + rows):
        draw = random.Random(n)
        table[columns[0]].append(f"Story {n}: the {draw.choice(ADJECTIVES)} {draw.choice(NOUNS)}")
        table[columns[1]].append(f"[{n}] " + " ".join(sentence(draw) for _ in range(draw.randint(4, 12))))
    return table


def parquet(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=GROUP_ROWS)
    return file.getvalue()


def shards(rows: int = ROWS, count: int = 2) -> dict[str, bytes]:
    each = rows // count
    return {
        f"data/train-{n:05d}-of-{count:05d}.parquet": parquet(stories(n * each, each)) for n in range(count)
    }


@dataclass
class Repository:
    """A data set. `fault` is what goes wrong with its files, after `healthy` of them were sent well."""

    files: dict[str, bytes]
    private: bool = False
    gated: bool = False
    fault: str = ""  # a status, or: cut, slow, silent, reset
    healthy: int = 0
    heal_after: int | None = None  # the fault ends after so many failures
    retry_after_s: int | None = None
    failures: int = 0
    sent: int = 0
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1()
        for path, content in sorted(self.files.items()):
            digest.update(path.encode() + content)
        self.sha = digest.hexdigest()

    def next_fault(self) -> str:
        """What goes wrong with the file asked for now."""
        self.sent += 1
        healed = self.heal_after is not None and self.failures >= self.heal_after
        if not self.fault or healed or self.sent <= self.healthy:
            return ""
        self.failures += 1
        return self.fault


def jsonl(start: int, rows: int) -> bytes:
    table = stories(start, rows, ("name", "content"))
    lines = [json.dumps(dict(zip(table, row, strict=True))) for row in zip(*table.values(), strict=True)]
    return "\n".join(lines).encode() + b"\n"


CONFIGS = """---
configs:
- config_name: english
  data_files:
  - split: train
    path: english/train.parquet
  - split: test
    path: english/test.parquet
- config_name: small
  data_files:
  - split: train
    path: small/train.parquet
---
Two configs.
"""


OUTSIDE = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: {path}
---
"""


def repositories(heal_after: int | None = None, healthy: int = 6) -> dict[str, Repository]:
    """What the program serves. demo/broken sends so many files before it fails."""
    plain = shards()
    talk = [[{"role": "user", "content": "hello"}]] * 50
    return {
        "demo/stories": Repository(plain),
        "demo/secret": Repository(shards(1_000), private=True),
        "demo/gated": Repository(shards(1_000), gated=True),
        "demo/broken": Repository(plain, fault="503", healthy=healthy, heal_after=heal_after),
        "demo/limited": Repository(plain, fault="429", heal_after=2, retry_after_s=1),
        "demo/numbers": Repository({"train.parquet": parquet({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})}),
        "demo/chat": Repository({"train.parquet": parquet({"messages": talk, "score": [1] * 50})}),
        "demo/pairs": Repository({"train.parquet": parquet(stories(0, 500, ("question", "answer")))}),
        "demo/lines": Repository({"train.jsonl": jsonl(0, 1_500), "test.jsonl": jsonl(1_500, 100)}),
        "demo/configs": Repository(
            {
                "README.md": CONFIGS.encode(),
                "english/train.parquet": parquet(stories(0, 1_000)),
                "english/test.parquet": parquet(stories(1_000, 100)),
                "small/train.parquet": parquet(stories(2_000, 300)),
            }
        ),
        "demo/plain": Repository({"tale.txt": "\n\n".join(stories(0, 300)["text"]).encode()}),
        "demo/tables": Repository(
            {"train.csv": b"id,text\n" + b"".join(b'%d,"one, two"\n' % n for n in range(90))}
        ),
        "demo/pictures": Repository({"a.png": b"\x89PNG", "b.png": b"\x89PNG"}),
        "demo/script": Repository({"script.py": b"raise SystemExit('this ran')\n"}),
    }


class Server:
    """The two servers. `requests` are (server, method, path, headers); `bytes_sent` counts file contents."""

    def __init__(self, held: dict[str, Repository], port: int = 0) -> None:
        self.held = held
        self.requests: list[tuple[str, str, str, dict[str, str]]] = []
        self.bytes_sent = 0
        self.stopping = threading.Event()
        self.hub = self._serve("hub", port)
        self.store = self._serve("store", 0)
        self.endpoint = f"http://127.0.0.1:{self.hub.server_port}"

    def _serve(self, name: str, port: int) -> http.server.ThreadingHTTPServer:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: Any) -> None: ...

            def _answer(self) -> None:
                headers = {key.lower(): value for key, value in self.headers.items()}
                outer.requests.append((name, self.command, self.path, headers))
                body = self.rfile.read(int(headers.get("content-length", 0)))
                with contextlib.suppress(OSError):  # the client has gone
                    (outer.answer_hub if name == "hub" else outer.answer_store)(self, headers, body)

            do_GET = do_HEAD = do_POST = _answer  # noqa: N815

        class Quiet(http.server.ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that is gone is none of ours."""

        server = Quiet(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def heal(self) -> None:
        for repository in self.held.values():
            repository.fault = ""

    def downloads(self) -> list[str]:
        """Paths of what was asked of the store."""
        return [path for name, method, path, _ in self.requests if name == "store" and method == "GET"]

    def answer_hub(
        self, handler: http.server.BaseHTTPRequestHandler, headers: dict[str, str], body: bytes
    ) -> None:
        parts = urllib.parse.urlsplit(handler.path)
        path, query = urllib.parse.unquote(parts.path), dict(urllib.parse.parse_qsl(parts.query))
        allowed = headers.get("authorization") == f"Bearer {TOKEN}"
        if path == "/_stand-in/heal":
            self.heal()
            return send(handler, 200, b"healed\n")
        if path == "/api/datasets":
            return send_json(handler, self._found(query, allowed))
        match = re.fullmatch(r"/(?:api/)?datasets/([^/]+/[^/]+)(?:/(.*))?", path)
        repository = self.held.get(match[1]) if match else None
        if not match or not repository or (repository.private and not allowed):
            wrong = "authorization" in headers and not allowed
            return refuse(
                handler,
                401,
                "" if wrong else "RepoNotFound",
                "Invalid credentials in Authorization header" if wrong else "Repository not found",
            )
        name, rest = match[1], match[2] or ""
        if path.startswith("/api/"):
            return self._answer_api(handler, name, repository, rest, body)
        revision, _, file = rest.removeprefix("resolve/").partition("/")
        if not self._known(revision, repository):
            return refuse(handler, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if file not in repository.files:
            return refuse(handler, 404, "EntryNotFound", "Entry not found")
        if repository.gated and not allowed:
            return refuse(
                handler, 403 if "authorization" in headers else 401, "GatedRepo", "Access is restricted"
            )
        self._redirect(handler, name, repository, file)
        return None

    def _redirect(
        self, handler: http.server.BaseHTTPRequestHandler, name: str, repository: Repository, file: str
    ) -> None:
        content = repository.files[file]
        to = f"http://localhost:{self.store.server_port}/{name}/{urllib.parse.quote(file)}?Signature=abc"
        handler.send_response(302)
        handler.send_header("Location", to)
        handler.send_header("X-Repo-Commit", repository.sha)
        handler.send_header("X-Linked-Size", str(len(content)))
        handler.send_header("X-Linked-Etag", f'"{hashlib.sha256(content).hexdigest()}"')
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def _known(self, revision: str, repository: Repository) -> bool:
        return urllib.parse.unquote(revision) in ("main", repository.sha)

    def _found(self, query: dict[str, str], allowed: bool) -> list[dict[str, Any]]:
        names = [
            name
            for name, repository in self.held.items()
            if query.get("search", "").lower() in name and (allowed or not repository.private)
        ]
        return [self._info(name, self.held[name]) for name in names[: int(query.get("limit", 1_000))]]

    def _info(self, name: str, repository: Repository) -> dict[str, Any]:
        return {
            "_id": hashlib.md5(name.encode()).hexdigest()[:24],
            "id": name,
            "author": name.split("/")[0],
            "sha": repository.sha,
            "private": repository.private,
            "gated": "auto" if repository.gated else False,
            "disabled": False,
            "downloads": 7,
            "likes": 1,
            "tags": [],
            "lastModified": "2026-01-01T00:00:00.000Z",
            "createdAt": "2026-01-01T00:00:00.000Z",
            "siblings": [{"rfilename": path} for path in repository.files],
        }

    def _answer_api(
        self,
        handler: http.server.BaseHTTPRequestHandler,
        name: str,
        repository: Repository,
        rest: str,
        body: bytes,
    ) -> None:
        kind, _, more = rest.partition("/")
        revision, _, under = more.partition("/")
        if kind and not self._known(revision, repository):
            return refuse(handler, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if kind in ("", "revision"):
            return send_json(handler, self._info(name, repository))
        entries = self._entries(repository)
        if kind == "tree":
            recursive = "recursive=True" in handler.path or "recursive=true" in handler.path
            below = [entry for entry in entries if under in ("", *parents(entry["path"]))]
            if not recursive:
                below = [entry for entry in below if entry["path"].rpartition("/")[0] == under]
            if not below and under:
                return refuse(handler, 404, "EntryNotFound", f"{under} does not exist")
            return send_json(handler, below)
        if kind == "paths-info":
            wanted = urllib.parse.parse_qs(body.decode()).get("paths", [])
            if body[:1] == b"{":
                wanted = json.loads(body)["paths"]
            return send_json(handler, [entry for entry in entries if entry["path"] in wanted])
        refuse(handler, 404, "", "no such call")
        return None

    def _entries(self, repository: Repository) -> list[dict[str, Any]]:
        files = [
            {
                "type": "file",
                "oid": hashlib.sha1(content).hexdigest(),
                "size": len(content),
                "path": path,
            }
            for path, content in repository.files.items()
        ]
        folders = {folder for path in repository.files for folder in parents(path)}
        return files + [
            {"type": "directory", "oid": hashlib.sha1(folder.encode()).hexdigest(), "size": 0, "path": folder}
            for folder in sorted(folders)
        ]

    def answer_store(
        self, handler: http.server.BaseHTTPRequestHandler, headers: dict[str, str], body: bytes
    ) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path).lstrip("/")
        name, file = "/".join(path.split("/")[:2]), "/".join(path.split("/")[2:])
        repository = self.held[name]
        content = repository.files[file]
        fault = repository.next_fault() if handler.command == "GET" and file != "README.md" else ""
        if fault.isdigit():
            extra = {} if repository.retry_after_s is None else {"Retry-After": str(repository.retry_after_s)}
            return send(handler, int(fault), b"no", extra)
        if fault == "reset":
            handler.close_connection = True
            return None
        if fault == "silent":
            self.stopping.wait(20)
            handler.close_connection = True
            return None
        status, extra = 200, {"Accept-Ranges": "bytes"}
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", "")):
            start, end = int(match[1]), min(int(match[2] or len(content) - 1) + 1, len(content))
            extra["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
            status, content = 206, content[start:end]
        self._send_file(handler, status, content, extra, fault)
        return None

    def _send_file(
        self,
        handler: http.server.BaseHTTPRequestHandler,
        status: int,
        content: bytes,
        extra: dict[str, str],
        fault: str,
    ) -> None:
        handler.send_response(status)
        for key, value in extra.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        if fault == "slow":
            for at in range(0, len(content), TRICKLE_BYTES_PER_S // 20):
                if self.stopping.is_set():
                    return
                handler.wfile.write(content[at : at + TRICKLE_BYTES_PER_S // 20])
                time.sleep(0.05)
            return
        if fault == "cut":
            content, handler.close_connection = content[: len(content) // 2], True
        self.bytes_sent += len(content)  # counted first: the reader may be done before this thread goes on
        handler.wfile.write(content)

    def close(self) -> None:
        self.stopping.set()
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()


def parents(path: str) -> list[str]:
    pieces = path.split("/")[:-1]
    return ["/".join(pieces[: n + 1]) for n in range(len(pieces))]


def send(
    handler: http.server.BaseHTTPRequestHandler,
    status: int,
    content: bytes,
    extra: dict[str, str] | None = None,
) -> None:
    handler.send_response(status)
    for key, value in (extra or {}).items():
        handler.send_header(key, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


def send_json(handler: http.server.BaseHTTPRequestHandler, value: object) -> None:
    send(handler, 200, json.dumps(value).encode(), {"Content-Type": "application/json"})


def refuse(handler: http.server.BaseHTTPRequestHandler, status: int, code: str, message: str) -> None:
    extra = {"X-Error-Message": message, "Content-Type": "application/json"}
    if code:
        extra["X-Error-Code"] = code
    send(handler, status, json.dumps({"error": message}).encode(), extra)


@contextlib.contextmanager
def running(held: dict[str, Repository], port: int = 0) -> Iterator[Server]:
    """A stand-in that has these data sets."""
    server = Server(held, port)
    try:
        yield server
    finally:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--heal-after", type=int, help="demo/broken works again after so many failures")
    parser.add_argument("--healthy", type=int, default=6, help="files that demo/broken sends before it fails")
    arguments = parser.parse_args()
    with running(repositories(arguments.heal_after, arguments.healthy), arguments.port) as server:
        print(server.endpoint, flush=True)
        print(f"the token that opens demo/secret and demo/gated: {TOKEN}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
