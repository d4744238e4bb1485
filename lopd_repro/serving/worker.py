"""The thread that owns the model: requests from many threads, answers as soon as they are done."""

from __future__ import annotations

import threading
import time
import traceback
from concurrent.futures import Future

from lopd_repro.serving.generator import Answer, Generation, Generator


class ModelThread:
    """Runs a `Generator`; `submit` may be called from any thread.

    `failed` is what ended the thread, or None; nothing is answered after that.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._waiting: list[tuple[Generation, float]] = []
        self._futures: dict[int, Future[Answer]] = {}
        self._wake = threading.Condition()
        self.failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def submit(self, job: Generation) -> Future[Answer]:
        """Queue a request."""
        future: Future[Answer] = Future()
        with self._wake:
            if self.failed is not None:
                raise RuntimeError(f"the model failed earlier: {self.failed}")
            self._futures[id(job)] = future
            self._waiting.append((job, time.monotonic()))
            self._wake.notify()
        return future

    def _run(self) -> None:
        try:
            while True:
                done = []
                entering = self._entering()
                if entering:
                    done += self._generator.join(entering)
                if self._generator.live:
                    done += self._generator.step()
                for job, answer in done:
                    self._futures.pop(id(job)).set_result(answer)
        except Exception as error:
            # Whatever it was, nobody may wait for ever.
            traceback.print_exc()
            with self._wake:
                self.failed = error
                for future in self._futures.values():
                    future.set_exception(error)

    def _entering(self) -> list[Generation]:
        """Requests to start now; waits while there is nothing at all to do."""
        generator = self._generator
        with self._wake:
            while not self._waiting and not generator.live:
                self._wake.wait()
            # Starting a few beside many that run costs the many a pause: gather some first.
            if not self._waiting or not generator.room:
                return []
            patient = time.monotonic() - self._waiting[0][1] < 0.25
            if patient and len(self._waiting) * 8 < generator.live:
                return []
            taken = [job for job, _ in self._waiting[: generator.room]]
            del self._waiting[: len(taken)]
            return taken
