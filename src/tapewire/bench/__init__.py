"""The measurements of `tapewire bench`: latencies of this host, and settings that impair them."""
