"""The benchmarks of Tapewire: `python -m benchmarks`; see README.md in this directory."""
