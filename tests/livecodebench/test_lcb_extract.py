"""Programs taken out of texts: the official rule, odd results included, and the strict one."""

from __future__ import annotations

import pytest

from lopd_repro.benchmarks.lcb import extract


@pytest.mark.parametrize(
    ("text", "official", "strict"),
    [
        ("```python\nprint(1)\n```", "print(1)", "print(1)"),
        ("no fence", "", ""),
        ("```python\nprint(1)\n", "", ""),  # never closed
        ("```\na = 1\n```\nthen\n```py\na = 2\n```\n", "a = 2", "a = 2"),
        # A trailing block of output, or a shell line, becomes the official program.
        ("```python\nprint(1)\n```\nprints\n```\n1\n```", "1", "print(1)"),
        ("```python\nprint(1)\n```\n```bash\nls\n```", "ls", "print(1)"),
        # Backticks in a later sentence close nothing for a reader.
        ("```python\nprint(1)\n```\nthe ``` marks", "", "print(1)"),
        ("```python\nprint(1)\nprint(2)```", "print(1)", "print(1)\nprint(2)"),
        ("````md\n```python\nprint(1)\n```\n````", "", ""),
        ("  ```python\n  print(1)\n  ```", "  print(1)", "  print(1)"),
        ("```Python 3\nprint(1)\n```", "print(1)", "print(1)"),
        ("```\nprint(1)\n```\n```java\nx\n```", "x", "print(1)"),
    ],
)
def test_both_rules(text: str, official: str, strict: str) -> None:
    assert extract.official(text) == official
    assert extract.strict(text) == strict


def test_the_two_odd_styles() -> None:
    assert extract.official(" x ", "GenericBase") == "x"
    assert extract.official("```\nx\n```", "CodeLLaMaInstruct") is None
