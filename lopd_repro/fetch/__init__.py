"""Data sets, model weights and repositories from outside: pinned, checked, placed in one folder."""
