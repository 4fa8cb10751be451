"""Browser rooms: who is grouped with whom, approval, signalling, text, and the page itself."""
