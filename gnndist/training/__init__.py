"""Training: the config, the loop, the run directory and its checkpoints."""
