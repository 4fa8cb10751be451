"""A stand-in for the Hugging Face hub on loopback: a listing, redirects to signed addresses, and faults to order."""

import base64
import contextlib
import http.server
import io
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daisychain.data.fineweb import FOLDER, REPOSITORY

ROWS = 12_000
GROUP_ROWS = 100
DOCUMENT_BYTES = 4_160

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("id", pa.string()),
        ("dump", pa.string()),
        ("url", pa.string()),
        ("file_path", pa.string()),
        ("language", pa.string()),
        ("language_score", pa.float64()),
        ("token_count", pa.int64()),
        ("score", pa.float64()),
        ("int_score", pa.int64()),
    ]
)


def make_shard(rows: int = ROWS) -> bytes:
    """A parquet file like the data set's; each text starts with its row's number."""
    noise = np.random.Generator(np.random.PCG64(3)).bytes(rows * DOCUMENT_BYTES * 3 // 4)
    letters = base64.b64encode(noise).decode().replace("+", " ").replace("/", ".")
    starts = range(0, rows * DOCUMENT_BYTES, DOCUMENT_BYTES)
    columns = {
        "text": [f"[{n}] {letters[at : at + DOCUMENT_BYTES - 20]} é" for n, at in enumerate(starts)],
        "id": [f"<urn:uuid:{n:032x}>" for n in range(rows)],
        "dump": ["CC-MAIN-2024-10"] * rows,
        "url": [f"http://example.org/{n}" for n in range(rows)],
        "file_path": [f"s3://commoncrawl/crawl-data/{n}.warc.gz" for n in range(rows)],
        "language": ["en"] * rows,
        "language_score": [0.9] * rows,
        "token_count": [1_000] * rows,
        "score": [3.1] * rows,
        "int_score": [3] * rows,
    }
    file = io.BytesIO()
    pq.write_table(pa.table(columns, SCHEMA), file, row_group_size=GROUP_ROWS)
    return file.getvalue()


class Hub:
    """Two servers: the hub, and the store that it redirects to. `fault` is what the store does wrong."""

    def __init__(self, shards: dict[str, bytes]) -> None:
        self.shards = shards
        self.fault = ""
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # server, path, headers
        self.bytes_sent = 0
        self.stopping = threading.Event()
        self.hub = self._serve("hub")
        self.store = self._serve("store")
        self.endpoint = f"http://127.0.0.1:{self.hub.server_port}"

    def _serve(self, name: str) -> http.server.ThreadingHTTPServer:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None: ...

            def do_GET(self) -> None:
                headers = {key.lower(): value for key, value in self.headers.items()}
                outer.requests.append((name, self.path, headers))
                answer = outer.answer_hub if name == "hub" else outer.answer_store
                with contextlib.suppress(OSError):  # the client has gone
                    answer(self, headers)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def answer_hub(self, handler: http.server.BaseHTTPRequestHandler, headers: dict[str, str]) -> None:
        path = urllib.parse.unquote(handler.path)
        if path == f"/api/datasets/{REPOSITORY}/tree/main/{FOLDER}":
            entries = [
                {"type": "file", "oid": "0", "size": len(content), "path": name}
                for name, content in self.shards.items()
            ]
            entries.append({"type": "directory", "oid": "0", "size": 0, "path": f"{FOLDER}/more"})
            content = b"<html>" if self.fault == "listing" else json.dumps(entries).encode()
            self.send(handler, 200, content)
            return
        name = path.removeprefix(f"/datasets/{REPOSITORY}/resolve/main/")
        to = (
            "file:///etc/" if self.fault == "scheme" else f"http://localhost:{self.store.server_port}/signed/"
        )
        if self.fault == "circle":
            to = f"{self.endpoint}/datasets/{REPOSITORY}/resolve/main/"
        handler.send_response(302)
        handler.send_header("Location", f"{to}{urllib.parse.quote(name)}?Signature=abc&Expires=9")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def answer_store(self, handler: http.server.BaseHTTPRequestHandler, headers: dict[str, str]) -> None:
        name = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path).removeprefix("/signed/")
        content = self.shards[name]
        if self.fault.isdigit():
            self.send(handler, int(self.fault), b"no")
            return
        if self.fault == "silent":
            self.stopping.wait(20)
            return
        if self.fault == "whole":
            self.send(handler, 200, content)
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", headers["range"])
        assert found is not None
        start, end = int(found[1]), min(int(found[2]) + 1, len(content))
        if self.fault == "elsewhere":
            start, end = start - 1, end - 1
        self.send(handler, 206, content[start:end], f"bytes {start}-{end - 1}/{len(content)}")

    def send(
        self, handler: http.server.BaseHTTPRequestHandler, status: int, content: bytes, given: str = ""
    ) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        if given:
            handler.send_header("Content-Range", given)
        handler.end_headers()
        if self.fault == "cut" and given:
            content = content[: len(content) // 2]
        if self.fault == "slow" and given:
            for at in range(0, len(content), 16):
                if self.stopping.is_set():
                    return
                handler.wfile.write(content[at : at + 16])
                time.sleep(0.02)
            return
        for at in range(0, len(content), 1 << 16):
            # Counted first: the reader may be done before this thread goes on.
            self.bytes_sent += len(content[at : at + (1 << 16)])
            handler.wfile.write(content[at : at + (1 << 16)])

    def close(self) -> None:
        self.stopping.set()
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()


@contextlib.contextmanager
def running_hub(shards: dict[str, bytes]) -> Iterator[Hub]:
    """A stand-in that has these files."""
    hub = Hub(shards)
    try:
        yield hub
    finally:
        hub.close()
