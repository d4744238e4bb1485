"""OpenAI-compatible server on a transformers model, for small models on a CPU.

    python -m lopd_repro.serving.hf_server --checkpoint DIR --settings JSON --name NAME --port N

Answers `/health`, `/v1/models`, `/v1/completions` and `/v1/chat/completions` on loopback. An
answer depends on the settings' seed, the request's seed and its prompt ids, never on what else is
being asked (see `generator.py` for how far a dtype carries that). What it cannot honour it refuses
(`requests.py`). `serve` in `launch.py` starts it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from lopd_repro.errors import UserError
from lopd_repro.serving.requests import RequestError, Wanted, answer_room, read_request
from lopd_repro.serving.settings import ServerSettings
from lopd_repro.serving.tool_calls import read_tool_calls
from lopd_repro.settings import build

if TYPE_CHECKING:
    from lopd_repro.models.chat import ChatCodec
    from lopd_repro.serving.generator import Answer

_MAX_BODY = 64 * 2**20
# transformers would load these for tasks that a server has no part in: a second of start-up.
_UNUSED_PACKAGES = ("sklearn", "scipy", "pandas")


class ChatModel:
    """Checkpoint, tokenizer and model thread behind the two ways of asking."""

    def __init__(self, checkpoint: Path, settings: ServerSettings, name: str) -> None:
        import torch

        from lopd_repro.models.backbone import load_backbone
        from lopd_repro.serving.generator import Generator
        from lopd_repro.serving.worker import ModelThread

        double = settings.dtype == "float64"
        loaded = load_backbone(checkpoint, "float32" if double else settings.dtype)
        model = loaded.model.double() if double else loaded.model
        config = model.config
        self.name = name
        self.settings = settings
        self.limit = int(getattr(config, "max_position_embeddings", 0) or 2**20)
        if settings.max_length:
            if settings.max_length > self.limit:
                raise UserError(
                    f"serve.max_length: found {settings.max_length}, the model's own is "
                    f"{self.limit}"
                )
            self.limit = settings.max_length
        self.vocabulary = int(config.vocab_size)
        self.tokenizer = loaded.tokenizer
        self.eos_ids = loaded.eos_ids
        self._codecs: dict[str, ChatCodec] = {}
        torch.set_num_threads(1)
        memory = settings.prefix_cache_mb * 2**20
        self._generator = Generator(model, loaded.eos_ids, settings.max_batch, memory)
        self._thread = ModelThread(self._generator)
        self._counting = threading.Lock()
        self._counts = {"requests": 0, "refused": 0, "prompt_tokens": 0, "completion_tokens": 0}

    def chat(self, wanted: Wanted) -> dict[str, Any]:
        """Answer a conversation."""
        assert wanted.messages is not None
        try:
            text = self._codec(wanted).render(wanted.messages, wanted.tools)
        except Exception as error:
            # A template may raise anything about messages it does not like.
            raise RequestError(f"the chat template refuses these messages ({error})") from None
        ids = self._encode(text, wanted.add_special_tokens)
        text, finish, usage, key = self._answer(ids, wanted, chat=True)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if wanted.parse_tools:
            message["content"], calls = read_tool_calls(text, key)
            if calls:
                message["tool_calls"] = calls
                finish = "tool_calls" if finish == "stop" else finish
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._reply(f"chatcmpl-{key}", "chat.completion", choice, usage)

    def completion(self, wanted: Wanted) -> dict[str, Any]:
        """Go on with a text or with token ids."""
        prompt = wanted.prompt
        if isinstance(prompt, str):
            ids = self._encode(prompt, wanted.add_special_tokens)
        else:
            assert prompt is not None
            ids = prompt
        text, finish, usage, key = self._answer(ids, wanted, chat=False)
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return self._reply(f"cmpl-{key}", "text_completion", choice, usage)

    def _reply(
        self, key: str, kind: str, choice: dict[str, Any], usage: dict[str, int]
    ) -> dict[str, Any]:
        return {
            "id": key,
            "object": kind,
            "created": int(time.time()),
            "model": self.name,
            "choices": [choice],
            "usage": usage,
        }

    def _codec(self, wanted: Wanted) -> ChatCodec:
        """The codec with the server's and the request's template options."""
        from lopd_repro.models.chat import ChatCodec

        options = {**self.settings.template_options, **wanted.template_options}
        key = json.dumps(options, sort_keys=True)
        if key not in self._codecs:
            self._codecs[key] = ChatCodec(self.tokenizer, self.eos_ids, "keep_sampled", options)
        return self._codecs[key]

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def _answer(
        self, ids: list[int], wanted: Wanted, chat: bool
    ) -> tuple[str, str, dict[str, int], str]:
        """Text, finish reason, usage, and a digest of what the answer depends on."""
        from lopd_repro.rollout.engine import SamplingParams
        from lopd_repro.serving.generator import Generation

        if not ids:
            raise RequestError("the prompt has no tokens", param="prompt")
        if any(i >= self.vocabulary for i in (*ids, *wanted.stop_token_ids)):
            raise RequestError(f"a token id is not below the vocabulary size {self.vocabulary}")
        s = self.settings
        room = answer_room(len(ids), wanted.max_tokens, chat, self.limit)
        sampling = SamplingParams(
            s.temperature if wanted.temperature is None else wanted.temperature,
            s.top_p if wanted.top_p is None else wanted.top_p,
            s.top_k if wanted.top_k is None else wanted.top_k,
        )
        digest = hashlib.sha256(json.dumps([s.seed, wanted.seed, ids]).encode()).digest()
        job = Generation(
            tuple(ids),
            room,
            sampling,
            int.from_bytes(digest[:8]) >> 1,
            wanted.stop_token_ids,
            self._stopper(wanted),
        )
        answer = self._thread.submit(job).result()
        text, finish = self._text(answer, wanted)
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": len(answer.ids),
            "total_tokens": len(ids) + len(answer.ids),
        }
        self.count(prompt_tokens=len(ids), completion_tokens=len(answer.ids))
        return text, finish, usage, digest.hex()[:24]

    def _decode(self, ids: list[int], wanted: Wanted) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=wanted.skip_special_tokens))

    def _stopper(self, wanted: Wanted) -> Any:
        if not wanted.stop:
            return None
        # A token may be one byte of a character of four: look back far enough.
        reach = 4 * max(len(stop) for stop in wanted.stop) + 8

        def stopped(ids: list[int]) -> bool:
            tail = self._decode(ids[-reach:], wanted)
            return any(stop in tail for stop in wanted.stop)

        return stopped

    def _text(self, answer: Answer, wanted: Wanted) -> tuple[str, str]:
        ids = answer.ids
        ended = answer.finish == "end" or ids[-1] in wanted.stop_token_ids
        text = self._decode(ids[:-1] if ended else ids, wanted)
        places = [place for stop in wanted.stop if (place := text.find(stop)) >= 0]
        if places:
            return text[: min(places)], "stop"
        return text, "length" if answer.finish == "length" else "stop"

    @property
    def healthy(self) -> bool:
        """False once the model has failed; every request fails from then on."""
        return self._thread.failed is None

    def count(self, **more: int) -> None:
        """Add to the summary's counts."""
        with self._counting:
            for name, number in more.items():
                self._counts[name] += number

    def summary(self) -> str:
        """One line on what was served."""
        reused = self._generator.reused_tokens
        return json.dumps({**self._counts, "reused_prompt_tokens": reused})


