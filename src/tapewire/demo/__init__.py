"""A small trading system on one bus, whose processes are killed without losing anything.

`tapewire demo` runs it. Each process is a module: `exchange` (with `matching`, its rules),
`strategy`, `router`, `snapshotter`, `archiver` and `late_joiner`. `run` starts and kills them,
`audit` compares all logs with each other, `measure` computes rates and latencies from the logs, and
`report` writes the page.
"""
