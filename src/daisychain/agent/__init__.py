"""What each node tells the dashboard about itself and its links. Needs no web framework, and no torch to report."""
