"""The local broker's settings: one node, broker and controller in one, on loopback; its certificates and its login."""

from __future__ import annotations

import base64
import re
import secrets
import shutil
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from headwater.core.errors import SetupProblem, UsageProblem
from headwater.kafka.options import (
    Connection,
    format_properties,
    jaas_quoted,
    parse_jaas,
    parse_properties,
    plain_login,
)

HOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_DATA = Path(".headwater/kafka")
SERVER_FILE = "server.properties"
CLIENT_FILE = "client.properties"
RECORD_FILE = "broker.json"
LOCK_FILE = "lock"
# All names that a broker's data folder can contain.
DATA_NAMES = {SERVER_FILE, CLIENT_FILE, RECORD_FILE, f"{RECORD_FILE}.new", LOCK_FILE, "topics", "logs", "tls"}
CA_FILE = "tls/ca.pem"
KEYSTORE_FILE = "tls/server.p12"
PASSWORD_FILE = "tls/keystore.password"  # noqa: S105  a file's name
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
USER_NAME = re.compile(r"[A-Za-z0-9._-]+")

# Without the optimizing compiler the broker starts in half the time, and leaves the cores to Spark.
JVM_OPTIONS = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
)


@dataclass(frozen=True)
class Security:
    """How clients connect to the local broker: with or without TLS, with or without a login by SASL/PLAIN."""

    tls: bool = False
    user: str | None = None
    password: str = field(default="", repr=False)

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol."""
        transport = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{transport}" if self.user else transport

    @classmethod
    def of(cls, data: Path) -> Security:
        """Return the security with which the broker of a data folder was started last."""
        options = local_connection(data, DEFAULT_PORT).options
        protocol = options.get("kafka.security.protocol", "PLAINTEXT")
        login = parse_jaas(options["kafka.sasl.jaas.config"]) if protocol.startswith("SASL") else (None, "")
        return cls(protocol.endswith("SSL"), *login)


def parse_login(text: str) -> tuple[str, str]:
    """Return user name and password of ``USER:PASSWORD``."""
    user, _, password = text.partition(":")
    if not USER_NAME.fullmatch(user) or not password or not password.isascii() or not password.isprintable():
        raise UsageProblem(
            "bad-option",
            "--sasl-plain takes USER:PASSWORD",
            evidence={"user": "letters, digits, '.', '_' and '-'", "password": "printable ASCII characters"},
            remedy="--sasl-plain ann:secret",
        )
    return user, password


def local_connection(data: Path, port: int) -> Connection:
    """Return the connection to the broker of a data folder, with the options in its ``client.properties``."""
    try:
        properties = parse_properties((data / CLIENT_FILE).read_text("latin-1"))
    except OSError:
        return Connection(f"{HOST}:{port}")
    properties.pop("bootstrap.servers", None)
    return Connection(f"{HOST}:{port}", {f"kafka.{name}": value for name, value in properties.items()})


def new_cluster_id() -> str:
    """Return a random id in Kafka's own format."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def write_settings(data: Path, *, port: int, controller_port: int, security: Security) -> None:
    """Write ``server.properties`` and, for a secured broker, ``client.properties``: both may contain a password."""
    store = (data / PASSWORD_FILE).read_text() if security.tls else ""
    _write_private(
        data / SERVER_FILE,
        server_properties(port=port, controller_port=controller_port, security=security, keystore_password=store),
    )
    if security.protocol == "PLAINTEXT":
        (data / CLIENT_FILE).unlink(missing_ok=True)
    else:
        _write_private(data / CLIENT_FILE, _client_properties(data, port, security))


