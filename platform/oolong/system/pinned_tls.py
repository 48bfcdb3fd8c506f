"""TLS between the nodes of an attempt: the attempt has a certificate of its own, which its clients pin.

The control plane makes the certificate (`control_plane.runs.attempt_certificate`), gives it with its key to the node of
the trainer, and without the key to the nodes of other engines. No certificate authority is involved.
"""

from __future__ import annotations

import os
import ssl
import tempfile


def server_context(certificate: str, private_key: str) -> ssl.SSLContext:
    """Serve with this certificate and key, both PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # OpenSSL reads a key from a file only. mkstemp creates it with mode 0600.
    descriptor, path = tempfile.mkstemp(prefix="attempt-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(private_key + certificate)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    return context


def client_context(certificate: str) -> ssl.SSLContext:
    """Accept the server that has this certificate, and no other one, at whatever address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the pinned certificate identifies the attempt, not a host
    context.load_verify_locations(cadata=certificate)
    return context
