"""`run`: what a confined command sees, which layers hold, the endpoint, and how it ends."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks import alive, descendants, survivors
from ordinary import script

from lopd_repro.sandbox import LAYERS, Limits, Outcome, SandboxError, run

LIMITS = Limits(memory_mb=256, wall_seconds=20, file_mb=4)
SHOW = "import os, sys; print(open(sys.argv[1]).read()); open(sys.argv[2], 'w').write('new')"


def python(code: str, *arguments: Any, **options: Any) -> Outcome:
    return run([sys.executable, "-c", code, *map(str, arguments)], LIMITS, **options)


def without(*layers: str) -> tuple[str, ...]:
    return tuple(name for name in LAYERS if name not in layers)


def test_readable_writable_and_hidden(tmp_path: Path) -> None:
    shown, open_folder = tmp_path / "shown", tmp_path / "open"
    for folder in (shown, open_folder):
        folder.mkdir(mode=0o700)
    (shown / "text").write_text("to be seen")
    (shown / "text").chmod(0o600)  # only its owner's: what is shown can be read all the same
    (shown / "secret").write_text("not to be seen")
    code = (
        "import os, sys\n"
        "shown, inside = sys.argv[1:]\n"
        "print(open(shown + '/text').read())\n"
        "print(repr(open(shown + '/secret').read()))\n"
        "try: open(shown + '/new', 'w')\n"
        "except OSError as error: print(type(error).__name__)\n"
        "open(inside + '/new', 'w').write('left')\n"
        "print(os.getcwd() == os.environ['HOME'], os.listdir('.'))\n"
    )
    outcome = python(
        code,
        shown,
        open_folder,
        readable=[shown],
        writable=[open_folder],
        hidden=[shown / "secret"],
    )
    assert outcome.verdict == "ok", outcome.stderr
    assert outcome.stdout.decode().splitlines() == ["to be seen", "''", "OSError", "True []"]
    assert sorted(one.name for one in shown.iterdir()) == ["secret", "text"]
    assert (open_folder / "new").read_text() == "left"
    # What was lent is given back, and what is new belongs to the caller.
    assert (open_folder / "new").stat().st_uid == open_folder.stat().st_uid == os.geteuid()


def test_a_writable_folder_inside_a_readable_one_and_single_files(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "inside")
    (tmp_path / "file").write_text("one file")
    code = (
        "import sys\n"
        "folder = sys.argv[1]\n"
        "print(open(folder + '/file').read())\n"
        "open(folder + '/link/new', 'w').write('x')\n"
        "try: open(folder + '/outside', 'w')\n"
        "except OSError: print('closed')\n"
    )
    for layers in (LAYERS, without("mount-namespace")):
        outcome = python(
            code, tmp_path, readable=[tmp_path], writable=[tmp_path / "link"], layers=layers
        )
        assert outcome.stdout == b"one file\nclosed\n", outcome.stderr
        only = python(
            "import os, sys; print(open(sys.argv[1]).read(), os.path.exists(sys.argv[2]))",
            tmp_path / "file",
            tmp_path / "inside" / "new",
            readable=[tmp_path / "file"],
        )
        assert only.stdout == b"one file False\n", only.stderr


def test_scratch_of_the_caller_stays_and_an_own_one_goes(tmp_path: Path) -> None:
    code = "import os; open('made', 'w').write('x'); print(os.getcwd())"
    mine = python(code, scratch=tmp_path)
    assert mine.stdout.decode().strip() == str(tmp_path) and (tmp_path / "made").is_file()
    for layers in (LAYERS, without("mount-namespace")):
        own = python(code, layers=layers)
        assert own.verdict == "ok" and not Path(own.stdout.decode().strip()).exists()


def test_what_is_not_listed_is_not_there() -> None:
    code = "import os; print(sorted(os.listdir('/')), os.path.exists('/etc/shadow'), os.getuid())"
    outcome = python(code, require=["network", "files", "processes"])
    assert b"home" not in outcome.stdout and b"False" in outcome.stdout
    assert not outcome.stdout.endswith(b" 0\n")  # never the superuser


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_can_be_missing(layer: str) -> None:
    code = "import os\ntry: open('/etc/passwd', 'a')\nexcept OSError: print('closed')"
    outcome = python(code, layers=without(layer))
    assert outcome.stdout == b"closed\n", outcome.stderr
    expected = {
        "network-namespace": ("network", "seccomp"),
        "mount-namespace": ("files", "landlock"),
        "seccomp": ("syscalls", "none"),
        "landlock": ("landlock", 0),
    }
    if layer in expected:
        name, value = expected[layer]
        assert outcome.isolation[name] == value


def test_an_open_network_is_always_refused() -> None:
    layers = without("network-namespace", "seccomp")
    with pytest.raises(SandboxError, match="isolation of network is not available"):
        run(["/bin/true"], LIMITS, layers=layers, require=[])


def test_open_files_are_refused_unless_waived() -> None:
    layers = without("mount-namespace", "landlock")
    if os.geteuid() == 0:
        pytest.skip("root drops to another user, whose files nobody has")
    with pytest.raises(SandboxError, match="isolation of files is not available"):
        run(["/bin/true"], LIMITS, layers=layers)
    assert run(["/bin/true"], LIMITS, layers=layers, require=[]).isolation["files"] == "none"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": ["no-such-program"]}, "no program 'no-such-program'"),
        ({"command": []}, "the command is empty"),
        ({"readable": [Path("/no/such/path")]}, "/no/such/path is not there"),
        ({"readable": [Path("/")]}, "the root folder cannot be"),
        ({"endpoint": "http://example.org:80"}, "not an http URL on 127.0.0.1"),
        ({"endpoint": "http://127.0.0.1/v1"}, "names no port"),
        ({"layers": ["walls"]}, "unknown layer 'walls'"),
        ({"layers": without("mount-namespace"), "hidden": [Path("/usr/bin")]}, "cannot be hidden"),
        (
            {"layers": without("network-namespace", "seccomp"), "endpoint": "http://127.0.0.1:9"},
            "an endpoint needs a network namespace or seccomp",
        ),
    ],
)
def test_what_cannot_be_done_is_said(options: dict[str, Any], message: str) -> None:
    arguments = {"command": ["/bin/true"], "limits": LIMITS, **options}
    with pytest.raises(SandboxError, match=message):
        run(**arguments)


# --- the endpoint --------------------------------------------------------------------------


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


CLIENT = """
import http.client, json, socket, sys
port, connections, rounds, size = map(int, sys.argv[1:])
clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=20) for _ in range(connections)]
right = 0
for turn in range(rounds):
    bodies = [(f"{turn} {i} " * size).encode() for i in range(connections)]
    for client, body in zip(clients, bodies):
        client.request("POST", "/v1/x", body)
    for client, body in zip(clients, bodies):
        right += client.getresponse().read() == body[::-1]
