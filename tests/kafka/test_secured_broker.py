"""A broker that requires TLS and a login: commands, checks before a run, rewind and the page's lag."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from broker_support import PASSWORD, USER, Broker, free_port, login, run_here
from corpus_support import load
from headwater import Checkpoint, Console, Job, Kafka
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord, read_job_record
from headwater.cli.broker import changed_security
from headwater.core.errors import HeadwaterError, ServiceUnreachable
from headwater.jobs.uris import uri_of
from headwater.kafka.broker_settings import Security
from headwater.kafka.offsets import earliest_offsets
from headwater.kafka.options import PROPERTIES_VARIABLE, Connection
from headwater.kafka.records import TopicWriter, read_records
from headwater.kafka.topics import create_topic, delete_topic, list_topics
from headwater.spark.preflight import check_services
from headwater.web.kafka_lag import KafkaLag
from waiting_support import wait_until

pytestmark = pytest.mark.services

# The topic, and how far its two partitions were read, of a checkpoint in the corpus.
TOPIC = "corpus-kafka-changelog-events"
READ = {0: 25, 1: 20}


@pytest.fixture(scope="module")
def events(secured_broker: Broker) -> str:
    """The topic of the corpus with 30 records in each partition."""
    create_topic(secured_broker.connection, TOPIC, 2)
    with TopicWriter(secured_broker.connection, TOPIC) as writer:
        for number in range(60):
            writer.send(b"{}", partition=number % 2)
    return TOPIC


@pytest.fixture
def checkpoint(secured_broker: Broker, events: str, tmp_path: Path) -> Path:
    """A checkpoint that read from the secured broker, with the record that ``headwater run`` leaves."""
    path = load("kafka-changelog", tmp_path / "checkpoint").path
    source = uri_of(Kafka(events, servers=secured_broker.bootstrap, options=secured_broker.options))
    LocalTree(path).write(JOB_FILE, JobRecord(job="events", source=source).to_bytes())
    return path


@pytest.fixture
def properties(secured_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The broker's own client.properties file, in the environment."""
    file = secured_broker.data / "client.properties"
    monkeypatch.setenv(PROPERTIES_VARIABLE, str(file))
    return file


def job_reading(broker: Broker, topic: str, **options: str) -> Job:
    source = Kafka(topic, "id INT", servers=broker.bootstrap, options={**broker.options, **options})
    return Job("events", lambda rows: rows, reads=source, writes=Console())


def test_status_shows_the_security_protocol(secured_broker: Broker) -> None:
    """Status names the protocol and the file with the clients' options; only its owner can read the passwords."""
    status = json.loads(run_here("broker", "status", "--data", secured_broker.data, "--json").stdout)
    assert (status["ready"], status["security_protocol"]) == (True, "SASL_SSL")
    assert status["client_properties"] == str(secured_broker.data / "client.properties")
    shown = run_here("broker", "status", "--data", secured_broker.data).stdout
    assert f"running on {secured_broker.bootstrap} (SASL_SSL, " in shown
    for name in ("client.properties", "server.properties", "tls/keystore.password"):
        assert (secured_broker.data / name).stat().st_mode & 0o077 == 0, name
    assert sorted(file.name for file in (secured_broker.data / "tls").iterdir()) == [
        "ca.pem",
        "keystore.password",
        "server.p12",
    ]


def test_commands_with_connection_options(secured_broker: Broker) -> None:
    """topics, produce and consume connect with --option, generate with the options of its URI."""
    created = run_here("topics", "create", "by-option", "--partitions", 2, *secured_broker.arguments)
    assert created.returncode == 0, created.stderr
    secured_broker.produce("by-option", "one", "two", partition=1)
    assert secured_broker.consume("by-option", 2) == ["one", "two"]
    generated = run_here("generate", "visits", "--to", secured_broker.uri("by-option"), "--count", 3)
    assert generated.returncode == 0, generated.stderr
    listed = run_here("topics", "--json", *secured_broker.arguments).stdout.splitlines()
    assert {topic["topic"]: topic["records"] for topic in map(json.loads, listed)}["by-option"] == 5
    deleted = run_here("topics", "delete", "by-option", "--yes", *secured_broker.arguments)
    assert deleted.returncode == 0, deleted.stderr
    assert PASSWORD not in "".join(done.stdout + done.stderr for done in (created, generated, deleted))


