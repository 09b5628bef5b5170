"""Known models, each short enough to read, with the names of its public checkpoints."""
