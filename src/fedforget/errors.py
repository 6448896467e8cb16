"""Errors a person can act on: what was wrong, why it matters, what to do next."""


class FedForgetError(Exception):
    """The base of every error this package raises on purpose.

    ``problem`` names the offending value and the reason; ``hint`` is the next step. The command line prints
    both without a traceback and exits with ``exit_code``.
    """

    exit_code = 1

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem}\n{hint}" if hint else problem)


class DataError(FedForgetError):
    """The interactions, or the file they come from, cannot be used as they are."""


class ConfigError(FedForgetError):
    """A setting has a value that makes no sense, or a name that does not exist."""


class RunError(FedForgetError):
    """A run folder cannot be opened, continued or written."""


class BusyError(RunError):
    """Another process is writing to the run folder."""


class QuorumError(RunError):
    """Too few devices answered a replay: the old model stays."""


class RunWarning(UserWarning):
    """A run was taken up in a way its owner should know of."""


def one_of(kind: str, value: object, known: list[str]) -> ConfigError:
    """The error for a name that is not in a list of known names, with the closest one suggested."""
    import difflib

    close = difflib.get_close_matches(str(value), known, n=1)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    return ConfigError(f"Unknown {kind} {value!r}.", f"{guess}Known: {', '.join(known)}.")