def server_properties(
    *, port: int, controller_port: int, security: Security | None = None, keystore_password: str = ""
) -> str:
    """Return the text of ``server.properties``. Its paths are relative to the data folder, in which the broker runs."""
    security = security or Security()
    protocol = security.protocol
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"{protocol}://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"{protocol}://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": protocol,
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "log.dirs": "topics",
        "num.partitions": "1",
        "auto.create.topics.enable": "true",
        # A stream can only be rewound to records that the broker still has.
        "log.retention.ms": "-1",
        "log.retention.bytes": "-1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    if security.tls:
        settings |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": KEYSTORE_FILE,
            "ssl.keystore.password": keystore_password,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": CA_FILE,
        }
    if security.user:
        login = plain_login(security.user, security.password).removesuffix(";")
        accepted = f"user_{security.user}={jaas_quoted(security.password)}"
        settings |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f"{login} {accepted};",
        }
    return format_properties(settings)


def is_server_file(path: Path) -> bool:
    """Return whether a file is a ``server.properties`` of a Headwater broker: one node on loopback, in this folder."""
    try:
        found = parse_properties(path.read_text("latin-1"))
    except OSError:
        return False
    return found.get("log.dirs") == "topics" and found.get("controller.quorum.voters", "").startswith(f"1@{HOST}:")


def _client_properties(data: Path, port: int, security: Security) -> str:
    settings = {"bootstrap.servers": f"{HOST}:{port}", "security.protocol": security.protocol}
    if security.user:
        settings["sasl.mechanism"] = "PLAIN"
        settings["sasl.jaas.config"] = plain_login(security.user, security.password)
    if security.tls:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(data / CA_FILE)}
    return format_properties(settings)


def ensure_certificates(data: Path, java: Path) -> None:
    """Create the broker's certificate and the CA that signs it, unless the data folder has them.

    The CA's private key is deleted afterwards: a client that trusts ``tls/ca.pem`` trusts this broker only.
    """
    if (data / KEYSTORE_FILE).is_file() and (data / CA_FILE).is_file():
        return
    folder = data / "tls"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    _write_private(data / PASSWORD_FILE, secrets.token_urlsafe(24))
    names = ["-ext", f"san=ip:{HOST},dns:localhost", "-ext", "eku=serverAuth"]
    key = ["-keyalg", "EC", "-groupname", "secp256r1"]
    years = ["-validity", "3650"]
    ca, server = ["-keystore", "ca.p12", "-alias", "ca"], ["-keystore", "server.p12", "-alias", "server"]
    for arguments in (
        ["-genkeypair", *ca, *key, *years, "-dname", "CN=Headwater local CA", "-ext", "bc:c=ca:true"],
        ["-exportcert", *ca, "-rfc", "-file", "ca.pem"],
        ["-genkeypair", *server, *key, *years, "-dname", "CN=localhost"],
        ["-certreq", *server, "-file", "server.csr"],
        ["-gencert", *ca, *years, *names, "-rfc", "-infile", "server.csr", "-outfile", "server.pem"],
        ["-importcert", "-keystore", "server.p12", "-alias", "ca", "-file", "ca.pem", "-noprompt"],
        ["-importcert", *server, "-file", "server.pem", "-noprompt"],
    ):
        _run_keytool(java, folder, arguments)
    for name in ("ca.p12", "server.csr", "server.pem"):
        (folder / name).unlink()


def _run_keytool(java: Path, folder: Path, arguments: list[str]) -> None:
    beside = java.resolve().with_name("keytool")
    keytool = str(beside) if beside.is_file() else shutil.which("keytool") or "keytool"
    common = ["-storetype", "PKCS12", "-storepass:file", Path(PASSWORD_FILE).name, "-J-XX:TieredStopAtLevel=1"]
    try:
        done = subprocess.run(
            [keytool, *arguments, *common],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        reason = " ".join((done.stdout + done.stderr).split()) if done.returncode else None
    except OSError as failure:
        reason = failure.strerror or str(failure)
    if reason is not None:
        shutil.rmtree(folder, ignore_errors=True)
        raise SetupProblem(
            "certificate-failed",
            "keytool could not create the broker's certificate",
            evidence={"keytool": keytool, "step": arguments[0], "reason": reason},
            remedy="install a complete Java runtime (keytool is part of it), or start the broker without --tls",
        )


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
