"""Signing keys: made once, private, refused when unfit, and replaced so that earlier receipts stay verifiable."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

pytest.importorskip("securesystemslib", reason="signed receipts are an extra: pip install 'fedforget[service]'")

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from fedforget.attestation import ReceiptChain, SigningKey, sign_stored, verify_run
from fedforget.attestation.keys import stored_certificates
from fedforget.errors import SigningKeyError
from tests.attestation.kills import killed_everywhere
from tests.attestation.made_runs import copied, make_run, receipt, signed_run, store


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def write_key(path: Path, key: object = None, mode: int = 0o600, password: bytes | None = None) -> Path:
    """A file with a private key, by default a fit one."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    hidden = NoEncryption() if password is None else BestAvailableEncryption(password)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))  # type: ignore[attr-defined]
    path.chmod(mode)
    return path


def given_pair(run: Path, folder: Path) -> tuple[Path, Path]:
    """A key and its certificate, as somebody else made them."""
    shutil.copytree(run, folder)
    SigningKey.rotate(folder)
    return folder / "service" / "signing" / "key.pem", folder / "service" / "signing" / "certificate.pem"


class TestOwn:
    def test_made_once_and_only_its_owner_can_read_it(self, run: Path) -> None:
        key = SigningKey.open(run)
        file = run / "service" / "signing" / "key.pem"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert b"BEGIN PRIVATE KEY" in file.read_bytes()
        again = SigningKey.open(run)
        assert (again.key_id, again.certificate_pem) == (key.key_id, key.certificate_pem)
        assert not (file.parent / "next.pem").exists()

    def test_the_certificate_names_the_federation_and_is_for_signatures_only(self, run: Path) -> None:
        found = x509.load_pem_x509_certificate(SigningKey.open(run).certificate_pem.encode())
        assert found.subject.rfc4514_string() == "CN=fedforget receipts of federation f00dfeed"
        found.verify_directly_issued_by(found)
        usage = found.extensions.get_extension_for_class(x509.KeyUsage).value
        assert usage.digital_signature
        assert not any([usage.key_cert_sign, usage.key_agreement, usage.content_commitment])
        assert (found.not_valid_after_utc - found.not_valid_before_utc).days >= 3650

    def test_signatures_verify_by_the_certificate(self, run: Path) -> None:
        key = SigningKey.open(run)
        public = x509.load_pem_x509_certificate(key.certificate_pem.encode()).public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        public.verify(key.sign(b"a body"), b"a body", ec.ECDSA(hashes.SHA256()))
        with pytest.raises(InvalidSignature):
            public.verify(key.sign(b"a body"), b"another", ec.ECDSA(hashes.SHA256()))

    def test_nothing_shown_holds_the_private_key(self, run: Path) -> None:
        key = SigningKey.open(run)
        secret = (run / "service" / "signing" / "key.pem").read_text().splitlines()[1]
        assert secret not in repr(key) + str(vars(key))

    def test_damage_is_named_and_quotes_no_secret(self, run: Path) -> None:
        SigningKey.open(run)
        file = run / "service" / "signing" / "key.pem"
        secret = file.read_text().splitlines()[1]
        file.write_text(f"{file.read_text()[:60]}\n{secret}\n")
        with pytest.raises(SigningKeyError, match=r"key\.pem cannot be read as a private key") as caught:
            SigningKey.open(run)
        assert secret not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_a_lost_certificate_is_named(self, run: Path) -> None:
        SigningKey.open(run)
        (run / "service" / "signing" / "certificate.pem").unlink()
        with pytest.raises(SigningKeyError, match="Restore it"):
            SigningKey.open(run)


class TestRefused:
    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
    def test_what_others_can_read(self, run: Path, tmp_path: Path, mode: int) -> None:
        with pytest.raises(SigningKeyError, match=rf"mode 0{mode:o}\)\.\nchmod 600"):
            SigningKey.open(run, write_key(tmp_path / "key.pem", mode=mode))
        SigningKey.open(run)
        (run / "service" / "signing" / "key.pem").chmod(mode)
        with pytest.raises(SigningKeyError, match="chmod 600"):
            SigningKey.open(run)

    @pytest.mark.parametrize(
        ("make", "kind"),
        [
            (lambda: ec.generate_private_key(ec.SECP384R1()), "secp384r1"),
            (lambda: ec.generate_private_key(ec.SECP256K1()), "secp256k1"),
            (ed25519.Ed25519PrivateKey.generate, "Ed25519"),
            (lambda: rsa.generate_private_key(65537, 2048), "RSA"),
        ],
    )
    def test_keys_of_another_kind(self, run: Path, tmp_path: Path, make: object, kind: str) -> None:
        with pytest.raises(SigningKeyError, match=f"another kind .*{kind}.*\n.*P-256"):
            SigningKey.open(run, write_key(tmp_path / "key.pem", make()))  # type: ignore[operator]

    def test_keys_with_a_password(self, run: Path, tmp_path: Path) -> None:
        with pytest.raises(SigningKeyError, match="it has a password"):
            SigningKey.open(run, write_key(tmp_path / "key.pem", password=b"secret"))

    def test_a_certificate_of_another_key(self, run: Path, tmp_path: Path) -> None:
        _, certificate = given_pair(run, tmp_path / "other")
        with pytest.raises(SigningKeyError, match="does not belong to the key"):
            SigningKey.open(run, write_key(tmp_path / "key.pem"), certificate)
        assert stored_certificates(run) == []

    def test_a_certificate_alone_and_files_that_are_none(self, run: Path, tmp_path: Path) -> None:
        key, certificate = given_pair(run, tmp_path / "other")
        with pytest.raises(SigningKeyError, match="without its key"):
            SigningKey.open(run, None, certificate)
        with pytest.raises(SigningKeyError, match="cannot be read"):
            SigningKey.open(run, tmp_path / "gone.pem")
        with pytest.raises(SigningKeyError, match="is not a certificate"):
            SigningKey.open(run, key, key)


