"""Benchmark and reproduction harness for Latent On-Policy Self-Distillation (LOPD)."""

__version__ = "0.1.0"
