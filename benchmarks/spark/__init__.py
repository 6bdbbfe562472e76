"""Spark over logs: the cost of a row, and how a job scales with cores and with data.

`read` compares the source with Parquet, `speedup` one core with two, `writing` measures the sink
and a streaming query. `rows` runs them for `make bench`, each in its own process, since a process
has one Spark. `scale` measures time and memory as data grows and writes the table of
`docs/internals/spark-scale.md`; it needs gigabytes and is run manually.
"""
