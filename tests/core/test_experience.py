from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import ScriptDomain, backbone, trajectory
from small_lopd import bank, experience

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import build_bank, read_bank, write_bank
from lopd_repro.experience.embed import (
    BackboneEmbedder,
    TfidfEmbedder,
    make_embedder,
    unit_rows,
)
from lopd_repro.experience.retrieval import Hit, RetrievalSettings, Retriever, retrieve_for
from lopd_repro.rollout.episodes import Trajectory


def rolled(task_id: str, reward: float, *texts: str) -> Trajectory:
    made = trajectory(task_id, (1, 2), [(text, True) for text in texts], reward)
    made.records = [{"text": text} for text in texts]
    return made


def test_the_bank_keeps_distinct_successes_up_to_a_number() -> None:
    given = [
        rolled("a", 0.79, "fail"),
        rolled("a", 0.8, "ab", "cd"),
        rolled("a", 1.0, "ab", "cd"),
        rolled("b", math.nan, "x"),
        rolled("a", 1.0, "other"),
        rolled("a", 1.0, "third"),
        rolled("b", 1.0, "y"),
    ]
    kept = build_bank(given, ScriptDomain(), threshold=0.8, per_task=2)
    assert [(e.experience_id, e.trace, e.reward) for e in kept] == [
        ("a#1", "1. ab\n2. cd", 0.8),
        ("a#2", "1. other", 1.0),
        ("b#1", "1. y", 1.0),
    ]
    assert kept[0].document == "task a\n1. ab\n2. cd"
    assert list(kept[0].tail) == given[1].tail and list(kept[0].supervised) == given[1].supervised
    with pytest.raises(UserError, match=r"none of 2 rollouts reached a reward of 1\.0"):
        build_bank(given[:2], ScriptDomain(), 1.0, 2)


def test_a_bank_is_read_back_and_kept_to_the_training_split(tmp_path: Path) -> None:
    path = tmp_path / "bank.jsonl"
    write_bank(path, bank(), rollouts=9)
    assert read_bank(path) == bank() == read_bank(path, {"t0", "t1", "t2", "t3", "t9"})
    with pytest.raises(UserError, match="entry 2 is of task t2, which is not in the training"):
        read_bank(path, {"t0", "t1", "t3"})
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match="no footer"):
        read_bank(path)


class Table:
    """Embeds by looking up; remembers what it was asked."""

    def __init__(self, vectors: dict[str, Sequence[float]]) -> None:
        self.vectors = vectors
        self.fitted: list[str] = []
        self.asked: list[str] = []

    def fit(self, documents: Sequence[str]) -> None:
        self.fitted += documents

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return unit_rows([self.vectors[text] for text in texts])


ENTRIES = [
    experience("t0", "low"),
    experience("t1", "tie"),
    experience("t2", "best"),
    experience("t0", "tie", 2),
    experience("t3", "tie"),
]
VECTORS = {"low": (0.0, 1.0), "tie": (1.0, 1.0), "best": (2.0, 0.0)}


def table(prompt: str = "") -> Table:
    documents = {e.document: VECTORS[e.trace] for e in ENTRIES}
    return Table({**documents, **{prompt + f"task t{i}": (3.0, 0.0) for i in range(9)}})


def ids(hits: list[Hit]) -> list[str]:
    return [hit.experience_id for hit in hits]


def test_hits_come_best_first_and_ties_in_bank_order() -> None:
    retriever = Retriever(ENTRIES, table(), RetrievalSettings(self_retrieval=True))
    (hits,) = retriever.search([("t8", "task t8")])
    # Ten asked for, five there.
    assert ids(hits) == ["t2#1", "t1#1", "t0#2", "t3#1", "t0#1"]
    assert [hit.score for hit in hits] == pytest.approx([1, 0.5**0.5, 0.5**0.5, 0.5**0.5, 0])
    assert retriever.search([]) == []


