"""Vanilla: the base model, untrained. It goes through the same evaluation as every method."""

from __future__ import annotations

from lopd_repro.training.method import Method


class Vanilla(Method):
    """No training."""

    name = "vanilla"
    label = "Vanilla"
    trains = False


METHOD = Vanilla
