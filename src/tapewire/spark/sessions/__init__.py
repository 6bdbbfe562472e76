"""Where Spark runs: sessions, their settings, the Java below them, and what workers are given."""
