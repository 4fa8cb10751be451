"""The agent as a process of its own that never loads the rest of DaisyChain: some 40 MB in place of hundreds.

Its settings come as JSON in one environment variable, so that the token stands in no list of processes.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict

from daisychain.agent.post import Dashboard
from daisychain.agent.service import Agent, AgentSettings
from daisychain.base.errors import INTERRUPTED, DaisyError
from daisychain.base.log import say

SETTINGS = "DAISY_AGENT_SETTINGS"
MODULE = "daisychain.agent"


def to_environment(settings: AgentSettings) -> dict[str, str]:
    """The variable that `from_environment` reads."""
    return {SETTINGS: json.dumps(asdict(settings))}


def from_environment(env: Mapping[str, str]) -> AgentSettings:
    fields = json.loads(env[SETTINGS])
    return AgentSettings(**{**fields, "dashboard": Dashboard(**fields["dashboard"])})


def run_agent(settings: AgentSettings) -> None:
    """Until it is interrupted or told to end. Raises ConfigError and KeyboardInterrupt."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the proof's process has to be ended too
    asyncio.run(Agent(settings).run())


def main() -> int:
    """Run the agent of the environment; returns the exit code."""
    try:
        run_agent(from_environment(os.environ))
    except DaisyError as error:
        say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    if SETTINGS not in os.environ:
        sys.exit("error: the agent is started with `daisychain agent`, which says to it what to do.")
    sys.exit(main())
