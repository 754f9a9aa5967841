"""Running graphs and PyTorch references on the same inputs."""
