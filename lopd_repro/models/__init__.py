"""Backbones, tokenizers and exact chat rendering."""
