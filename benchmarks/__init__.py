"""The performance table of Tapewire, measured: `python -m benchmarks`; see README.md here."""