def test_self_retrieval_is_an_option_and_never_shortens_the_list() -> None:
    queries = [("t0", "task t0"), ("t2", "task t2")]
    allowed = Retriever(ENTRIES, table(), RetrievalSettings(self_retrieval=True, depth=3))
    assert [ids(h) for h in allowed.search(queries)] == [["t2#1", "t1#1", "t0#2"]] * 2
    refused = Retriever(ENTRIES, table(), RetrievalSettings(depth=3))
    assert [ids(h) for h in refused.search(queries)] == [
        ["t2#1", "t1#1", "t3#1"],
        ["t1#1", "t0#2", "t3#1"],
    ]


def test_what_a_task_finds_does_not_depend_on_the_others_asked() -> None:
    texts = {"t0": "task t0", "t8": "task t8"}
    settings = RetrievalSettings(depth=3)
    together = retrieve_for(ENTRIES, texts, table(), settings)
    assert together == {"t0": ["t2#1", "t1#1", "t3#1"], "t8": ["t2#1", "t1#1", "t0#2"]}
    alone = {t: retrieve_for(ENTRIES, {t: text}, table(), settings)[t] for t, text in texts.items()}
    assert alone == together
    assert retrieve_for(ENTRIES, {}, table(), settings) == {}


def test_document_and_query_sides_differ() -> None:
    paper = table("Find help: ")
    Retriever(ENTRIES, paper, RetrievalSettings(query_prompt="Find help: ")).search(
        [("t1", "task t1")]
    )
    assert paper.asked == [*(e.document for e in ENTRIES), "Find help: task t1"]
    assert paper.fitted == [e.document for e in ENTRIES]
    released = table()
    Retriever(ENTRIES, released, RetrievalSettings(key="task")).search([("t1", "task t1")])
    assert released.asked == [*(e.task for e in ENTRIES), "task t1"]
    with pytest.raises(UserError, match=r"retrieval\.key"):
        RetrievalSettings(key="trace")


@pytest.mark.parametrize("name", ["tfidf", "backbone"])
def test_equal_texts_tie_whatever_the_batch(name: str) -> None:
    # Several embedding batches of different widths; more queries than FAISS takes one by one.
    texts = ["ab", "Task Completed " * 4, "cd ef gh ij kl " * 5]
    kinds = [0] * 33 + [0, 1] * 16 + [2, 0, 1] * 10
    entries = [experience("t", texts[kind], i) for i, kind in enumerate(kinds)]
    settings = RetrievalSettings(depth=len(kinds))
    retriever = Retriever(entries, make_embedder(name, backbone()), settings)
    results = retriever.search([(f"q{i}", "task t Task Completed cd") for i in range(40)])
    for hits in results:
        places = [int(hit.experience_id.split("#")[1]) for hit in hits]
        assert sorted(places) == list(range(len(kinds)))
        for kind in range(3):
            own = [place for place in places if kinds[place] == kind]
            first = places.index(own[0])
            assert own == sorted(own) == places[first : first + len(own)]


@pytest.mark.parametrize("embedder", [TfidfEmbedder(), BackboneEmbedder(backbone())])
def test_embedders_give_unit_rows_that_find_their_own_text(embedder: Any) -> None:
    texts = [f"Task Completed {i} " + "tea " * i + "name cup world"[i:] for i in range(6)]
    embedder.fit(texts)
    rows = embedder.embed(texts)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert (rows @ rows.T).argmax(1).tolist() == list(range(6))


def test_a_zero_row_stays_zero() -> None:
    np.testing.assert_array_equal(
        unit_rows([[0, 0], [3, 4]]), np.array([[0, 0], [0.6, 0.8]], np.float32)
    )


def test_unknown_embedders_are_refused() -> None:
    with pytest.raises(UserError, match=r"retrieval\.embedder: found 'bm25'"):
        make_embedder("bm25", backbone())
    with pytest.raises(UserError, match="no such package is installed"):
        make_embedder("package:no_such_package_here", backbone())
    with pytest.raises(RuntimeError, match="fit"):
        BackboneEmbedder(backbone()).embed(["x"])
