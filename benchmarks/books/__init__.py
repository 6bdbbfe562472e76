"""Order books: the same events through Tapewire, hftbacktest and nautilus_trader.

`events` generates them, `tape` writes them into a queue, and each book replays them in its own
process (`ours`, `hftbacktest_books`, `nautilus_books`), which reports the time of each round and
the final book. `compare` starts these processes and makes the rows; if the final books differ, the
run fails. The alternatives have an environment of their own (`alternatives`).
"""
