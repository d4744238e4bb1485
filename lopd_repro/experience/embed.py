"""Text embedders for retrieval, by name; rows come back with unit norm.

`tfidf` and `backbone` need no download; `sentence-transformers:NAME` loads a model by hub name
or folder. Query and document sides may differ (paper eq. 15-16): queries get an instruction
prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import Backbone

Array = np.ndarray[Any, np.dtype[np.float32]]


class Embedder(Protocol):
    """Turns texts into unit-norm rows `[n, dim]`, float32."""

    def fit(self, documents: Sequence[str]) -> None:
        """See the documents once before anything is embedded."""

    def embed(self, texts: Sequence[str]) -> Array:
        """Embed texts; equal texts give equal rows."""


class TfidfEmbedder:
    """Word uni- and bigram TF-IDF fitted on the documents."""

    def __init__(self) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)

    def fit(self, documents: Sequence[str]) -> None:
        """Learn vocabulary and document frequencies."""
        self._vectorizer.fit(list(documents))

    def embed(self, texts: Sequence[str]) -> Array:
        """Dense TF-IDF rows."""
        return unit_rows(self._vectorizer.transform(list(texts)).toarray())


class BackboneEmbedder:
    """Mean over tokens of a backbone's last hidden states."""

    def __init__(self, backbone: Backbone, batch: int = 32) -> None:
        self._backbone = backbone
        self._batch = batch
        self._centre: Array | None = None

    def fit(self, documents: Sequence[str]) -> None:
        """Learn the documents' mean, which is taken off: raw means all point the same way."""
        self._centre = self._means(documents).mean(0)

    def embed(self, texts: Sequence[str]) -> Array:
        """Centred mean-pooled rows."""
        if self._centre is None:
            raise RuntimeError("fit the embedder before embedding")
        return unit_rows(self._means(texts) - self._centre)

    @torch.inference_mode()
    def _means(self, texts: Sequence[str]) -> Array:
        model, tokenizer = self._backbone.model, self._backbone.tokenizer
        pad = tokenizer.pad_token_id or 0
        parts = []
        for start in range(0, len(texts), self._batch):
            ids = [
                tokenizer.encode(t, add_special_tokens=False) for t in texts[start:][: self._batch]
            ]
            width = max(len(row) for row in ids)
            batch = torch.tensor([row + [pad] * (width - len(row)) for row in ids])
            lengths = torch.tensor([len(row) for row in ids])
            keep = (torch.arange(width) < lengths[:, None]).to(model.device)
            hidden = model.base_model(
                input_ids=batch.to(model.device), use_cache=False
            ).last_hidden_state.float()
            parts.append(((hidden * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)).cpu())
        return np.asarray(torch.cat(parts).numpy(), dtype=np.float32)


class SentenceTransformerEmbedder:
    """A sentence-transformers model by hub name or folder."""

    def __init__(self, name: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise UserError(
                f"retrieval.embedder sentence-transformers:{name}: the package "
                "sentence-transformers is not installed: pip install '.[paper]'"
            ) from None
        self._model = SentenceTransformer(name)

    def fit(self, documents: Sequence[str]) -> None:
        """Nothing to learn."""

    def embed(self, texts: Sequence[str]) -> Array:
        """The model's own sentence embeddings."""
        return unit_rows(self._model.encode(list(texts), show_progress_bar=False))


def unit_rows(rows: Any) -> Array:
    """Rows divided by their norm; a zero row stays zero."""
    array = np.asarray(rows, dtype=np.float32)
    norms = np.linalg.norm(array, axis=1, keepdims=True)
    return np.asarray(array / np.maximum(norms, 1e-12), dtype=np.float32)


def make_embedder(name: str, backbone: Backbone) -> Embedder:
    """The embedder a config names."""
    kind, _, rest = name.partition(":")
    if name == "tfidf":
        return TfidfEmbedder()
    if name == "backbone":
        return BackboneEmbedder(backbone)
    if kind == "sentence-transformers" and rest:
        return SentenceTransformerEmbedder(rest)
    if kind == "package" and rest:
        return SentenceTransformerEmbedder(_packaged_model(rest))
    raise UserError(
        f"retrieval.embedder: found {name!r}, allowed: tfidf, backbone, "
        "sentence-transformers:<name or folder>, package:<python package that ships a model>"
    )


def _packaged_model(package: str) -> str:
    """Folder of the sentence-transformers model that an installed package carries."""
    import importlib.util
    from pathlib import Path

    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"retrieval.embedder package:{package}: no such package is installed")
    for root in spec.submodule_search_locations:
        for modules in sorted(Path(root).rglob("modules.json")):
            return str(modules.parent)
    raise UserError(f"retrieval.embedder package:{package}: it carries no model (modules.json)")
