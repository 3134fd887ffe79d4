"""Workers of a Ray cluster, or of a small one that is started on this machine."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ray

from journeyman.core.errors import JourneymanError
from journeyman.io.executors.local import Here, In, Out, in_order


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

    def map(self, function: Callable[[In], Out], items: Iterable[In]) -> Iterator[Out]:
        """As promised by `Workers`."""
        run = ray.remote(_call)
        function_there = ray.put(function)
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        return in_order(items, lambda item: run.remote(function_there, item), _result, cancel=ray.cancel, most=most)

    def close(self) -> None:
        if self._ours:
            ray.shutdown()


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)


def _result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise JourneymanError(f"a worker of the Ray cluster was lost: {error}") from error
