"""The environment interface of a node."""

import pytest

from daisychain.base.errors import ConfigError
from daisychain.cluster.fleet.settings import NodeSettings, cluster_from_environment

ENV = {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "3", "RANK": "2"}


def test_no_cluster_without_its_variables() -> None:
    assert cluster_from_environment({}) is None
    assert cluster_from_environment({"MASTER_PORT": "1", "GLOO_SOCKET_IFNAME": "eth0", "RANK": ""}) is None


def test_variables_defaults_and_what_wins_over_them() -> None:
    assert cluster_from_environment(ENV) == NodeSettings("10.0.0.1", 29_560, 3, 2)
    full = ENV | {"MASTER_PORT": "4000", "GLOO_SOCKET_IFNAME": "eth1", "DAISY_LISTEN_FD": "7"}
    assert cluster_from_environment(full) == NodeSettings("10.0.0.1", 4000, 3, 2, "eth1", None, 7)
    given = cluster_from_environment(
        full,
        master_address="[fe80::1]",
        master_port=5,
        world_size=9,
        rank=0,
        interface="wg0",
        address="fe80::2",
    )
    assert given == NodeSettings("fe80::1", 5, 9, 0, "wg0", "fe80::2", 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"MASTER_PORT": "0"}, "MASTER_PORT is '0': a whole number from 1 to 65535"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
        ({"MASTER_PORT": "²"}, "MASTER_PORT is '²'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0': a whole number from 1 to"),
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE is '-1'"),
        ({"WORLD_SIZE": "2.0"}, "WORLD_SIZE is '2.0'"),
        ({"RANK": "3"}, "RANK is '3': a whole number from 0 to 2"),
        ({"RANK": "-1"}, "RANK is '-1'"),
        ({"RANK": ""}, "RANK not set, while MASTER_ADDR=10.0.0.1, WORLD_SIZE=3"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR not set"),
        ({"MASTER_ADDR": "http://a"}, "MASTER_ADDR is 'http://a'"),
        ({"MASTER_ADDR": "two words"}, "MASTER_ADDR is 'two words'"),
        ({"DAISY_LISTEN_FD": "x"}, "DAISY_LISTEN_FD is 'x'"),
    ],
)
def test_bad_values_are_named(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cluster_from_environment(ENV | change)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
