"""The command line, `tapewire COMMAND`: one module for each command; `app` registers them."""
