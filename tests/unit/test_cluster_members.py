"""What a node says of the others at the join."""

import socket

from daisychain.cluster.fleet.members import REFUSED, Member, describe_blocked, dial_all, refusing


def member(rank: int, address: str = "10.0.0.1", port: int = 1) -> Member:
    return Member(rank, 3, f"pc{rank}", 100 + rank, address, port, "10.0.0.9")


def test_a_member_survives_its_journey() -> None:
    here = Member.here(1, 3, "10.0.0.1", 5, "10.0.0.9")
    assert Member.decode(here.encode().encode()) == here
    assert str(member(2)) == "node 2 (pc2, pid 102)"


def test_every_blocked_direction_is_described_with_what_to_do() -> None:
    members = {rank: member(rank, f"10.0.0.{rank}") for rank in range(3)}
    assert describe_blocked(members, {0: {}, 1: {}, 2: {}}) == ""
    text = describe_blocked(members, {0: {1: "no answer"}, 1: {}, 2: {}})
    assert text.startswith("node 0 cannot reach node 1 at 10.0.0.1 (no answer; the other way is open)")
    assert "firewall on node 1" in text
    text = describe_blocked(members, {0: {1: "no answer"}, 1: {0: "no answer"}, 2: {}})
    assert text.count("the other way is blocked too") == 2
    members[2] = member(2, "127.0.1.1")
    assert "start node 2 with --address" in describe_blocked(members, {0: {2: REFUSED}, 1: {}, 2: {}})


def test_dialling_tells_the_living_from_the_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as alive, socket.create_server(("127.0.0.1", 0)) as ended:
        members = [member(rank, "127.0.0.1", s.getsockname()[1]) for rank, s in enumerate((alive, ended))]
        ended.close()
        assert dial_all(members, 5.0) == {1: REFUSED}
        assert refusing(members, 5.0) == [1]
    assert dial_all([], 5.0) == {}
