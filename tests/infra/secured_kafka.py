"""A real Kafka with every way to log in, and a token endpoint, for security tests."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.local.kafka_server import start_kafka
from regraft.infra.local.make_certificates import IssuedCertificate
from regraft.infra.local.secure_kafka import LOCAL_USER, SecuredKafka, secure_kafka
from regraft.infra.process.find_port import LOOPBACK, choose_ports
from regraft.infra.process.write_private import write_private

STRANGER = "stranger"  # It may log in, but has no rights.
LISTENERS = {"BROKER": "SASL_SSL", "MUTUAL": "SSL", "OPEN": "PLAINTEXT", "EXPIRED": "SSL", "ELSEWHERE": "SSL"}
TOKEN_S = 300
PASSWORD = 'p"a\\ss word'  # for PLAIN and as client secret; needs quoting for JAAS
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"


@dataclass(frozen=True)
class SecuredServer:
    """The server's listeners by name, and how clients log in at each."""

    addresses: Mapping[str, str]
    secured: SecuredKafka
    client: IssuedCertificate
    password_file: Path
    token_url: str

    def access(self, how: str) -> KafkaAccess:
        """Return access by a SASL mechanism, or by MUTUAL TLS."""
        scram = self.secured.login()
        if how == "MUTUAL":
            files = self.client.certificate_file, self.client.key_file
            return KafkaAccess(self.addresses[how], security=KafkaSecurity(scram.ca_file, *files, tls=True))
        security = scram
        if how != "SCRAM-SHA-512":
            security = replace(scram, mechanism=how, password_file=self.password_file)
        if how == "OAUTHBEARER":
            security = replace(security, token_url=self.token_url)
        return KafkaAccess(self.addresses["BROKER"], security=security)


@contextmanager
def secured_server(directory: Path) -> Iterator[SecuredServer]:
    """Run the server until the block ends."""
    files = directory / "security"
    secured = secure_kafka(files, (LOCAL_USER, STRANGER))
    password_file = files / "awkward.password"
    write_private(password_file, PASSWORD.encode())
    ports = dict(zip((*LISTENERS, "CONTROLLER"), choose_ports(len(LISTENERS) + 1), strict=True))
    token = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    keys = files / "keys.json"
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(token.public_key()))
    keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}))
    with pytest.MonkeyPatch.context() as patch, _token_endpoint(secured, token) as token_url:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{keys}")
        properties = _properties(secured, ports, keys)
        with start_kafka(directory, port=ports["BROKER"], more_properties=properties, secured=secured):
            addresses = {name: f"{LOOPBACK}:{port}" for name, port in ports.items()}
            client = secured.authority.issue("client")
            yield SecuredServer(addresses, secured, client, password_file, token_url)


def _properties(secured: SecuredKafka, ports: Mapping[str, int], keys: Path) -> dict[str, str]:
    expired = secured.authority.issue("expired", age_days=20, valid_days=10)
    elsewhere = secured.authority.issue("elsewhere", ("kafka.example.org",))
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")  # for JAAS, then for properties
    listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())
    protocols = {**LISTENERS, "CONTROLLER": "SSL"}
    return {
        "listeners": listeners,
        "advertised.listeners": listeners.rsplit(",", 1)[0],
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "controller.quorum.voters": f"1@{LOOPBACK}:{ports['CONTROLLER']}",
        "super.users": f"User:CN=kafka;User:kafka;User:{LOCAL_USER};User:CN=client",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.expired.ssl.keystore.location": str(expired.both_file),
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere.both_file),
        "listener.name.broker.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        "listener.name.broker.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{LOCAL_USER}="{quoted}";',
        "listener.name.broker.oauthbearer.sasl.jaas.config": f"{OAUTH}LoginModule required;",
        "listener.name.broker.oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}ValidatorCallbackHandler",
        "listener.name.broker.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "listener.name.broker.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
    }


@contextmanager
def _token_endpoint(secured: SecuredKafka, key: rsa.RSAPrivateKey) -> Iterator[str]:
    """Serve tokens over https to clients that know the password."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            scheme, _, credentials = self.headers["Authorization"].partition(" ")
            is_known = base64.b64decode(credentials).decode() == f"{LOCAL_USER}:{PASSWORD}"
            is_right = scheme == "Basic" and is_known and form["grant_type"] == ["client_credentials"]
            now_s = int(time.time())
            claims = {"sub": LOCAL_USER, "aud": "kafka", "iat": now_s, "exp": now_s + TOKEN_S, "scope": "kafka"}
            token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "one"})
            answer = {"access_token": token, "token_type": "Bearer", "expires_in": TOKEN_S}
            content = json.dumps(answer if is_right else {"error": "invalid_client"}).encode()
            self.send_response(200 if is_right else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secured.server.certificate_file, secured.server.key_file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://{LOOPBACK}:{server.server_port}/token"
    server.shutdown()
    server.server_close()
    thread.join(10)
