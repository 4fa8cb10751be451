"""What ten viewers of the dashboard cost a run of three nodes: turns with and without them, within one run.

    python benchmarks/viewers.py [--viewers 10] [--rounds 5] [--seconds 10] [--task digits]

Viewers are real clients of the page's websocket in a process of the lowest priority, since real ones are on other
machines. The dashboard runs all the time, as it does for whoever may come. Prints one JSON line: the run's steps a
second in both kinds of turns, the ratio, and the share of a core that the dashboard took.
"""

import argparse
import asyncio
import html
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from timing import print_result

LIMIT_S = 120
SETTLE_S = 2.0  # after viewers have come or gone
SETTLED_STEPS = 100
HUGE_STEPS = 100_000_000


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def process(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that ends with the block."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        arguments, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def steps_done(run: Path) -> int:
    """From the end of metrics.jsonl."""
    try:
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8_192))
            lines = file.read().splitlines()
        return int(json.loads(lines[-1] if lines[-1].endswith(b"}") else lines[-2])["step"])
    except (OSError, IndexError, ValueError):
        return 0


def wait_for_steps(run: Path, steps: int) -> None:
    end_s = time.monotonic() + LIMIT_S
    while steps_done(run) < steps:
        if time.monotonic() > end_s:
            raise SystemExit(f"the run did not reach step {steps} within {LIMIT_S} s")
        time.sleep(0.2)


def rate(run: Path, seconds: float) -> float:
    """Steps a second from now on."""
    first, began_s = steps_done(run), time.monotonic()
    time.sleep(seconds)
    return (steps_done(run) - first) / (time.monotonic() - began_s)


async def view(url: str, updates: list[int]) -> None:
    """One viewer: load the page, follow its websocket."""
    import aiohttp
    import socketio  # type: ignore[import-untyped]

    async with aiohttp.ClientSession() as session, session.get(url + "/") as answer:
        page = html.unescape(await answer.text())
    found = re.search(r"client_id['\"]?:\s*['\"]([0-9a-f-]{36})", page)
    if not found:
        raise SystemExit("the page has no client_id: it is not one of NiceGUI 3")
    tab = f"viewer-{os.urandom(8).hex()}"
    query = f"client_id={found[1]}&next_message_id=0&implicit_handshake=true&tab_id={tab}&document_id={tab}"
    client = socketio.AsyncClient()

    async def count(_: object) -> None:
        updates[0] += 1

    client.on("update", count)
    await client.connect(
        f"{url}?{query}",
        transports=["websocket"],
        socketio_path="/_nicegui_ws/socket.io",
        headers={"Origin": url},
    )
    await client.wait()


async def view_all(url: str, viewers: int) -> None:
    """All viewers, until this process is ended; says when each has been sent something."""
    counts = [[0] for _ in range(viewers)]
    tasks = [asyncio.create_task(view(url, updates)) for updates in counts]
    while not all(updates[0] > 1 for updates in counts):
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.1)
    print("all see", flush=True)
    await asyncio.gather(*tasks)


def with_viewers(url: str, viewers: int, run: Path, seconds: float) -> float:
    """The rate while so many look."""
    command = [sys.executable, __file__, "--view", url, "--viewers", str(viewers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as crowd:
        try:
            assert crowd.stdout is not None
            if b"all see" not in crowd.stdout.readline():
                raise SystemExit("the viewers were sent nothing")
            time.sleep(SETTLE_S)
            return rate(run, seconds)
        finally:
            crowd.kill()


def busy_s(child: subprocess.Popen[bytes]) -> float:
    """Processor seconds that a process has used."""
    times = psutil.Process(child.pid).cpu_times()
    return float(times.user + times.system)


def measure(
    arguments: argparse.Namespace, folder: Path
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Steps a second of every turn, and the share of a core that the dashboard took in it."""
    run, port = folder / "runs/watched", free_port()
    command = [sys.executable, "-m", "daisychain.cli.main"]
    train = [*command, "train", "--task", arguments.task, "--nodes", "3", "--name", "watched"]
    rates: dict[str, list[float]] = {"alone": [], "watched": []}
    cores: dict[str, list[float]] = {"alone": [], "watched": []}
    with (
        process(*train, "--steps", str(HUGE_STEPS), folder=folder),
        process(*command, "dashboard", "--port", str(port), folder=folder) as pages,
    ):
        wait_for_steps(run, SETTLED_STEPS)
        for number in range(arguments.rounds):
            turns = ("alone", "watched") if number % 2 == 0 else ("watched", "alone")
            for turn in turns:
                before_s, began_s = busy_s(pages), time.monotonic()
                if turn == "alone":
                    time.sleep(SETTLE_S)
                    rates[turn].append(rate(run, arguments.seconds))
                else:
                    url = f"http://127.0.0.1:{port}"
                    rates[turn].append(with_viewers(url, arguments.viewers, run, arguments.seconds))
                cores[turn].append((busy_s(pages) - before_s) / (time.monotonic() - began_s))
    return rates, cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--task", default="digits")
    parser.add_argument("--view", help=argparse.SUPPRESS)  # what the process of the viewers is started with
    arguments = parser.parse_args()
    if arguments.view:
        os.nice(19)
        asyncio.run(view_all(arguments.view, arguments.viewers))
        return
    with tempfile.TemporaryDirectory() as folder:
        rates, cores = measure(arguments, Path(folder))
    medians = {turn: statistics.median(values) for turn, values in rates.items()}
    pairs = [watched / alone for watched, alone in zip(rates["watched"], rates["alone"], strict=True)]
    print_result(
        f"a run of three nodes with {arguments.viewers} viewers of the dashboard",
        steps_per_s={turn: round(value, 1) for turn, value in medians.items()},
        ratio=round(statistics.median(pairs), 4),
        ratios=[round(pair, 3) for pair in pairs],
        dashboard_cores={turn: round(statistics.median(values), 3) for turn, values in cores.items()},
        load=round(os.getloadavg()[0], 1),
    )


if __name__ == "__main__":
    main()
