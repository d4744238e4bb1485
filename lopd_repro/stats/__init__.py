"""Intervals, paired tests, corrections and estimators. Imports no other part of the project."""

from __future__ import annotations

from lopd_repro.stats.bootstrap import (
    DRAWS,
    Interval,
    PairedResult,
    bootstrap_means,
    bootstrap_ratios,
    hierarchical_interval,
    paired_bootstrap,
    percentile_interval,
)
from lopd_repro.stats.censored import CensoredMedian, censored_median
from lopd_repro.stats.comparisons import COMPARISON_COLUMNS, Cell, comparisons
from lopd_repro.stats.correction import holm
from lopd_repro.stats.optimism import (
    Halves,
    first_best,
    halves,
    highest_mean,
    redone_across,
    redone_within,
)
from lopd_repro.stats.passk import mean_pass_at_k, pass_at_k, passed_all
from lopd_repro.stats.summary import Summary, mean_std, score_matrix, summarise
from lopd_repro.stats.trend import Trend, mean_interval, trend
from lopd_repro.stats.ucb import ucb1_scores

__all__ = [
    "COMPARISON_COLUMNS",
    "DRAWS",
    "Cell",
    "CensoredMedian",
    "Halves",
    "Interval",
    "PairedResult",
    "Summary",
    "Trend",
    "bootstrap_means",
    "bootstrap_ratios",
    "censored_median",
    "comparisons",
    "first_best",
    "halves",
    "hierarchical_interval",
    "highest_mean",
    "holm",
    "mean_interval",
    "mean_pass_at_k",
    "mean_std",
    "paired_bootstrap",
    "pass_at_k",
    "passed_all",
    "percentile_interval",
    "redone_across",
    "redone_within",
    "score_matrix",
    "summarise",
    "trend",
    "ucb1_scores",
]
