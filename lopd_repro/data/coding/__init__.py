"""Programming tasks: their fields, files and splits."""

from lopd_repro.data.coding.schema import CodeCase, CodeTask, tests_of

__all__ = ["CodeCase", "CodeTask", "tests_of"]
