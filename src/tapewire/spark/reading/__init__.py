"""What Spark adds to `tapewire.scan`: schemas, tasks, and the reader of a batch query."""
