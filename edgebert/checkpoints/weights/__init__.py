"""Weight files: safetensors and pickles, renamed by tables."""
