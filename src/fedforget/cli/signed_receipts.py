"""``fedforget receipts verify``, ``sign`` and ``rotate-key``: signed receipts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.runs import Run
from fedforget.errors import BusyError, ConfigError
from fedforget.runtime.files import make_folder, only_writer, reason_of, refused

if TYPE_CHECKING:
    from fedforget.attestation import Finding, Verification
    from fedforget.runtime.ids import UserId

#: Digits of a SHA-256 in hexadecimal.
DIGITS = 64
#: A user id that is a whole number, as such ids are written.
NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def verify(
    path: Annotated[Path, typer.Argument(metavar="FILE|RUN", help="One signed receipt, or a run folder.")],
    keys: Annotated[
        list[Path] | None,
        typer.Option(
            "--key", help="A certificate to trust, in PEM; repeatable. For a run, by default those in its folder."
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(help="Of a run: the digest of an entry, noted earlier, which shows if later ones were removed."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Check whether this user is named: exit code 1 if not.")] = None,
    request: Annotated[
        str | None, typer.Option(help="With --user: the UUID of the user's request; or the salt that forget showed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check signed receipts: one file by a certificate, or all of a run. Exit code 1 if anything is wrong."""
    _require_attestation()
    from fedforget.attestation import verify_file, verify_run

    if (user is None) != (request is None):
        raise ConfigError(
            f"--user is {user!r}, --request is {request!r}.", "Give both: a user is only recognised with the request."
        )
    if head is not None and not (len(head) == DIGITS and set(head) <= set("0123456789abcdef")):
        raise ConfigError(f"The head {head!r} is not a digest.", f"Give {DIGITS} hexadecimal digits, as verify shows.")
    certificates = None if keys is None else [_read(file) for file in keys]
    if not path.exists():
        hint = "Give a signed receipt, such as RUN/receipts/signed/000001-ID.json, or a run folder."
        raise ConfigError(f"There is no file or folder {path}.", hint)
    if path.is_dir():
        result = verify_run(path, certificates, head)
    elif head is not None:
        raise ConfigError(f"--head was given, but {path} is one receipt.", "Leave it out, or give the run folder.")
    elif certificates is None:
        raise ConfigError(f"{path} is checked without a certificate.", "Give the one of who signed it: --key cert.pem")
    else:
        result = verify_file(path, certificates)
    named = None if user is None or request is None else _naming(result, user, request)
    value = {"path": str(path), **result.to_dict()}
    if named is not None:
        value |= {"user": user, "named": named}
    if as_json:
        show.print_json(value)
    else:
        _show(result, path, user, named)
    if not result.passed or named == []:
        raise typer.Exit(1)


def sign(
    run: Run,
    signing_key: Annotated[
        Path | None, typer.Option(help="Private key of receipts (ECDSA P-256, PEM); by default that of the run.")
    ] = None,
    signing_cert: Annotated[Path | None, typer.Option(help="Its certificate.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign the receipts of a run that are not signed, or whose wipe counts have changed. The key is made at first.

    Erasures that the erasure service carries out are left to it, since it knows the persons.
    """
    _require_attestation()
    from fedforget.attestation import ReceiptChain, SigningKey, sign_stored
    from fedforget.erasure_service.open_batches import open_batches

    _check_run(run)
    key, left = SigningKey.open(run, signing_key, signing_cert), open_batches(run)
    signed = sign_stored(run, key, without=left)
    head = ReceiptChain(run).head
    paths = [str(entry.path) for entry in signed]
    value = {"run": str(run), "signed": paths, "left_to_service": sorted(left), "head": head, "key": key.key_id}
    lines = [f"Signed {len(signed)} receipts.", *(f"  {path}" for path in paths)]
    lines += [f"Left to the erasure service, which has not finished it: {erasure}" for erasure in sorted(left)]
    show.result(value, as_json, "\n".join([*lines, f"Head {head}, key {key.key_id}"]))


def rotate_key(run: Run, yes: opt.Yes = False, as_json: AsJson = False) -> None:
    """Replace the key that signs the receipts of a run. Receipts that were signed before stay verifiable."""
    _require_attestation()
    from fedforget.attestation import SigningKey
    from fedforget.attestation.keys import FOLDER, is_given

    _check_run(run)
    with _service_stopped(run) if is_given(run) else nullcontext():
        show.confirm(f"This removes the private key that signs the receipts of {run}, and makes a new one.", yes)
        key = SigningKey.rotate(run)
    certificate = run / FOLDER / "certificate.pem"
    text = f"The new key is {key.key_id}. Hand out its certificate: {certificate}"
    show.result({"run": str(run), "key": key.key_id, "certificate": str(certificate)}, as_json, text)


@contextmanager
def _service_stopped(run: Path) -> Iterator[None]:
    """Keep the erasure service stopped; an error if it runs, since it would go on with the key that it was given."""
    from fedforget.erasure_service.state_file import FOLDER

    with ExitStack() as stack:
        try:
            stack.enter_context(only_writer(make_folder(run / FOLDER)))
        except BusyError as error:
            raise ConfigError(
                f"The erasure service of {run} runs with a signing key that was given to it.",
                "Start it again with another one: fedforget serve --signing-key FILE. Or stop it, rotate the key, and "
                "start it without --signing-key.",
            ) from error
        yield


def _require_attestation() -> None:
    """Say what is missing if the extra is not installed."""
    if any(find_spec(name) is None for name in ("securesystemslib", "cryptography")):
        raise ConfigError(
            "The packages for signed receipts are not installed.",
            "pip install 'fedforget[service]'. How to check a receipt with openssl alone: docs/receipts.md",
        )


def _check_run(run: Path) -> None:
    """Raise an error for a folder that is not a run, before anything is written to it."""
    from fedforget.server.config_file import read_config

    read_config(run / "config.toml")


def _naming(result: Verification, user: str, request: str) -> list[str]:
    """The requests of the receipts that name a user. They do not tell if ids are numbers or text: both are tried."""
    ids: list[UserId] = [user, *([int(user)] if NUMBER.fullmatch(user) else [])]
    return [name for id_ in ids for name in result.naming(id_, request)]


def _show(result: Verification, path: Path, user: str | None, named: Sequence[str] | None) -> None:
    rows = [
        ("–" if each.number is None else str(each.number), each.request or each.name, _result(each))
        for each in result.findings
    ]
    columns = ["number", "request", "result"]
    failed = sum(not each.passed for each in result.findings)
    if rows:
        show.out.print(show.table(columns, rows, left=columns[1:], title=f"Signed receipts in {path.name}"))
    verified = f"Verified: {len(result.findings)} signed, no problem."
    show.lines(f"Not verified: {failed} of {len(rows)} checks failed." if failed else verified)
    if result.head is not None:
        show.lines(f"{'Head' if path.is_dir() else 'Digest'} {result.head}")
    if not result.given:
        show.lines("Checked by the certificates in the run folder; give those that you trust with --key.")
    if named is not None:
        show.lines(f"User {user} is named: {', '.join(named)}." if named else f"User {user} is not named.")


def _result(finding: Finding) -> str:
    return "ok" if finding.passed else f"FAILED ({finding.problem}): {finding.reason}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise refused(path, error) or ConfigError(
            f"The certificate {path} cannot be read: {reason_of(error)}.", "Give a file in PEM."
        ) from error
