"""config.json and its companions: model types, head tables, generation settings."""