def make_handler(model: ChatModel) -> type[BaseHTTPRequestHandler]:
    """The request handler of one served model."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body of an answer leave as one packet
        disable_nagle_algorithm = True
        timeout = 3600

        def do_GET(self) -> None:
            if self.path == "/health":
                self._send(200 if model.healthy else 503, {})
            elif self.path == "/v1/models":
                card = {
                    "id": model.name,
                    "object": "model",
                    "owned_by": "lopd-repro",
                    "max_model_len": model.limit,
                }
                self._send(200, {"object": "list", "data": [card]})
            else:
                self._refuse(RequestError(f"{self.path}: no such path", 404))

        def do_POST(self) -> None:
            ask = {"/v1/chat/completions": model.chat, "/v1/completions": model.completion}
            answer = ask.get(self.path)
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > _MAX_BODY:
                self.close_connection = True
                self._refuse(RequestError("Content-Length: missing or too large"))
                return
            raw = self.rfile.read(int(length))
            if answer is None:
                self._refuse(RequestError(f"{self.path}: no such path", 404))
                return
            model.count(requests=1)
            try:
                reply = answer(read_request(raw, answer == model.chat, model.name))
            except RequestError as refusal:
                self._refuse(refusal)
            except Exception as error:
                self._refuse(RequestError(f"the server failed ({error})", 500))
            else:
                self._send(200, reply)

        def _refuse(self, refusal: RequestError) -> None:
            model.count(refused=1)
            print(f"{self.path}: {refusal.status}: {refusal}", flush=True)
            self._send(refusal.status, refusal.body())

        def _send(self, status: int, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()
            except ConnectionError:
                self.close_connection = True

        def log_message(self, *args: Any) -> None: ...

    return Handler


class Server(ThreadingHTTPServer):
    """Listens once the model is loaded; a thread a connection."""

    daemon_threads = True
    request_queue_size = 512

    def server_bind(self) -> None:
        """Bind without the base class's look-up of the host's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])


def main() -> int:
    """Load, listen, serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--settings", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    for package in _UNUSED_PACKAGES:
        sys.modules[package] = None  # type: ignore[assignment]
    began = time.perf_counter()
    try:
        settings = build(ServerSettings, json.loads(args.settings), "serve")
        model = ChatModel(args.checkpoint, settings, args.name)
    except UserError as error:
        print(f"error: {error}", flush=True)
        return 2
    server = Server(("127.0.0.1", args.port), make_handler(model))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    seconds = time.perf_counter() - began
    print(f"{args.name}: listening on port {args.port} after {seconds:.1f} s", flush=True)
    try:
        server.serve_forever(poll_interval=3600)
    finally:
        print(f"{args.name}: {model.summary()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
