"""What the rules need and a workflow engine does not know: slices, digests, methods."""
