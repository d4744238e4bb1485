"""`lopd-repro fetch`: data sets and weights from outside, pinned and checked.

    lopd-repro fetch --list
    lopd-repro fetch qwen3-4b envscaler-scenarios
    lopd-repro fetch qwen3-4b --from /shared/models/Qwen3-4B     # linked, after the same checks
    lopd-repro fetch qwen3-4b --offline                          # from the Hugging Face cache only
    lopd-repro fetch org/model --revision 40-hex-digits
    lopd-repro fetch --config config/paper.yaml                  # all that a configuration needs
    lopd-repro fetch my-model --sources my_sources.yaml          # sources of your own

Licence and size are printed before anything is downloaded. A run that was cut short goes on with
the files that are missing.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.fetch.place import Options, fetch, size_text
from lopd_repro.fetch.registry import Source, find, registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="registered name or OWNER/NAME")
    parser.add_argument("--config", nargs="+", type=Path, default=[], help="what these need")
    parser.add_argument("--data", type=Path, help="folder of fetched things (default: data)")
    parser.add_argument("--from", dest="given", type=Path, help="folder that has the files")
    parser.add_argument("--revision", help="commit of a model that is not registered")
    parser.add_argument("--sources", default="", help="file of further sources (sources.yaml)")
    parser.add_argument("--offline", action="store_true", help="ask no host")
    parser.add_argument("--check", action="store_true", help="read placed files again")
    parser.add_argument("--list", action="store_true", help="print what is registered")


def run(args: argparse.Namespace) -> int:
    """Fetch everything named."""
    if args.list:
        for source in registry(args.sources).values():
            at = (source.revision or "latest")[:12]
            size = size_text(source.known_bytes) if source.known_bytes else "-"
            licence = source.licence.split(" ")[0]
            print(f"{source.name:25} {at:13} {size:>8}  {licence:11} {source.about}")
        return 0
    sources, data = _chosen(args)
    if args.given is not None and len(sources) != 1:
        raise UserError(f"--from: found {len(sources)} names beside it, allowed: one")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for source in sources:
        fetch(source, Options(args.data or data, args.given, args.offline, args.check), _say)
    return 0


def _chosen(args: argparse.Namespace) -> tuple[list[Source], Path]:
    if not args.names and not args.config:
        raise UserError("fetch: name what to fetch, or --config FILE, or --list")
    sources = [find(name, args.revision, args.sources) for name in args.names]
    data = Path("data")
    if args.config:
        from lopd_repro.workflow import fetched, slices
        from lopd_repro.workflow.configuration import load

        config = load(args.config)
        data = Path(fetched.data_folder(config))
        sources += fetched.needed(slices.domains(config)).values()
    return sources, data


def _say(text: str) -> None:
    print(text, flush=True)
