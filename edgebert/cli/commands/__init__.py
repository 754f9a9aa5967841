"""The commands, one file each; those that run a bundle on texts in ``tasks``."""
