"""Train, validation and test: written once, checked whenever one is opened.

Splits are disjoint three ways: by id, by normalised task text, and by (environment, initial
state). What is told here of tool-use scenarios holds for any kind of task that is described by
`Item`s: `data/coding/splits.py` splits programming tasks, whose state is their tests.

Normalised means NFKC, case folded, numbers in one form (`1,200.0` is `1200`), all other
punctuation and runs of whitespace as one space. A near-duplicate is a pair with the same
normalised text, or one whose states agree up to the same normalisation (of keys, strings and
numbers; order of lists ignored) and whose texts have a word 3-shingle Jaccard similarity of at
least `NEAR_DUPLICATE_JACCARD`. Tasks made from one template with other entities have other
states and are not near-duplicates, however alike their texts.

The split file names the two data files beside it and holds a content hash per task and per
environment, so that edited data is refused. Only evaluation may open `test`.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from lopd_repro.data.envscaler import load_task_set
from lopd_repro.data.schema import Environment, TaskSet, ToolTask
from lopd_repro.errors import UserError
from lopd_repro.files import digest_json, digest_text, read_json, write_json

NEAR_DUPLICATE_JACCARD = 0.8
SPLIT_NAMES = ("train", "validation", "test")
PURPOSES: dict[str, frozenset[str]] = {
    "training": frozenset({"train"}),
    "experience": frozenset({"train"}),
    "selection": frozenset({"train", "validation"}),
    "evaluation": frozenset({"train", "validation", "test"}),
}
"""What each purpose may open. `experience` is the bank, the demonstrations and the skills."""

_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Item:
    """What splitting reads of a task.

    text: normalised. state: digest of what else makes it this task; loose_state: the same up to
    formatting. stratum: kinds of task that are spread evenly over the splits. sha256: of all that
    the task says. state_words, loose_words: what the two states are called in messages.
    """

    task_id: str
    text: str
    state: str
    loose_state: str
    stratum: tuple[str, str]
    sha256: str
    state_words: str = "the same environment and initial state"
    loose_words: str = "the same initial state"


def make_splits(
    environments_file: Path | str,
    scenarios_file: Path | str,
    split_file: Path | str,
    *,
    seed: int,
    validation: int,
    test: int | Collection[str],
    on_collision: Literal["refuse", "drop"] = "refuse",
) -> dict[str, list[str]]:
    """Choose the splits of a scenario pool, write `split_file`, return the ids by split.

    `test` is a number of tasks to hold out, or the ids of tasks held out already. `validation`
    tasks come out of the rest; what remains is for training. Tasks with a family are spread
    evenly over (domain, family). Near-duplicates never cross a split: within the pool they stay
    together; a pool task that collides with one of the given test tasks is refused, or dropped
    and listed with `on_collision="drop"`. A split file that is there already must agree.

    The data files must lie in the folder of `split_file`.
    """
    tasks = load_task_set(environments_file, scenarios_file)
    return split_items(
        list(map(_item, tasks.tasks.values())),
        split_file,
        {"environments_file": environments_file, "scenarios_file": scenarios_file},
        {"environment_sha256": {i: environment_digest(e) for i, e in tasks.environments.items()}},
        seed=seed,
        validation=validation,
        test=test,
        on_collision=on_collision,
    )


def split_items(
    items: Sequence[Item],
    split_file: Path | str,
    files: Mapping[str, Path | str],
    extra: Mapping[str, Any],
    *,
    seed: int,
    validation: int,
    test: int | Collection[str],
    on_collision: Literal["refuse", "drop"] = "refuse",
    source: str = "scenario file",
) -> dict[str, list[str]]:
    """The choice of `make_splits`, for tasks of any kind.

    `files` are the data files by their keys in the split file, `extra` further content of it;
    `source` is what messages call the file of the tasks.
    """
    for path in files.values():
        if Path(path).resolve().parent != Path(split_file).resolve().parent:
            raise UserError(f"{split_file}: must lie in the folder of {path}")
    by_id = {item.task_id: item for item in items}
    groups = _collision_groups(items)
    rng = random.Random(f"splits-{seed}")
    dropped: list[str] = []
    if isinstance(test, int):
        taken, rest = _take(groups, by_id, test, rng, "test")
        held_out = _flat(taken)
    else:
        held_out, rest, dropped = _given_test(groups, by_id, test, on_collision, source)
    chosen, rest = _take(rest, by_id, validation, rng, "validation")
    if not rest:
        raise UserError("splits: no task is left for training; ask for fewer others")
    splits = {
        "train": _flat(rest),
        "validation": _flat(chosen),
        "test": held_out,
    }
    check_items_disjoint(splits, by_id)
    document = {
        "seed": seed,
        **{name: Path(path).name for name, path in files.items()},
        "near_duplicate_jaccard": NEAR_DUPLICATE_JACCARD,
        **extra,
        "splits": {name: _rows(ids, by_id) for name, ids in splits.items()},
        "dropped": _rows(dropped, by_id),
    }
    if Path(split_file).exists():
        if read_json(split_file) != document:
            raise UserError(f"{split_file}: is there already and differs; splits are written once")
    else:
        write_json(split_file, document)
    return splits


def open_split(split_file: Path | str, name: str, purpose: str) -> TaskSet:
    """Tasks of one split with their environments, after checking the whole file.

    `UserError` if the purpose may not see the split, if a task or environment was edited, or if
    the splits are not disjoint.
    """
    document = read_split_file(split_file, name, purpose)
    if "scenarios_file" not in document:
        raise UserError(f"{split_file}: is not a split file of tool-use scenarios")
    folder = Path(split_file).parent
    tasks = load_task_set(
        folder / document["environments_file"], folder / document["scenarios_file"]
    )
    for env_id, digest in document["environment_sha256"].items():
        environment = tasks.environments.get(env_id)
        if environment is None or environment_digest(environment) != digest:
            raise UserError(
                f"{split_file}: environment {env_id!r} is not as it was when the splits were made"
            )
    items = list(map(_item, tasks.tasks.values()))
    chosen = {i: tasks.tasks[i] for i in verified_ids(split_file, document, items)[name]}
    used = {task.env_id for task in chosen.values()}
    return TaskSet(
        environments={i: e for i, e in tasks.environments.items() if i in used}, tasks=chosen
    )


def read_split_file(split_file: Path | str, name: str, purpose: str) -> dict[str, Any]:
    """The split file's content, if `purpose` may open split `name`."""
    if purpose not in PURPOSES:
        raise UserError(f"purpose {purpose!r}: must be one of {', '.join(PURPOSES)}")
    if name not in SPLIT_NAMES:
        raise UserError(f"split {name!r}: must be one of {', '.join(SPLIT_NAMES)}")
    if name not in PURPOSES[purpose]:
        allowed = ", ".join(sorted(PURPOSES[purpose]))
        raise UserError(f"split {name!r}: not open to {purpose!r}, which may see {allowed}")
    return _read(split_file)


