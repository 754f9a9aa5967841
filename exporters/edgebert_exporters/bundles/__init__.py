"""Writing a bundle: its files, and the folder that appears whole or not at all."""
