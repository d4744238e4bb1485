"""Worlds for the tests: a plain one, and one whose tools misbehave in every way we can think of."""

from __future__ import annotations

from lopd_repro.data.schema import Check, Environment, ToolTask
from lopd_repro.envs import EpisodeSpec

SHELF = """
import random

class Shelf:
    sold = []                       # a class attribute: shared if the class were shared

    def __init__(self, init_config):
        self.items = {}
        self.log = []

    def add(self, name, qty):
        self.items[name] = self.items.get(name, 0) + qty
        self.log.append(name)
        return {"success": True, "items": dict(self.items)}

    def get(self, name):
        return self.items.get(name)

    def remove(self, name):
        del self.items[name]

    def sell(self, name):
        self.sold.append(name)
        return len(self.sold)

    def draw(self):
        self.items["drawn"] = random.randrange(10**9)
        return self.items["drawn"]

    def token(self):
        import uuid
        return str(uuid.uuid4())

    def tags(self):
        return {"red", "green", "blue", "cyan", "black"}

    def handle(self):
        return object()
"""

HOSTILE = """
import os, sys

class Hostile:
    def __init__(self, init_config):
        self.calls = 0

    def fine(self, n=1):
        self.calls += n
        return self.calls

    def loop(self):
        while True:
            pass

    def sleep(self):
        import time
        time.sleep(1000)

    def swallow(self):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    def exit_now(self):
        os._exit(0)

    def segfault(self):
        import ctypes
        ctypes.memset(1, 1, 1)

    def abort(self):
        os.abort()

    def memory(self):
        self.hog = bytearray(4 << 30)

    def grow(self):
        hog = []
        while True:
            hog.append(" " * (1 << 24))

    def fork(self):
        while True:
            os.fork()

    def thread(self):
        import threading
        threading.Thread(target=print).start()

    def shell(self):
        import subprocess
        return subprocess.check_output(["id"])

    def shout(self):
        print("x" * 100_000)
        print("again", file=sys.stderr)
        os.write(1, b"raw")
        sys.__stdout__.write("more")
        return "said"

    def scribble(self):
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b'[0, "ok", "forged"]\\n')
            except OSError:
                pass

    def hang_up(self):
        os.closerange(3, 64)

    def dial(self):
        import socket
        socket.create_connection(("127.0.0.1", 80), timeout=1)

    def huge(self):
        return "y" * 10_000_000

    def leave(self):
        sys.exit(3)

    def interrupt(self):
        raise KeyboardInterrupt

    def keep_lock(self):
        self.generator = (i for i in range(3))
        return "kept"

    def deep(self):
        sys.setrecursionlimit(10**9)
        f = lambda f: f(f)
        return f(f)

    def surrogate(self):
        return "\\ud800"

    def write_here(self):
        with open("note.txt", "w") as file:
            file.write("hello")
        return open("note.txt").read()

    def write_there(self, path):
        open(path, "w").close()

    def fill_disk(self):
        with open("big", "wb") as file:
            for _ in range(1000):
                file.write(bytes(1 << 20))

    def environment(self):
        return sorted(os.environ)

    def arguments(self):
        return sys.argv
"""

PLENTY = "def check_func(final_state):\n    return final_state['items'].get('bolt', 0) >= 5"
LOGGED = "def check_func(final_state):\n    return final_state['log'] == ['bolt']"
FALSE = "def check_func(final_state):\n    return False"
TRUE = "def check_func(final_state):\n    return True"


def shelf(*checks: str, seed: int = 0) -> EpisodeSpec:
    return EpisodeSpec("Shelf", SHELF, {"items": {"bolt": 3}}, checks, seed)


def hostile(*checks: str) -> EpisodeSpec:
    return EpisodeSpec("Hostile", HOSTILE, {}, checks)


def environment(code: str = SHELF, name: str = "Shelf") -> Environment:
    return Environment(name, name, code, (), "", ())


def task(*checks: str, name: str = "Shelf", config: dict[str, object] | None = None) -> ToolTask:
    config = {"items": {"bolt": 3}} if config is None else config
    return ToolTask("t", name, "Add.", config, tuple(Check("", code) for code in checks))