def verified_ids(
    split_file: Path | str, document: Mapping[str, Any], items: Sequence[Item]
) -> dict[str, list[str]]:
    """Ids by split, after checking that no task was edited and that the splits are disjoint."""
    by_id = {item.task_id: item for item in items}
    splits: dict[str, list[str]] = {}
    for name, rows in document["splits"].items():
        for row in rows:
            item = by_id.get(row["task_id"])
            if item is None or item.sha256 != row["sha256"]:
                raise UserError(
                    f"{split_file}: task {row['task_id']!r} is not as it was when the splits "
                    "were made"
                )
        splits[name] = [row["task_id"] for row in rows]
    check_items_disjoint(splits, by_id)
    return splits


def split_ids(split_file: Path | str) -> dict[str, list[str]]:
    """Ids by split, without opening any task."""
    return {
        name: [row["task_id"] for row in rows] for name, rows in _read(split_file)["splits"].items()
    }


def text_digests(split_file: Path | str, names: Iterable[str] = SPLIT_NAMES) -> frozenset[str]:
    """SHA-256 of the normalised texts of some splits: to stay clear of them without reading any."""
    splits = _read(split_file)["splits"]
    return frozenset(row["text_sha256"] for name in names for row in splits[name])


def check_disjoint(splits: Mapping[str, Sequence[str]], tasks: TaskSet) -> None:
    """Refuse splits that share an id, a text, a state or near-duplicates; names the two ids."""
    used = {task_id for ids in splits.values() for task_id in ids}
    check_items_disjoint(splits, {i: _item(tasks.tasks[i]) for i in used})


