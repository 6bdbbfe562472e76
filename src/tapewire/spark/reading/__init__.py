"""Logs as tables: options, which logs a path means, slices, and how a slice is read."""
