"""The sink: options, rows as records of logs, and the writers that stage and commit them."""
