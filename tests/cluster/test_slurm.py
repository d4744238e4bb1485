"""The Slurm profile at work, on a cluster of one machine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from slurm_cluster import HERE, Cluster

pytest.importorskip(
    "snakemake_executor_plugin_slurm", reason="the extra `cluster` is not installed"
)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cluster]:
    """Two runs side by side, since most of their time is waiting.

    `failing` runs tests/cluster/Snakefile; memory counts a tenth there, so that 8,000 MB are 800.
    `workflow` runs the workflow itself: its audit, its tasks, and a training that has no model to
    start from.
    """
    failing = Cluster(tmp_path_factory.mktemp("cluster"), memory=0.1)
    work = failing.folder / "work"
    workflow = Cluster(tmp_path_factory.mktemp("cluster"))
    results = workflow.folder / "results"
    (results / "backbones/tiny-128/model").mkdir(parents=True)
    (results / "backbones/tiny-128/report.json").write_text("{}")
    run = "runs/tool_use/tiny-128/grpo/seed0/metrics.jsonl"
    targets = ["audit/report.html", "tasks/tool_use/splits.json", run]
    with ThreadPoolExecutor() as pool:
        pool.submit(
            failing.run,
            "--snakefile", str(HERE / "Snakefile"), "--directory", str(work), "all",
        )  # fmt: skip
        pool.submit(
            workflow.run,
            "--config", f"results={results}", "--retries", "0",
            "--allowed-rules", "audit", "tasks", "train_grpo", "--",
            *(f"{results}/{target}" for target in targets),
        )  # fmt: skip
    return {"failing": failing, "workflow": workflow}


@pytest.fixture
def failing(clusters: dict[str, Cluster]) -> Cluster:
    cluster = clusters["failing"]
    assert cluster.code == 0, cluster.output
    return cluster


@pytest.fixture
def workflow(clusters: dict[str, Cluster]) -> Cluster:
    return clusters["workflow"]


def test_a_job_that_ran_out_of_memory_gets_more(failing: Cluster) -> None:
    first, second = failing.jobs("rule_bank")
    assert (first["state"], first["call"]["mem"]) == ("OUT_OF_MEMORY", "8000")
    assert (second["state"], second["call"]["mem"]) == ("COMPLETED", "16000")
    # Its own 900 MB do not fit into 800; with two Snakemakes around it it stays under 1,600.
    assert 800 < second["peak_mb"] < 1600


def test_a_cancelled_job_is_submitted_again_and_goes_on(failing: Cluster) -> None:
    first, second = failing.jobs("rule_train_lopd")
    assert first["state"].startswith("CANCELLED by ")
    assert second["state"] == "COMPLETED"
    begun, ended = (failing.folder / "work/metrics.txt").read_text().splitlines()
    assert begun == f"begun by job {first['id']} on 8 GPUs"
    assert ended == f"ended by job {second['id']}"


def test_short_evaluations_are_one_job_and_take_turns_on_one_gpu(failing: Cluster) -> None:
    (job,) = failing.jobs("rule_short_evaluations_evaluate_acebench")
    assert job["call"]["gpus"] == "1"
    assert job["call"]["mem"] == "64000"
    # Four times 120 minutes, since one waits for the other.
    assert job["call"]["t"] == "480"
    texts = [(failing.folder / f"work/evaluations/{n}.txt").read_text() for n in range(4)]
    times = sorted(tuple(map(float, text.split())) for text in texts)
    assert all(before[1] <= after[0] for before, after in pairwise(times))


def test_logs_of_failed_jobs_stay_and_others_go(failing: Cluster) -> None:
    logs = failing.folder / "work/.snakemake/slurm_logs"
    kept = {str(path.relative_to(logs)) for path in logs.rglob("*.log")}
    failed = {f"rule_{rule}/{failing.jobs(f'rule_{rule}')[0]['id']}.log"
              for rule in ("bank", "train_lopd")}  # fmt: skip
    assert kept == failed


def test_real_jobs_run_to_their_end(workflow: Cluster) -> None:
    (tasks,), (audit,) = workflow.jobs("rule_tasks"), workflow.jobs("rule_tables_audit")
    assert [tasks["state"], audit["state"]] == ["COMPLETED", "COMPLETED"], workflow.output
    assert (workflow.folder / "results/audit/report.html").stat().st_size > 0
    assert (workflow.folder / "results/tasks/tool_use/splits.json").stat().st_size > 0


def test_training_asks_for_gpus(workflow: Cluster) -> None:
    (train,) = workflow.jobs("rule_train_grpo_wildcards_tool_use_tiny-128_0")
    words = train["words"]
    assert "--gpus=8" in words
    assert "--nodes=1" in words
    assert not any(word.startswith("--ntasks") for word in words)
    assert not any(word.startswith("--gpus") for word in workflow.jobs("rule_tasks")[0]["words"])


def test_a_failure_is_told_with_its_log_and_leaves_the_rest_alone(workflow: Cluster) -> None:
    assert workflow.code != 0
    log = workflow.folder / "results/logs/train/tool_use/tiny-128/grpo/seed0.log"
    assert log.read_text().strip().splitlines()[-1] in workflow.output
    assert not list(workflow.folder.glob("results/runs/**/selected.json"))
