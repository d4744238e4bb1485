"""Tables and figures from evaluation files."""
