"""One module per command; `lopd_repro.cli` loads the one that was asked for."""
