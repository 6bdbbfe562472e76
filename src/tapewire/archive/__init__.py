"""The archive: logs that are kept, by venue, symbol, day and stream."""
