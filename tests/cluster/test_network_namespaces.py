"""Nodes on networks of their own: host names that lie, several interfaces, blocked directions, slow links."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Networks:
    """Namespaces a, b, c; each joined to every network it names by a veth pair into one switch namespace."""

    def __init__(self) -> None:
        self._prefix = f"dc{os.getpid()}"
        self._namespaces: list[str] = []
        self._bridges: set[str] = set()
        self._add("s")

    def add_node(self, name: str, **addresses: str) -> str:
        """A namespace with one interface a keyword, such as eth0="10.77.1.1/24"; returns its name."""
        self._add(name)
        for interface, address in addresses.items():
            bridge = "br" + address.rsplit(".", 1)[0].replace(".", "")[-4:]
            if bridge not in self._bridges:
                self._bridges.add(bridge)
                self.run("s", "ip", "link", "add", bridge, "type", "bridge")
                self.run("s", "ip", "link", "set", bridge, "up")
            port = f"{name}{interface}"
            self.run(
                "s", "ip", "link", "add", port, "type", "veth", "peer", interface, "netns", self.name(name)
            )
            self.run("s", "ip", "link", "set", port, "master", bridge, "up")
            self.run(name, "ip", "address", "add", address, "dev", interface)
            self.run(name, "ip", "link", "set", interface, "up")
        return self.name(name)

    def name(self, node: str) -> str:
        return f"{self._prefix}{node}"

    def run(self, node: str, *command: str) -> None:
        done = subprocess.run(
            ["ip", "netns", "exec", self.name(node), *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)

    def close(self) -> None:
        for name in self._namespaces:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def _add(self, node: str) -> None:
        subprocess.run(["ip", "netns", "add", self.name(node)], check=True)
        self._namespaces.append(self.name(node))
        self.run(node, "ip", "link", "set", "lo", "up")


def need(*tools: str) -> None:
    """Skip, with the reason, where networks cannot be made; where CI=true that is a failure."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    reason = f"without {', '.join(absent)}" if absent else "not as root" if os.geteuid() != 0 else ""
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"network namespaces cannot be made {reason}")
    if reason:
        pytest.skip(f"network namespaces cannot be made {reason}")


@pytest.fixture
def networks() -> Iterator[Networks]:
    need("ip", "tc")
    made = Networks()
    try:
        yield made
    finally:
        made.close()


def cluster_env(address: str, world_size: int, rank: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": "29560",
        "WORLD_SIZE": str(world_size),
        "RANK": str(rank),
    }


def test_host_names_that_mean_loopback_are_not_advertised(
    nodes: Any, networks: Networks, tmp_path: Path
) -> None:
    specs = []
    for rank, name in enumerate("ab"):
        hosts = tmp_path / f"hosts-{name}"
        other = "" if rank == 0 else "10.77.1.1 daisy-a\n"
        hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 daisy-{name}\n{other}")
        specs.append(
            {
                "namespace": networks.add_node(name, eth0=f"10.77.1.{rank + 1}/24"),
                "hosts": str(hosts),
                "host_name": f"daisy-{name}",
                "env": cluster_env("daisy-a", 2, rank),
                "program": [["sum", 10]],
            }
        )
    nodes.start(specs)
    outcomes = nodes.outcomes()
    assert [outcome["error"] for outcome in outcomes] == [None, None], outcomes
    assert [outcome["address"] for outcome in outcomes] == ["10.77.1.1", "10.77.1.2"]
    assert "node 0 is reached at 10.77.1.1 on eth0" in nodes.log(0)


def test_the_interface_that_routes_to_the_coordinator_is_used(nodes: Any, networks: Networks) -> None:
    """Three interfaces, of which the second alone leads to the others."""
    specs = [
        {
            "namespace": networks.add_node(
                name,
                eth0=f"10.77.{rank + 3}.9/24",
                eth1=f"10.77.2.{rank + 1}/24",
                eth2=f"10.77.{rank + 6}.9/24",
            ),
            "env": cluster_env("10.77.2.1", 3, rank),
            "program": [["sum", 10]],
        }
        for rank, name in enumerate("abc")
    ]
    nodes.start(specs)
    outcomes = nodes.outcomes()
    assert [outcome["error"] for outcome in outcomes] == [None] * 3, outcomes
    assert [outcome["address"] for outcome in outcomes] == ["10.77.2.1", "10.77.2.2", "10.77.2.3"]
    assert "on eth1: the route to 10.77.2.1" in nodes.log(2)