def check_items_disjoint(splits: Mapping[str, Sequence[str]], items: Mapping[str, Item]) -> None:
    """`check_disjoint` for tasks of any kind, by id."""
    counts = Counter(task_id for ids in splits.values() for task_id in ids)
    for task_id, count in counts.items():
        if count > 1:
            raise UserError(f"splits: task {task_id!r} is listed {count} times")
    split_of = {task_id: name for name, ids in splits.items() for task_id in ids}
    for first, second, reason in _collisions([items[i] for i in split_of]):
        if split_of[first] != split_of[second]:
            raise UserError(
                f"splits: {first!r} ({split_of[first]}) and {second!r} ({split_of[second]}) "
                f"have {reason}"
            )


def normalise_text(text: str) -> str:
    """Case, whitespace, punctuation and number formats taken out; see the module's docstring."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    numbers = _NUMBER.sub(lambda match: f" {_number(match[0])} ", folded)
    # The decimal point of a number survives; every other mark is a space.
    return " ".join(re.sub(r"(?!(?<=\d)\.(?=\d))[\W_]", " ", numbers).split())


def jaccard(first: str, second: str) -> float:
    """Jaccard similarity of the word 3-shingles of two normalised texts (words if under three)."""
    one, two = _shingles(first), _shingles(second)
    return len(one & two) / len(one | two) if one | two else 1.0


def state_digest(task: ToolTask) -> str:
    """Identity of (environment, initial state)."""
    return digest_json([task.env_id, task.init_config])


def task_digest(task: ToolTask) -> str:
    """Content hash of everything a scenario says."""
    return digest_json(asdict(task))


def environment_digest(environment: Environment) -> str:
    """Content hash of everything an environment says."""
    return digest_json(asdict(environment))


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    size = 3 if len(words) >= 3 else 1
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def _number(text: str) -> str:
    return f"{Decimal(text.replace(',', '')).normalize():f}"


def _item(task: ToolTask) -> Item:
    return Item(
        task_id=task.task_id,
        text=normalise_text(task.task),
        state=state_digest(task),
        loose_state=digest_json([task.env_id, loose_form(task.init_config)]),
        stratum=(task.domain, task.family) if task.family else ("", ""),
        sha256=task_digest(task),
    )


def loose_form(value: Any) -> Any:
    """A JSON value with normalised strings and numbers, and lists in one order."""
    if isinstance(value, dict):
        items = [[normalise_text(str(key)), loose_form(item)] for key, item in value.items()]
        return ["object", sorted(items, key=digest_json)]
    if isinstance(value, list):
        return ["list", sorted((loose_form(item) for item in value), key=digest_json)]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return normalise_text(str(value))
    return value


def _collisions(items: Sequence[Item]) -> list[tuple[str, str, str]]:
    """All pairs that may not be in different splits, with the reason."""
    pairs: dict[tuple[str, str], str] = {}

    def group(
        key_of: Callable[[Item], str],
        reason: Callable[[Item], str],
        close: Callable[[Item, Item], bool] = lambda first, second: True,
    ) -> None:
        groups: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            groups[key_of(item)].append(item)
        for alike in groups.values():
            for first, second in combinations(alike, 2):
                if close(first, second):
                    pairs.setdefault((first.task_id, second.task_id), reason(first))

    group(
        lambda item: item.text,
        lambda item: "the same text up to case, punctuation and numbers",
    )
    group(lambda item: item.state, lambda item: item.state_words)
    group(
        lambda item: item.loose_state,
        lambda item: (
            f"like texts (3-shingle Jaccard >= {NEAR_DUPLICATE_JACCARD}) and {item.loose_words} "
            "up to formatting"
        ),
        lambda first, second: jaccard(first.text, second.text) >= NEAR_DUPLICATE_JACCARD,
    )
    return [(first, second, reason) for (first, second), reason in pairs.items()]


def _collision_groups(items: Sequence[Item]) -> list[list[str]]:
    """Tasks that must stay together, as sorted groups; most have one member."""
    parent = {item.task_id: item.task_id for item in items}

    def root(task_id: str) -> str:
        while parent[task_id] != task_id:
            parent[task_id] = task_id = parent[parent[task_id]]
        return task_id

    for first, second, _ in _collisions(items):
        parent[root(first)] = root(second)
    groups: dict[str, list[str]] = defaultdict(list)
    for task_id in sorted(parent):
        groups[root(task_id)].append(task_id)
    return sorted(groups.values())


def _take(
    groups: list[list[str]],
    items: Mapping[str, Item],
    count: int,
    rng: random.Random,
    name: str,
) -> tuple[list[list[str]], list[list[str]]]:
    """Groups with `count` tasks in all, spread evenly over strata, and the other groups."""
    total = sum(map(len, groups))
    if not 0 < count < total:
        raise UserError(f"splits: {count} tasks for {name}, must be between 1 and {total - 1}")
    strata: dict[tuple[str, str], list[list[str]]] = defaultdict(list)
    for group in groups:
        strata[items[group[0]].stratum].append(group)
    taken: list[list[str]] = []
    rest: list[list[str]] = []
    for stratum, quota in _quotas(strata, count, total).items():
        shuffled = strata[stratum]
        rng.shuffle(shuffled)
        for group in shuffled:
            fits = len(group) <= quota
            (taken if fits else rest).append(group)
            quota -= len(group) if fits else 0
        if quota:
            raise UserError(
                f"splits: {name} cannot have exactly {count} tasks: near-duplicates "
                "that must stay together leave no such choice"
            )
    return taken, rest


def _flat(groups: list[list[str]]) -> list[str]:
    return sorted(task_id for group in groups for task_id in group)


def _quotas(
    strata: dict[tuple[str, str], list[list[str]]], count: int, total: int
) -> dict[tuple[str, str], int]:
    """Proportional shares of `count`, the largest remainders rounded up."""
    exact = {s: count * sum(map(len, groups)) / total for s, groups in strata.items()}
    quotas = {s: int(share) for s, share in exact.items()}
    by_remainder = sorted(exact, key=lambda s: (quotas[s] - exact[s], s))
    for stratum in by_remainder[: count - sum(quotas.values())]:
        quotas[stratum] += 1
    return {s: quotas[s] for s in sorted(quotas)}


def _given_test(
    groups: list[list[str]],
    items: Mapping[str, Item],
    test: Collection[str],
    on_collision: Literal["refuse", "drop"],
    source: str,
) -> tuple[list[str], list[list[str]], list[str]]:
    """Test ids, the groups apart from them, and the ids dropped because they collide."""
    unknown = sorted(set(test) - set(items))
    if unknown:
        raise UserError(
            f"test ids: {unknown[0]!r} is not in the {source} ({len(unknown)} unknown in all)"
        )
    if len(set(test)) != len(test):
        raise UserError("test ids: an id is given twice")
    held_out = set(test)
    rest = []
    dropped = []
    for group in groups:
        apart = [task_id for task_id in group if task_id not in held_out]
        if len(apart) == len(group):
            rest.append(group)
        elif apart:
            if on_collision == "refuse":
                together = [i for i in group if i in held_out]
                check_items_disjoint({"test": together, "train": apart}, items)
            dropped += apart
    return sorted(held_out), rest, sorted(dropped)


def _rows(ids: Sequence[str], items: Mapping[str, Item]) -> list[dict[str, str]]:
    return [
        {
            "task_id": task_id,
            "sha256": items[task_id].sha256,
            "text_sha256": digest_text(items[task_id].text),
        }
        for task_id in ids
    ]


def _read(split_file: Path | str) -> dict[str, Any]:
    document = read_json(split_file)
    if not isinstance(document, dict) or set(SPLIT_NAMES) != set(document.get("splits", ())):
        raise UserError(f"{split_file}: is not a split file")
    return document
