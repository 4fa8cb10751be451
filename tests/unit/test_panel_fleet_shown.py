"""The fleet's page among many viewers and many machines: made once, and not all the time."""

from daisychain.agent.view import FleetState
from daisychain.base import limits
from daisychain.panel import fleet_shown
from daisychain.panel.fleet_shown import FleetShown

from ..agent_help import report


def test_the_fleet_is_made_once_for_all_and_the_less_often_the_longer_it_takes(monkeypatch) -> None:
    now_s, takes_s, made = [100.0], [0.0], []
    real = fleet_shown._made_of

    def slow(fleet, at_s):
        made.append(at_s)
        now_s[0] += takes_s[0]
        return real(fleet, at_s)

    monkeypatch.setattr(fleet_shown, "_made_of", slow)
    shown, fleet = FleetShown(lambda: now_s[0]), FleetState()
    assert shown.look(fleet) is None
    fleet.observe(report("a"), 100.0)
    now_s[0] += limits.VIEW_EVERY_S
    assert [shown.look(fleet).nodes for _ in range(50)] == [1] * 50
    assert len(made) == 2
    takes_s[0] = 0.1
    for _ in range(100):
        now_s[0] += 0.1
        shown.look(fleet)
    assert 5 <= len(made) - 2 <= 12  # ten seconds
    takes_s[0] = 60.0
    shown.look(fleet)
    now_s[0] += limits.FLEET_VIEW_MOST_S
    begun = len(made)
    shown.look(fleet)
    assert len(made) > begun  # never longer than that
