"""Streaming queries: their position in the logs, their micro-batches, and saved states of books."""
