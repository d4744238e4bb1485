"""One checkpoint behind an OpenAI-compatible endpoint on loopback.

    with serve(checkpoint, settings, "policy", log) as endpoint:
        ask(endpoint.url, endpoint.model)

Engine `hf` serves small models on a CPU, engine `vllm` real ones on a GPU (or its CPU build).
This package loads no torch: the model lives in the child process.
"""

from lopd_repro.serving.launch import serve
from lopd_repro.serving.settings import Endpoint, ServerSettings

__all__ = ["Endpoint", "ServerSettings", "serve"]
