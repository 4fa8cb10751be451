"""The command line: argument parsing and wiring only."""
