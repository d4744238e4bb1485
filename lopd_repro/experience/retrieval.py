"""Retrieval by inner product over unit-norm embeddings (paper eq. 15-16, FAISS IndexFlatIP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience
from lopd_repro.experience.embed import Embedder

KEYS = ("task_and_trace", "task")


@dataclass(frozen=True)
class RetrievalSettings:
    """What is embedded and what may be found.

    key: the document side embeds `task_and_trace` (the paper) or the `task` alone (the released
    code). query_prompt goes before the task on the query side ("" in the released code).
    self_retrieval: whether a training task may find its own trajectories.
    """

    key: str = "task_and_trace"
    query_prompt: str = ""
    self_retrieval: bool = False
    depth: int = 10

    def __post_init__(self) -> None:
        if self.key not in KEYS:
            raise UserError(f"retrieval.key: found {self.key!r}, allowed: {', '.join(KEYS)}")


@dataclass(frozen=True)
class Hit:
    """A retrieved experience and its inner product with the query."""

    experience_id: str
    score: float


class Retriever:
    """An index over one bank."""

    def __init__(
        self, bank: Sequence[Experience], embedder: Embedder, settings: RetrievalSettings
    ) -> None:
        import faiss

        self._bank = list(bank)
        self._embedder = embedder
        self._settings = settings
        documents = [e.document if settings.key == "task_and_trace" else e.task for e in bank]
        embedder.fit(documents)
        vectors = embedder.embed(documents)
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)

    def search(self, queries: Sequence[tuple[str, str]]) -> list[list[Hit]]:
        """Hits for (task id, task text) queries, best first, at most `depth` each.

        Equal scores (to five digits) are ordered by place in the bank; fewer hits than asked for
        come back when the bank is smaller.
        """
        if not queries:
            return []
        texts = [self._settings.query_prompt + text for _, text in queries]
        # All scores, so that ties and excluded entries never shorten or reorder a list. Equal texts
        # embedded in different batches differ in the last bits, hence the rounding.
        scores, places = self._index.search(self._embedder.embed(texts), len(self._bank))
        results = []
        for (task_id, _), row, found in zip(queries, scores, places, strict=True):
            order = sorted(
                ((float(s), int(p)) for s, p in zip(row, found, strict=True) if p >= 0),
                key=lambda pair: (-round(pair[0], 5), pair[1]),
            )
            hits = [
                Hit(self._bank[p].experience_id, s)
                for s, p in order
                if self._settings.self_retrieval or self._bank[p].task_id != task_id
            ]
            results.append(hits[: self._settings.depth])
        return results

    def find(self, texts: Mapping[str, str]) -> dict[str, list[str]]:
        """Experience ids for each task (id -> text), best first, at most `depth` each."""
        hits = self.search(list(texts.items()))
        return {
            task: [hit.experience_id for hit in row] for task, row in zip(texts, hits, strict=True)
        }


def retrieve_for(
    bank: Sequence[Experience],
    texts: Mapping[str, str],
    embedder: Embedder,
    settings: RetrievalSettings,
) -> dict[str, list[str]]:
    """Experience ids that tasks (id -> text) find in a bank, best first, at most `depth` each.

    The embedder is fitted here, on the bank alone, so that the answer to one task does not depend
    on which others are asked.
    """
    return Retriever(bank, embedder, settings).find(texts)
