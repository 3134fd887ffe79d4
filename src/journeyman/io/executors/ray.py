"""Workers of a Ray cluster, or of a small one that is started on this machine."""

import faulthandler
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import ray

from journeyman.core.errors import JourneymanError
from journeyman.io.executors.local import ATTEMPTS, Failed, Here, In, ItemFailed, Out, in_order, limited, settled


class RayWorkers(Here):
    """As many workers as the cluster has cores. Journeyman must be installed on its machines."""

    def __init__(self, address: str = "") -> None:
        """Join a cluster.

        Args:
            address: Such as "auto" or "ray://head:10001". Without one, the cluster this program is in already, or a new one
                on this machine, which ends with `close`.
        """
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                ray.init(address=address or None, log_to_driver=False, include_dashboard=False if not address else None)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise JourneymanError(f"no Ray cluster could be joined at {address or 'this machine'}: {error}") from error

    def map(
        self,
        function: Callable[[In], Out],
        items: Iterable[In],
        *,
        seconds: float | None = None,
        failed: Failed[In, Out] | None = None,
    ) -> Iterator[Out]:
        """As promised by `Workers`."""
        # Which item a worker was lost by is known here alone, so the retries are counted here.
        run = ray.remote(_call).options(max_retries=0)
        function_there = ray.put(function)
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))

        def submit(item: In) -> tuple[In, Any]:
            return item, run.remote(function_there, item, seconds)

        return in_order(
            items,
            submit,
            lambda pending: settled(
                partial(_result, pending[1], lambda: run.remote(function_there, pending[0], seconds)), pending[0], failed
            ),
            cancel=lambda pending: ray.cancel(pending[1]),
            most=most,
        )

    def close(self) -> None:
        if self._ours:
            ray.shutdown()


def _call(function: Callable[[Any], Any], item: Any, seconds: float | None) -> Any:
    if seconds is None:
        return function(item)
    # What cannot be interrupted, as it is in code that is not Python, ends with its process.
    faulthandler.dump_traceback_later(2 * seconds + 10, exit=True)
    try:
        return limited(function, item, seconds)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _result(reference: Any, again: Callable[[], Any]) -> Any:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError) as error:
            if attempt == ATTEMPTS:
                raise ItemFailed(f"a worker of the Ray cluster was lost {ATTEMPTS} times by the same item: {error}") from None
            reference = again()
        except ray.exceptions.RayError as error:
            raise JourneymanError(f"the Ray cluster lost an item: {error}") from error
    raise AssertionError