other = []
for address in (("127.0.0.1", port + 1), ("192.0.2.1", port), ("127.0.0.2", port)):
    try:
        socket.create_connection(address, 1)
        other.append(address)
    except OSError:
        pass
print(json.dumps([right, other]))
"""


NO_NAMESPACES = ("landlock", "seccomp")
ways_out = pytest.mark.parametrize(
    "layers", [LAYERS, without("network-namespace"), NO_NAMESPACES], ids=["relay", "gate", "bare"]
)


@ways_out
def test_a_hundred_connections_are_kept_alive(endpoint: str, layers: tuple[str, ...]) -> None:
    port = endpoint.split(":")[2].split("/")[0]
    outcome = python(CLIENT, port, 100, 3, 10, endpoint=endpoint, layers=layers)
    assert outcome.verdict == "ok", outcome.stderr
    assert json.loads(outcome.stdout) == [300, []]
    assert outcome.connections == 100


@ways_out
def test_long_bodies_go_through_whole(endpoint: str, layers: tuple[str, ...]) -> None:
    port = endpoint.split(":")[2].split("/")[0]
    # 2 MB each way
    outcome = python(CLIENT, port, 2, 2, 500_000, endpoint=endpoint, layers=layers)
    assert outcome.verdict == "ok", outcome.stderr
    assert json.loads(outcome.stdout) == [4, []]


ASYNC = """
import asyncio, sys
port = int(sys.argv[1])
async def ask(i):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = f"number {i}".encode()
    writer.write(b"POST /v1 HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n"
                 b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    answer = await reader.read()
    writer.close()
    return answer.endswith(body[::-1])
async def main():
    print(sum(await asyncio.gather(*(ask(i) for i in range(40)))))
asyncio.run(main())
"""


@ways_out
def test_clients_that_do_not_block(endpoint: str, layers: tuple[str, ...]) -> None:
    port = endpoint.split(":")[2].split("/")[0]
    outcome = python(ASYNC, port, endpoint=endpoint, layers=layers)
    assert outcome.stdout == b"40\n", outcome.stderr


@ways_out
def test_nothing_but_the_endpoint_is_reached(endpoint: str, layers: tuple[str, ...]) -> None:
    """Ways to an address that are no `connect`, and an address changed while it is read."""
    port = int(endpoint.split(":")[2].split("/")[0])
    with socket.socket() as other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        for one in (other, datagram):
            one.bind(("127.0.0.1", 0))
            one.setblocking(False)
        other.listen()
        outcome = python(
            SNEAK,
            port,
            other.getsockname()[1],
            datagram.getsockname()[1],
            endpoint=endpoint,
            layers=layers,
        )
        assert outcome.stdout.endswith(b"end\n"), outcome.stderr
        with pytest.raises(BlockingIOError):
            other.accept()
        with pytest.raises(BlockingIOError):
            datagram.recv(10)


SNEAK = """
import ctypes, socket, struct, sys, threading, time
port, other, datagram = map(int, sys.argv[1:])
def attempt(work):
    try: work()
    except OSError: pass
def fast_open():
    socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", other))
def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", datagram))
def sixth():
    socket.create_connection(("::ffff:127.0.0.1", other), 1)
def server():
    one = socket.socket(); one.bind(("127.0.0.1", 0)); one.listen()
for work in (fast_open, udp, sixth, server): attempt(work)
libc = ctypes.CDLL(None)
address = ctypes.create_string_buffer(struct.pack("=H", 2) + struct.pack("!H", port) +
                                      bytes([127, 0, 0, 1]) + bytes(8), 16)
going = True
def swap():
    while going:
        address[2:4] = struct.pack("!H", other)
        address[2:4] = struct.pack("!H", port)
threading.Thread(target=swap).start()
for _ in range(100):
    one = socket.socket()
    libc.connect(one.fileno(), address, 16)
    try:
        assert one.getpeername()[1] == port
    except OSError:
        pass
    one.close()
going = False
print("end")
"""


def test_a_dead_endpoint_refuses_like_any_other() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    code = (
        "import http.client, sys\n"
        "try:\n"
        "    c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]), timeout=5)\n"
        "    c.request('GET', '/'); c.getresponse()\n"
        "except (OSError, http.client.HTTPException) as error: print('refused')\n"
    )
    assert python(code, port, endpoint=f"http://127.0.0.1:{port}").stdout == b"refused\n"
    with pytest.raises(OSError):
        http.client.HTTPConnection("127.0.0.1", port, timeout=1).request("GET", "/")


# --- the end -------------------------------------------------------------------------------

PARENT = """
import json, sys
repository, layers, token, part = sys.argv[1:]
sys.path.insert(0, repository)
from lopd_repro.sandbox import Limits, run
from lopd_repro.sandbox.executor import Executor, Job
layers = json.loads(layers)
code = "import os, time\\nif os.fork() == 0: os.setsid()\\ntime.sleep(600)"
if part == "run":
    run([sys.executable, "-c", code], Limits(), layers=layers, environment={"TOKEN": token})
else:
    with Executor(layers=layers) as executor:
        executor.run([Job("stdin", code, [""])])
"""


@pytest.mark.parametrize("user", ["self", "nobody"])
@pytest.mark.parametrize("part", ["run", "executor"])
@pytest.mark.parametrize("layers", [LAYERS, NO_NAMESPACES], ids=["all", "no namespaces"])
def test_nothing_outlives_a_killed_caller(user: str, part: str, layers: tuple[str, ...]) -> None:
    token = f"token-{os.urandom(8).hex()}"
    repository = str(Path(__file__).resolve().parents[2])
    arguments = (PARENT, repository, json.dumps(layers), token, part)
    command, options = script(user, Path("-c"), *arguments)
    process = subprocess.Popen(command, **options)
    # Two of the program and three (supervisor, middle, init) or four (zygote's, with the warden;
    # a keeper comes on top where root has no namespaces to give) of the sandbox.
    fewest = 5 if part == "run" else 6
    try:
        until(lambda: len(descendants(process.pid)) >= fewest)
        family = descendants(process.pid)
    finally:
        process.kill()
        process.wait()
    until(lambda: not any(alive(pid) for pid in family))
    assert survivors(token) == []


def until(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