class TestGiven:
    def test_it_is_used_and_its_private_key_is_not_copied(self, run: Path, tmp_path: Path) -> None:
        key, certificate = given_pair(run, tmp_path / "other")
        opened = SigningKey.open(run, key, certificate)
        assert opened.certificate_pem == certificate.read_text()
        assert not (run / "service" / "signing" / "key.pem").exists()
        assert [each.pem for each in stored_certificates(run)] == [certificate.read_text()]

    def test_a_key_in_the_file_of_the_certificate_is_not_handed_out(self, run: Path, tmp_path: Path) -> None:
        key, certificate = given_pair(run, tmp_path / "other")
        both = tmp_path / "both.pem"
        both.write_text(key.read_text() + certificate.read_text() + key.read_text())
        both.chmod(0o600)
        assert SigningKey.open(run, both, both).certificate_pem == certificate.read_text()
        assert "PRIVATE" not in (run / "service" / "signing" / "certificate.pem").read_text()

    def test_authorities_may_follow(self, run: Path, tmp_path: Path) -> None:
        key, certificate = given_pair(run, tmp_path / "other")
        SigningKey.rotate(run)
        chain = tmp_path / "chain.pem"
        chain.write_text(certificate.read_text() + SigningKey.open(run).certificate_pem)
        assert SigningKey.open(run, key, chain).certificate_pem == chain.read_text()

    def test_a_key_alone_gets_a_certificate_once(self, run: Path, tmp_path: Path) -> None:
        key = write_key(tmp_path / "key.pem")
        first = SigningKey.open(run, key)
        assert SigningKey.open(run, key).certificate_pem == first.certificate_pem
        assert len(stored_certificates(run)) == 1

    def test_receipts_of_the_key_before_stay_verifiable(self, tmp_path: Path) -> None:
        run = signed_run(tmp_path / "run")
        opened = SigningKey.open(run, *given_pair(run, tmp_path / "other"))
        store(run, receipt("d4"))
        assert sign_stored(run, opened)[0].number == 5
        assert verify_run(run).passed
        assert len(stored_certificates(run)) == 3

    def test_it_is_not_replaced_by_forgetting_to_give_it(self, run: Path, tmp_path: Path) -> None:
        SigningKey.open(run, *given_pair(run, tmp_path / "other"))
        with pytest.raises(SigningKeyError, match="it was given from another place"):
            SigningKey.open(run)
        assert SigningKey.rotate(run).key_id == SigningKey.open(run).key_id

    def test_a_replaced_key_does_not_come_back(self, run: Path, tmp_path: Path) -> None:
        pair = given_pair(run, tmp_path / "other")
        SigningKey.open(run, *pair)
        SigningKey.rotate(run)
        with pytest.raises(SigningKeyError, match="replaced before"):
            SigningKey.open(run, *pair)


class TestRotated:
    def test_the_old_private_key_is_gone_and_its_certificate_stays(self, tmp_path: Path) -> None:
        run = signed_run(tmp_path / "run")
        folder = run / "service" / "signing"
        old, certificate = (folder / "key.pem").read_bytes(), (folder / "certificate.pem").read_bytes()
        SigningKey.rotate(run)
        files = {path for path in run.rglob("*") if path.is_file()}
        assert not [path for path in files if old.splitlines()[1] in path.read_bytes()]
        assert (folder / "retired" / "002.pem").read_bytes() == certificate
        assert verify_run(run).passed

    def test_certificates_are_in_the_order_of_their_numbers(self, run: Path) -> None:
        first = SigningKey.open(run).certificate_pem
        second, third = SigningKey.rotate(run).certificate_pem, SigningKey.rotate(run).certificate_pem
        folder = run / "service" / "signing" / "retired"
        (folder / "001.pem").rename(folder / "999.pem")
        (folder / "002.pem").rename(folder / "1000.pem")
        assert [each.pem for each in stored_certificates(run)] == [first, second, third]
        SigningKey.rotate(run)
        assert (folder / "1001.pem").read_text() == third

    def test_a_key_opened_before_signs_no_more(self, tmp_path: Path) -> None:
        run = signed_run(tmp_path / "run")
        key = SigningKey.open(run)
        SigningKey.rotate(run)
        with pytest.raises(SigningKeyError, match="replaced after this process had opened it"):
            ReceiptChain(run).append(receipt("d4"), [], key, "f00dfeed")

    @pytest.mark.parametrize("first", [True, False], ids=["at first", "later"])
    def test_killed_anywhere_a_key_with_its_certificate_is_left(self, tmp_path: Path, first: bool) -> None:
        base = make_run(tmp_path / "base", receipt("a1"))
        if not first:
            sign_stored(base, SigningKey.open(base))
        places = 0
        for place in killed_everywhere(
            lambda: SigningKey.rotate(tmp_path / "run"), lambda: copied(base, tmp_path / "run") and None
        ):
            places += 1
            run = tmp_path / "run"
            key = SigningKey.open(run)
            store(run, receipt("z9"))
            sign_stored(run, key)
            assert verify_run(run).passed, place
            assert SigningKey.open(run).certificate_pem == key.certificate_pem
            left = {path.name for path in (run / "service" / "signing").iterdir()}
            assert left <= {"key.pem", "certificate.pem", "retired", "lock"}
        assert places > (20 if first else 25)
