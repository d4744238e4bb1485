"""Latent On-Policy Self-Distillation: composer, cold start, method."""
