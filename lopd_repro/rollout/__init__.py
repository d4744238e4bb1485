"""Rollout engines and the episode loop."""
