"""A certificate of its own for each attempt whose engines may be on other nodes (oolong.system.pinned_tls)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

CLOCK_SKEW = timedelta(days=1)  # between the nodes
VALID_FOR = timedelta(days=3650)  # longer than any attempt


@dataclass(frozen=True)
class AttemptCertificate:
    certificate: str  # PEM
    private_key: str  # PEM


def create_certificate(name: str, *, now: datetime) -> AttemptCertificate:
    """Self-signed: clients accept this certificate and no other one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return AttemptCertificate(certificate.public_bytes(Encoding.PEM).decode(), pem.decode())
