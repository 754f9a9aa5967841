"""The thread that runs a model, beside an event loop that never does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from edgebert_runtime.serving.worker import Worker


class ModelThread:
    """Steps a worker while it has work, and sleeps otherwise.

    ``after_step`` is called on the thread after each step. A step that raises fails all requests that are not finished,
    and the thread lives on.
    """

    def __init__(self, worker: Worker[Any], after_step: Callable[[], None]) -> None:
        self.worker = worker
        self.after_step = after_step
        self.condition = threading.Condition()
        self.awake = self.stopping = self.at_once = False
        self.thread = threading.Thread(target=self.run, name="edgebert-model", daemon=True)
        self.thread.start()

    def wake(self) -> None:
        """Let the thread look for work."""
        with self.condition:
            self.awake = True
            self.condition.notify()

    def stop(self, at_once: bool = False) -> None:
        """Take no more requests; end after those that were taken, or ``at_once`` between two steps."""
        self.worker.drain()
        with self.condition:
            self.stopping, self.at_once = True, self.at_once or at_once
            self.condition.notify()

    def run(self) -> None:
        """Step until stopped."""
        while True:
            with self.condition:
                self.condition.wait_for(lambda: self.awake or self.stopping)
                self.awake = False
            while not self.at_once and self.step():
                pass
            if self.stopping:
                break
        self.worker.close()
        self.after_step()

    def step(self) -> bool:
        """Compute a step, and return whether work is left."""
        try:
            return self.worker.step()
        except Exception as error:
            self.worker.abort(error)
            return False
        finally:
            self.after_step()
