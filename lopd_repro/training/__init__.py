"""The training loop, the Method interface, losses, teachers and checkpoints."""
