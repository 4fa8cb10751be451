"""Errors, limits, clock, log and files: what everything else stands on. Standard library only."""