def test_options_without_prefix(secured_broker: Broker) -> None:
    """--option also accepts Kafka's own names, without the prefix of Spark."""
    options = [word for name, value in secured_broker.options.items() for word in ("--option", f"{name[6:]}={value}")]
    assert run_here("topics", "--bootstrap", secured_broker.bootstrap, *options).returncode == 0


def test_local_broker_needs_no_options(secured_broker: Broker, tmp_path: Path) -> None:
    """Commands that find the local broker by themselves also find its certificate and login."""
    (tmp_path / ".headwater").mkdir()
    (tmp_path / ".headwater" / "kafka").symlink_to(secured_broker.data)
    for arguments in ([], ["--bootstrap", secured_broker.bootstrap]):
        done = run_here("topics", "--json", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_properties_file_in_the_environment(secured_broker: Broker, tmp_path: Path) -> None:
    """With HEADWATER_KAFKA_PROPERTIES no command needs connection options."""
    file = {PROPERTIES_VARIABLE: str(secured_broker.data / "client.properties")}
    done = run_here("topics", "--bootstrap", secured_broker.bootstrap, cwd=tmp_path, env=file)
    assert done.returncode == 0, done.stderr


def test_records_come_back(secured_broker: Broker) -> None:
    """Records are written and read over TLS."""
    with TopicWriter(secured_broker.connection, "round-trip") as writer:
        writer.send(b"value", key=b"key")
    (record,) = read_records(secured_broker.connection, "round-trip", from_beginning=True, count=1, quiet_seconds=120)
    assert (record.key, record.value) == (b"key", b"value")
    delete_topic(secured_broker.connection, "round-trip")


def test_certificate_as_text_and_client_certificate(secured_broker: Broker) -> None:
    """The CA can be given as PEM text on one line, and a PKCS12 keystore is opened with its password."""
    options = dict(secured_broker.options)
    certificate = Path(options.pop("kafka.ssl.truststore.location")).read_text()
    options["kafka.ssl.truststore.certificates"] = " ".join(certificate.split("\n"))
    options["kafka.ssl.keystore.location"] = str(secured_broker.data / "tls" / "server.p12")
    options["kafka.ssl.keystore.password"] = (secured_broker.data / "tls" / "keystore.password").read_text()
    list_topics(Connection(secured_broker.bootstrap, options))
    with pytest.raises(HeadwaterError, match="does not accept an option"):
        list_topics(Connection(secured_broker.bootstrap, {**options, "kafka.ssl.keystore.password": "wrong"}))


@pytest.mark.parametrize(
    ("changed", "code", "problem", "remedy"),
    [
        (
            {"kafka.sasl.jaas.config": login("wrong")},
            "kafka-login-failed",
            "cannot log in to Kafka at {broker}: Invalid username or password",
            "kafka.sasl.jaas.config",
        ),
        (
            {"kafka.sasl.mechanism": "SCRAM-SHA-256"},
            "kafka-login-failed",
            "cannot log in to Kafka at {broker}: SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported "
            "SASL mechanism: broker's supported mechanisms: PLAIN",
            "kafka.sasl.mechanism",
        ),
        (
            {"kafka.ssl.truststore.location": ""},
            "kafka-tls-failed",
            "the TLS handshake with Kafka at {broker} failed: certificate verify failed: broker certificate could not "
            "be verified",
            "kafka.ssl.truststore.location=CA.pem",
        ),
        (
            {"kafka.security.protocol": "PLAINTEXT"},
            "kafka-unreachable",
            "cannot connect to Kafka at {broker}: connection closed by peer",
            "check kafka.security.protocol",
        ),
    ],
)
def test_wrong_options_are_refused_before_the_run(
    secured_broker: Broker, events: str, changed: dict[str, str], code: str, problem: str, remedy: str
) -> None:
    """Each kind of refused connection has a message of its own, within seconds, and shows no password."""
    began = time.monotonic()
    with pytest.raises(ServiceUnreachable) as refused:
        check_services(job_reading(secured_broker, events, **changed))
    assert time.monotonic() - began < 30, "Kafka's own timeout is a minute"
    assert (refused.value.code, refused.value.problem) == (code, problem.format(broker=secured_broker.bootstrap))
    assert remedy in str(refused.value.remedy)
    assert "wrong" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_tls_to_a_broker_without_tls(broker: Broker) -> None:
    """A broker without TLS is recognized during the handshake."""
    with pytest.raises(ServiceUnreachable) as refused:
        list_topics(Connection(broker.bootstrap, {"kafka.security.protocol": "SSL"}))
    assert refused.value.code == "kafka-tls-failed"
    assert "PLAINTEXT" in str(refused.value.remedy)


def test_services_are_checked_with_the_source_options(secured_broker: Broker, events: str) -> None:
    """The right options pass without a warning; a missing topic is refused."""
    warnings: list[str] = []
    check_services(job_reading(secured_broker, events), warn=warnings.append)
    check_services(
        replace(
            job_reading(secured_broker, events),
            writes=Kafka("created-by-the-broker", servers=secured_broker.bootstrap, options=secured_broker.options),
        ),
        warn=warnings.append,
    )
    assert warnings == []
    with pytest.raises(ServiceUnreachable, match="has no topic absent"):
        check_services(job_reading(secured_broker, "absent"))


def test_unmapped_option_is_a_warning_before_a_run(secured_broker: Broker, tmp_path: Path) -> None:
    """A truststore that only Java can read does not stop a run: the broker is reported as not checked."""
    (tmp_path / "trust.jks").write_bytes(b"\xfe\xed\xfe\xed")
    store = {"kafka.ssl.truststore.type": "JKS", "kafka.ssl.truststore.location": str(tmp_path / "trust.jks")}
    warnings: list[str] = []
    check_services(job_reading(secured_broker, "absent", **store), warn=warnings.append)
    assert warnings == [
        f"warning: cannot check the broker at {secured_broker.bootstrap}: kafka.ssl.truststore.location has no "
        "counterpart in the Python client (a JKS truststore can only be read by Java)"
    ]


def test_earliest_offsets(secured_broker: Broker, events: str) -> None:
    """Earliest offsets are those of the topics that exist."""
    found = earliest_offsets(secured_broker.uri(events), [events, "absent"])
    assert found == {events: {0: 0, 1: 0}}


def planned_reread(checkpoint: Path, *arguments: object, env: dict[str, str] | None = None) -> dict[str, object]:
    """Return what a rewind to batch 5 would read again from the source."""
    done = run_here("rewind", checkpoint, "--to", 5, "--dry-run", "--json", *arguments, env=env)
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    (reread,) = json.loads(done.stdout)["rereads"]
    return {name: reread[name] for name in ("rows", "still_there", "why")}


def test_rewind_checks_the_source(secured_broker: Broker, events: str, checkpoint: Path) -> None:
    """rewind --source connects with the options of the URI and finds the records."""
    reread = planned_reread(checkpoint, "--source", secured_broker.uri(events))
    assert reread == {"rows": 18, "still_there": True, "why": None}


def test_rewind_with_the_recorded_source(secured_broker: Broker, checkpoint: Path) -> None:
    """The recorded source has no password: rewind reports what is missing, and works with the properties file."""
    assert PASSWORD.encode() not in (checkpoint / JOB_FILE).read_bytes()
    assert planned_reread(checkpoint) == {
        "rows": 18,
        "still_there": None,
        "why": "the value of kafka.sasl.jaas.config was redacted when the source was recorded; set "
        "HEADWATER_KAFKA_PROPERTIES to a client.properties file for this broker, or name the source with this option: "
        "--source",
    }
    file = {PROPERTIES_VARIABLE: str(secured_broker.data / "client.properties")}
    assert planned_reread(checkpoint, env=file) == {"rows": 18, "still_there": True, "why": None}


def test_plan_rewind_in_python(checkpoint: Path, properties: Path) -> None:
    """Checkpoint.plan_rewind uses the properties file, too."""
    (reread,) = Checkpoint(checkpoint).plan_rewind(to=5).rereads
    assert reread.still_there is True


def test_wrong_password_is_why_a_rewind_was_not_checked(secured_broker: Broker, events: str, checkpoint: Path) -> None:
    """A failed login is named in the plan, instead of a broker that does not answer."""
    wrong = replace(secured_broker, options={**secured_broker.options, "kafka.sasl.jaas.config": login("wrong")})
    reread = planned_reread(checkpoint, "--source", wrong.uri(events))
    assert reread["still_there"] is None
    assert reread["why"] == f"cannot log in to Kafka at {secured_broker.bootstrap}: Invalid username or password"


def lag_of(lag: KafkaLag, checkpoint: Path) -> int | None:
    """Return the lag if it is known by now."""
    files = LocalTree(checkpoint)
    history = History(files)
    batches = tuple(history.batch(number) for number in history.batch_ids)
    return lag.rows(read_job_record(files), batches)


def test_lag_of_the_page(secured_broker: Broker, checkpoint: Path) -> None:
    """The lag counts the unread records of both partitions; a caller that knows the password passes the connection."""
    lag = KafkaLag(secured_broker.connection)
    assert wait_until(lambda: lag_of(lag, checkpoint), "the lag") == 60 - sum(READ.values())


def test_lag_of_the_page_with_the_properties_file(checkpoint: Path, properties: Path) -> None:
    """The recorded source and the properties file are enough for the lag."""
    lag = KafkaLag()
    assert wait_until(lambda: lag_of(lag, checkpoint), "the lag") == 60 - sum(READ.values())


def test_unknown_lag_has_a_reason(checkpoint: Path) -> None:
    """Without the password the lag is unknown, and the reason is kept for the page."""
    lag = KafkaLag()
    assert lag_of(lag, checkpoint) is None
    problem = wait_until(lambda: lag.problem, "a reason")
    assert problem.startswith("the value of kafka.sasl.jaas.config was redacted when the source was recorded")
    assert PROPERTIES_VARIABLE in problem
    assert lag_of(lag, checkpoint) is None


def test_security_of_a_running_broker_cannot_be_changed(secured_broker: Broker) -> None:
    """Other security options for a running broker are refused, not ignored."""
    refused = run_here("broker", "start", "--data", secured_broker.data, "--no-tls")
    assert refused.returncode == 11
    assert "already running" in refused.stderr
    same = run_here("broker", "start", "--data", secured_broker.data, "--tls", "--sasl-plain", f"{USER}:{PASSWORD}")
    assert same.returncode == 0, same.stderr


@pytest.mark.slow
def test_security_can_be_changed_between_starts(tmp_path: Path) -> None:
    """A stopped broker keeps its security for the next start, unless --no-tls, --sasl-plain or --no-sasl change it."""
    data, port = tmp_path / "kafka", free_port()

    def status() -> dict[str, object]:
        return json.loads(run_here("broker", "status", "--data", data, "--json").stdout)

    for arguments, protocol in (["--tls"], "SSL"), (["--no-tls", "--sasl-plain", "bob:x:y"], "SASL_PLAINTEXT"):
        started = run_here("broker", "start", "--port", port, "--data", data, *arguments)
        assert started.returncode == 0, started.stderr
        assert (status()["ready"], status()["security_protocol"]) == (True, protocol)
        assert run_here("broker", "stop", "--data", data).returncode == 0
        assert (status()["ready"], status()["security_protocol"]) == (False, protocol)
    last = Security.of(data)
    assert last == Security(tls=False, user="bob", password="x:y")
    assert changed_security(last, None, None, no_sasl=False) == last
    assert changed_security(last, True, None, no_sasl=True) == Security(tls=True)


@pytest.mark.parametrize("given", ["bob", "bob:", ":secret", "b b:secret", "bob:sécret"])
def test_login_of_a_wrong_form(given: str, tmp_path: Path) -> None:
    """--sasl-plain takes a user name and a password."""
    refused = run_here("broker", "start", "--data", tmp_path, "--sasl-plain", given)
    assert refused.returncode == 2
    assert "USER:PASSWORD" in refused.stderr
