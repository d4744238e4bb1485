"""Tasks, environments and splits."""
