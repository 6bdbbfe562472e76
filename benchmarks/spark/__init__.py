"""Spark over the tape: what a row costs, and how a job grows with cores and with data.

`read` holds the source against Parquet, `speedup` one core against two, `writing` has the sink and
a streaming query; `rows` runs them for `make bench`, each in a process of its own, since a process
has one Spark. `scale` measures time and memory as data grows and writes the table of
`docs/internals/spark-scale.md`: it takes gigabytes and is run by hand.
"""
