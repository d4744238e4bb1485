"""The experience bank and retrieval from it."""
