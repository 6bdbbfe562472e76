"""Order books: the same events through Tapewire, hftbacktest and nautilus_trader.

`events` makes them, `tape` writes them into a queue, and each book replays them in a process of its
own (`ours`, `hftbacktest_books`, `nautilus_books`), which says how long every round took and what
the book is at the end. `compare` starts those and makes the rows; books that end differently
fail the run. The alternatives live in an environment of their own (`alternatives`).
"""
