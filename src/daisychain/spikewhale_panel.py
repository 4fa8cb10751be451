"""`python -m daisychain.spikewhale_panel`: the same as `daisychain panel`."""

import sys

from daisychain.cli.main import run


def main() -> None:
    sys.exit(run(["panel", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
