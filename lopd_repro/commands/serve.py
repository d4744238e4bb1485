"""`lopd-repro serve`: a checkpoint behind an OpenAI-compatible endpoint, until interrupted.

    lopd-repro serve --checkpoint DIR --settings '{"engine": "hf", "dtype": "float64"}'

Prints one line of JSON with the endpoint once it answers; the workflow starts its servers itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import time
from pathlib import Path
from urllib.parse import urlsplit

from lopd_repro.serving import ServerSettings, serve
from lopd_repro.serving.launch import answers
from lopd_repro.settings import build, read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--settings", default="{}", help="the `serve` settings: JSON or @FILE")
    parser.add_argument("--name", default="policy", help="model name that clients ask for")
    parser.add_argument("--log", type=Path, default=Path("serve.log"))


def run(args: argparse.Namespace) -> int:
    """Serve; ends with 0 when interrupted or told to stop."""
    settings = build(ServerSettings, read_settings(args.settings), "serve")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        serve(args.checkpoint, settings, args.name, args.log) as endpoint,
    ):
        print(json.dumps(vars(endpoint)), flush=True)
        # Leaving the block says why a server no longer answers.
        while answers(urlsplit(endpoint.url).port or 0, endpoint.model):
            time.sleep(2)
    return 0
