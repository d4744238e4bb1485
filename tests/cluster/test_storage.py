"""The workflow with its files in a store, by Snakemake's storage plugin `fs`.

The project's folder is shared by all nodes; results lie in a store, and a job works on copies in
its node's scratch folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import HERE, ROOT, Cluster

pytest.importorskip("snakemake_storage_plugin_fs", reason="the extra `cluster` is not installed")
# A table of a run that is invented: its scale shows whether the job has read it.
TABLE1 = """\
scale,backbone,method,n_seeds,envscaler,envscaler_ci_low,envscaler_ci_high
invented,tiny-128,LOPD,3,60,59,61
invented,tiny-128,GRPO,3,50,49,51
"""
FIGURE3 = """\
figure,scale,backbone,panel,series,label,x,metric,split,method,value,std,ci_low,ci_high,n_seeds,\
source,bound_low,bound_high,printed,read_from
figure3,invented,tiny-128,,margin,"LOPD, m = 0",0,envscaler,test,lopd_margin_0,50,1,48,52,3,\
measured,,,,
"""
SHARED = ("persistence", "software-deployment", "sources", "source-cache")


def storage(folder: Path) -> list[str]:
    """The settings that profiles/slurm/config.yaml shows, as options."""
    return [
        "--default-storage-provider", "fs",
        "--default-storage-prefix", str(folder / "store"),
        "--local-storage-prefix", str(folder / "scratch"),
        "--shared-fs-usage", *SHARED,
    ]  # fmt: skip


def test_the_whole_graph_resolves(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules", *storage(tmp_path),
         "--config", "results=kept", "--", "all"],
        cwd=ROOT, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    totals = [line for line in done.stdout.splitlines() if line.startswith("total")]
    assert int(totals[-1].split()[1]) > 400


def test_jobs_work_on_copies(tmp_path: Path) -> None:
    """A picture is drawn by a submitted job; an audit, which reads files of the project as well,
    is made on the login node."""
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="as above")
    cluster = Cluster(tmp_path)
    if shutil.which("rsync") is None:
        stand_in = [sys.executable, str(HERE / "rsync_stand_in.py"), "install"]
        subprocess.run([*stand_in, str(tmp_path / "commands")], check=True)
    store, scratch = tmp_path / "store/kept", tmp_path / "scratch"
    store.mkdir(parents=True)
    (store / "table1.csv").write_text(TABLE1)
    (store / "figure3.csv").write_text(FIGURE3)
    cluster.run(
        *storage(tmp_path), "--config", "results=kept", "--retries", "0",
        "--allowed-rules", "figure", "audit_reproduced", "--",
        "kept/figure3.pdf", "kept/audit_reproduced/report.html",
    )  # fmt: skip
    assert cluster.code == 0, cluster.output
    (job,) = cluster.jobs("rule_figures_figure")
    assert job["state"] == "COMPLETED" and not cluster.jobs("rule_tables_audit_reproduced")
    assert (store / "figure3.pdf").read_bytes().startswith(b"%PDF")
    assert "invented" in (store / "audit_reproduced/claims.csv").read_text()
    assert {path.name for path in (store / "logs").iterdir()} == {
        "figure3.log", "audit_reproduced.log",
    }  # fmt: skip
    # Copies of inputs and outputs go; Snakemake leaves a login node's logs where they are.
    left = {path.name for path in scratch.rglob("*") if path.is_file()}
    assert left <= {"audit_reproduced.log", "audit_reproduced.tsv"}
    assert not (ROOT / "kept").exists()
