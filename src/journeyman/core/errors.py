"""What this library raises on purpose, named after the line that was crossed.

    JourneymanError
    ├── InputError     a file, row or option from outside could not be used
    │   └── SettingError   a setting has a value that cannot be used
    ├── TraceError     a record could not be read as a trace
    ├── TaskError      the task's own code failed: its set-up or its verifier
    ├── ModelError     a model could not be reached, or its answer could not be used
    │   ├── ModelRefused   the server said no for good: wrong key, bad request, unknown model
    │   └── ModelBusy      rate limit, overload or time-out: the same call may succeed later
    ├── SandboxError   code could not be run (code that ran and failed is a result)
    ├── PlanError      a plan that cannot be carried out: a circle, a missing input, nobody who could do it
    ├── PlaybookError  a playbook, journal or delta that cannot be what it says it is
    ├── StoreError     the store refused, or holds what it should not
    │   ├── StoreUnreachable  its server does not answer now: the same call may succeed later
    │   └── Unkeepable     one record is such that no store takes it: what stands beside it can be kept
    ├── ReleaseError   a step the release table does not allow
    ├── TrainingError  the program that trains weights failed, or was killed
    └── MissingExtra   an optional dependency is not installed

Plug-ins raise whatever they like; `boundary` gives it a name on the way out. Every command ends with exit code 2 on any of
these and prints the message alone, so a message is one whole sentence: what, where, and what to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class JourneymanError(Exception):
    """The one class to catch."""


class InputError(JourneymanError):
    """A file, row or option from outside could not be used; the message names the file and line."""


class SettingError(InputError):
    """A setting has a value that cannot be used. A command names its option instead, in the same sentence."""

    def __init__(self, setting: str, said: str) -> None:
        """`said` is the whole sentence, with `{}` where the setting is named."""
        super().__init__(said.replace("{}", setting, 1))
        self.setting = setting
        self.said = said


class TraceError(JourneymanError):
    """A record could not be read as a trace."""


class TaskError(JourneymanError):
    """The task's own code failed, or a held-out task was handed to a learner."""


class ModelError(JourneymanError):
    """A model could not be reached, or its answer could not be used."""


class ModelRefused(ModelError):
    """The server said no for good: asking again will not help."""


class ModelBusy(ModelError):
    """The server was busy or slow: the same call may succeed later."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds the server asked for, when it did."""


class SandboxError(JourneymanError):
    """Code could not be run. Code that ran and failed is a result and no error."""


class PlaybookError(JourneymanError):
    """A playbook, journal or delta that cannot be what it says it is."""


class PlanError(JourneymanError):
    """A plan that cannot be carried out: subtasks in a circle, an input that nobody gives, a step that nobody can do."""


class StoreError(JourneymanError):
    """The store refused, or holds what it should not."""


class StoreUnreachable(StoreError):
    """The store's server does not answer now: the same call may succeed later."""


class Unkeepable(StoreError):
    """A record that no store takes, as it is: asking again will not help, and what stands beside it can be kept."""


class ReleaseError(JourneymanError):
    """A step the release table does not allow."""


class TrainingError(JourneymanError):
    """The program that trains weights failed, or was killed. What it had kept stays."""


class MissingExtra(JourneymanError):
    """An optional dependency is not installed; the message says what to type, as it is right for this installation."""

    def __init__(self, message: str) -> None:
        from journeyman.core.installation import advised

        super().__init__(advised(message))


@contextmanager
def boundary(kind: type[JourneymanError], doing: str) -> Iterator[None]:
    """Name what escapes. What already has a name keeps it: the inner line was nearer."""
    try:
        yield
    except JourneymanError:
        raise
    except Exception as error:
        raise kind(f"{doing}: {type(error).__name__}: {error}") from error
