"""The connectivity matrix on real networks: a blocked direction, a slow link, a node that dies and comes back."""

import ctypes
import socket
import threading
from pathlib import Path

from daisychain.agent.view import BLOCKED, DEAD, REACHABLE, SLOW, UNKNOWN
from daisychain.base import limits

from ..agent_help import DashboardSide, agents, wait_until
from .test_network_namespaces import Networks, need, networks  # noqa: F401  (a fixture)

CLONE_NEWNET = 0x4000_0000
PORT = 8_080
FIVE_MBIT = 0.625  # MB/s


def listener_in(namespace: str) -> socket.socket:
    """A listening socket inside a network namespace, held by this process: a socket stays where it was made."""
    made: list[socket.socket] = []

    def body() -> None:  # a thread's namespace is its own
        with Path("/var/run/netns", namespace).open() as there:
            assert ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET) == 0
        made.append(socket.create_server(("", PORT)))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return made[0]


def test_each_way_between_two_nodes_is_shown_for_what_it_is(
    networks: Networks,  # noqa: F811
    tmp_path: Path,
) -> None:
    """A cannot dial B, C has a slow link, then C dies and comes back, and then the firewall opens."""
    need("ip", "tc", "iptables")
    listener = listener_in(networks.add_node("d", eth0="10.77.9.9/24"))
    inside = {
        name: networks.add_node(name, eth0=f"10.77.9.{number}/24") for number, name in enumerate("abc", 1)
    }
    rule = f"INPUT -p tcp --syn -s 10.77.9.1 --dport {limits.AGENT_PROBE_PORT} -j DROP".split()
    networks.run("b", "iptables", "-A", *rule)
    for node, device in (("c", "eth0"), ("s", "ceth0")):
        networks.run(node, *f"tc qdisc add dev {device} root tbf rate 5mbit burst 8kb latency 400ms".split())

    with DashboardSide(listener) as dashboard, agents(tmp_path) as start:
        url = f"http://10.77.9.9:{PORT}"
        processes = {name: start(name, url, inside[name]) for name in "abc"}

        def states() -> dict[str, str]:
            return {way: cell.state for way, cell in dashboard.cells().items()}

        wanted = {"ab": BLOCKED, "ba": REACHABLE, "ac": SLOW, "bc": SLOW, "ca": SLOW, "cb": SLOW}
        wait_until(lambda: states() == wanted, dashboard.cells)
        cells = dashboard.cells()
        for way in ("ac", "bc", "ca", "cb"):
            assert FIVE_MBIT / 2 < cells[way].bandwidth_mb_s < FIVE_MBIT * 2, cells[way]
            assert "Mbit/s" in cells[way].words
        assert "a cannot reach b at 10.77.9.2 port 29570: no answer" in cells["ab"].words
        assert "The other way is open" in cells["ab"].words

        processes["c"].kill()
        seen: set[str] = set()

        def c_is_dead() -> bool:
            now = states()
            seen.update(now[way] for way in ("ac", "bc"))
            return now["ac"] == now["bc"] == DEAD

        wait_until(c_is_dead, dashboard.cells)
        # Never blocked: nobody closed the way. And dead as soon as the silence is long enough, not much later.
        assert seen <= {SLOW, REACHABLE, UNKNOWN, DEAD}
        [silent_s] = dashboard.read(
            lambda fleet, now_s: [n.silent_s for n in fleet.nodes(now_s) if n.report.name == "c"]
        )
        assert limits.AGENT_SILENT_AFTER_S < silent_s < limits.AGENT_SILENT_AFTER_S + 1.5
        assert {way: states()[way] for way in ("ab", "ba")} == {"ab": BLOCKED, "ba": REACHABLE}
        assert states()["ca"] == UNKNOWN

        start("c", url, inside["c"])
        wait_until(
            lambda: all(states()[way] in (REACHABLE, SLOW) for way in ("ac", "bc", "ca", "cb")), states
        )

        networks.run("b", "iptables", "-D", *rule)
        wait_until(lambda: states()["ab"] == REACHABLE, dashboard.cells)
