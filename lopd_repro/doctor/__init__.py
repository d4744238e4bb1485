"""What a configuration needs, and whether it is there."""
