"""One module a command that runs a bundle on texts."""