def test_an_explicit_address_or_interface_wins_over_the_route(nodes: Any, networks: Networks) -> None:
    """Two overlays at once, both of which work."""
    chosen: list[dict[str, Any]] = [{"address": "10.77.2.1"}, {"interface": "eth1"}]
    specs = [
        {
            "namespace": networks.add_node(
                name, eth0=f"10.77.1.{rank + 1}/24", eth1=f"10.77.2.{rank + 1}/24"
            ),
            "env": cluster_env("10.77.1.1", 2, rank),
            "options": chosen[rank],
            "program": [["sum", 10]],
        }
        for rank, name in enumerate("ab")
    ]
    nodes.start(specs)
    outcomes = nodes.outcomes()
    assert [outcome["error"] for outcome in outcomes] == [None, None], outcomes
    assert [outcome["address"] for outcome in outcomes] == ["10.77.2.1", "10.77.2.2"]


def test_a_blocked_direction_is_named_at_the_join(nodes: Any, networks: Networks) -> None:
    need("iptables")
    specs = two_nodes(networks)
    networks.run("b", "iptables", "-A", "INPUT", "-p", "tcp", "--syn", "-i", "eth0", "-j", "DROP")
    nodes.start(specs)
    for outcome in nodes.outcomes():
        assert outcome["error"] == "FleetError"
        assert "node 0 cannot reach node 1 at 10.77.1.2" in outcome["message"]
        assert "the other way is open" in outcome["message"]
        assert outcome["took_s"] < 10.0


def test_lost_packets_lose_no_node(nodes: Any, networks: Networks) -> None:
    """Every twentieth packet of each direction."""
    need("iptables")
    specs = two_nodes(networks, [["repeat", 60]])
    for node in "ab":
        drop = "iptables -A INPUT -i eth0 -m statistic --mode nth --every 20 --packet 0 -j DROP"
        networks.run(node, *drop.split())
    nodes.start([{**spec, "bounds": {"lost_after_s": 6.0}} for spec in specs])
    outcomes = nodes.outcomes()
    assert [outcome["error"] for outcome in outcomes] == [None, None], outcomes


def test_a_cut_cable_ends_both_sides(nodes: Any, networks: Networks) -> None:
    specs = two_nodes(networks, [["sum", 10], ["forever", 60.0]])
    nodes.start(specs)
    nodes.await_joined()
    networks.run("s", "ip", "link", "set", "beth0", "down")
    assert [outcome["nodes"] for outcome in nodes.outcomes()] == [[1], [0]]


def test_a_slow_link_is_measured_as_such(nodes: Any, networks: Networks) -> None:
    specs = [
        {
            "namespace": networks.add_node(name, eth0=f"10.77.1.{rank + 1}/24"),
            "env": cluster_env("10.77.1.1", 3, rank),
            "program": [["links", 1 << 17]],
        }
        for rank, name in enumerate("abc")
    ]
    for node, device in (("c", "eth0"), ("s", "ceth0")):
        networks.run(node, *f"tc qdisc add dev {device} root tbf rate 5mbit burst 8kb latency 400ms".split())
    nodes.start(specs)
    outcomes = nodes.outcomes()
    assert [outcome["error"] for outcome in outcomes] == [None] * 3, outcomes
    rates_mb_s = [rate for rate, _ in outcomes[0]["values"][0]]
    assert all(outcome["values"] == outcomes[0]["values"] for outcome in outcomes)
    assert rates_mb_s[2] < 1.3  # 5 Mbit/s are 0.625 MB/s; the estimate may be twice that
    assert min(rates_mb_s[:2]) > 4 * rates_mb_s[2]


def two_nodes(networks: Networks, program: list[list[Any]] | None = None) -> list[dict[str, Any]]:
    return [
        {
            "namespace": networks.add_node(name, eth0=f"10.77.1.{rank + 1}/24"),
            "env": cluster_env("10.77.1.1", 2, rank),
            "program": program or [],
        }
        for rank, name in enumerate("ab")
    ]
