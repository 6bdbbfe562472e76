"""Order books, their venues' rules, and what was missing while they were built."""
