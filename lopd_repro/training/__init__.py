"""Shared training core: the loop, the Method interface, losses, teachers, checkpoints."""
