"""A small trading system on one bus, which is killed again and again and loses nothing.

`tapewire demo` runs it. Each process is a module of its own: `exchange` (with `matching`, its
rules), `strategy`, `router` and `joiner`; `run` starts and kills them, `audit` compares every
tape with every other, `measure` takes rates and latencies from the tapes, `report` draws the
page.
"""
