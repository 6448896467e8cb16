"""Errors that say what is wrong and what to do next."""

from collections.abc import Sequence


class FedForgetError(Exception):
    """Base class of the errors of this package.

    ``problem`` names the value and the reason, ``hint`` the next step. The command line prints both without a
    traceback and exits with ``exit_code``.
    """

    exit_code = 1

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem}\n{hint}" if hint else problem)


class DataError(FedForgetError):
    """Interactions, or their file, cannot be used."""


class ConfigError(FedForgetError):
    """A setting is unknown or has an invalid value."""


class MissingComponentError(ConfigError):
    """A model, sampler or other component is neither built in nor installed here."""


class RunError(FedForgetError):
    """A run folder cannot be opened, continued or written."""


class BusyError(RunError):
    """Another process is writing to the run folder."""


class SystemLimitError(RunError):
    """The operating system refuses to read or write a file, which need not be damaged: too many open files, no room."""


class QuorumError(RunError):
    """Too few devices responded during an erasure; it was aborted and the old model stays in service."""


class NoAnswerError(RunError):
    """Too few devices answered in a step within its deadline; nothing of the step is stored, and it can be repeated."""


class SigningKeyError(ConfigError):
    """A signing key or a certificate cannot be used."""


class ReceiptError(RunError):
    """A signed receipt cannot be read."""


class RunWarning(UserWarning):
    """Something about a run folder that its owner should know, such as lost rounds."""


class DataWarning(UserWarning):
    """Something about the data that its owner should know, such as a column that is not used."""


def unknown_choice(
    kind: str, value: object, known: Sequence[str], hint: str = "", error: type[ConfigError] = ConfigError
) -> ConfigError:
    """The error for a value that is not one of the known ones, with the closest one suggested."""
    import difflib

    close = difflib.get_close_matches(str(value), known, n=1)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    return error(f"Unknown {kind} {value!r}.", f"{guess}Known: {', '.join(known)}. {hint}".rstrip())
