"""Tables as logs: rows are staged, decided by one manifest, and published to the end."""
