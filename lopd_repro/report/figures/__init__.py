"""Figures in two steps: `data` makes a figure's points (CSV), `draw` makes its picture.

`data` never imports `draw`, so that a change of plot style makes no point anew.
"""
