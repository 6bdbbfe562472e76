"""Where jobs and the sink keep what is theirs, below what they write."""

__all__ = ["CONTROL"]

# Marks, manifests, what is not published yet. Spark takes nothing in it for data.
CONTROL = "_tapewire"
