"""The measurements of `tapewire bench`: what this host reaches, and what slows it down."""
