"""What a person types: `tapewire COMMAND`. One module a command; `app` joins them."""
