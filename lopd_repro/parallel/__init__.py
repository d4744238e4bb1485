"""Several processes that train one model: ranks, shards of weights, recomputed layers, state."""
