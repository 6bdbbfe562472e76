"""`python -m tapewire.cli` is `tapewire`."""

from tapewire.cli.app import main

main()
