"""The formats of input and output files, and files that appear whole or not at all."""
