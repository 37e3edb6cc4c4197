"""The checks of the deploy kit find what is wrong: each of these breaks one thing in a copy of the kit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.check import logins
from deploy.check.chart import chart, charts
from deploy.check.containers import containers_of
from deploy.check.files import compose, dockerfile, units
from deploy.check.kit import ROOT, TOOLS, Kit, Skipped, Wrong, find
from deploy.check.monitoring import alerts, dashboard, promtool
from deploy.check.names import names
from deploy.check.one_machine import volume
from deploy.check.roles import roles
from palaver.version import __version__

pytestmark = [
    # Of those programs, for each test: a quarter of a minute together.
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not (TOOLS / ".installed").exists(), reason="make check-deploy installs its programs"),
]

PARTS = (
    "Dockerfile",
    "deploy/compose.yaml",
    "deploy/grafana/palaver.json",
    "deploy/helm",
    "deploy/prometheus",
    "deploy/providers.toml",
    "deploy/redis.conf",
    "deploy/systemd",
    "deploy/users.acl",
    "deploy/users-7.0.acl",
    "docs/how-to/alerts.md",
    "docs/how-to/archive.md",
    "docs/how-to/find-the-cause.md",
    "docs/how-to/redis.md",
    "docs/how-to/webhooks.md",
    "docs/reference/state.md",
)
WORKERS = "deploy/helm/palaver/templates/workers.yaml"
API = "deploy/helm/palaver/templates/api.yaml"
HELPERS = "deploy/helm/palaver/templates/_helpers.tpl"
WORKER_UNIT = "deploy/systemd/palaver-worker@.service"
SERVE_UNIT = "deploy/systemd/palaver-serve.service"
API_UNIT = "deploy/systemd/palaver-api.service"
API_SOCKET = "deploy/systemd/palaver-api.socket"
DROP_IN = "deploy/systemd/palaver-worker@.service.d/openai.conf"
METRICS_DROP_IN = "deploy/systemd/palaver-worker@.service.d/metrics.conf"
PORT_DROP_IN = "deploy/systemd/palaver-tools@.service.d/metrics.conf"
COMPOSE = "deploy/compose.yaml"
REDIS = "deploy/redis.conf"
SHELL = "compose: redis: its shell stays process 1"
ALERTS = "deploy/helm/palaver/alerts.yaml"
DASHBOARD = "deploy/grafana/palaver.json"
LEAST = "least-values.yaml"
MISNAMED = (
    (DROP_IN, "OPENAI_API_KEY_FILE", "OPENIA_API_KEY_FILE", "openai.conf: OPENIA_API_KEY_FILE is not read"),
    (WORKERS, "PALAVER_DRAIN_GRACE", "PALAVER_DRAIN_GRAVE", f"{LEAST}: Deployment/palaver-worker: "
     "PALAVER_DRAIN_GRAVE is not read"),
    (WORKER_UNIT, "PALAVER_DRAIN_GRACE", "PALAVER_DRAIN_GRAVE", "worker@.service: PALAVER_DRAIN_GRAVE is not read"),
    (COMPOSE, "PALAVER_PROVIDERS:", "PALAVER_PROVIDER:", "compose: worker: PALAVER_PROVIDER is not read"),
    (COMPOSE, "PALAVER_METRICS_PORT:", "PALAVER_METRICS_PROT:", "compose: worker: PALAVER_METRICS_PROT is not read"),
    (COMPOSE, "PALAVER_METRICS_KEYS_FILE:", "PALAVER_METRIC_KEYS_FILE:", "compose: api: "
     "PALAVER_METRIC_KEYS_FILE is not read"),
    (COMPOSE, "OTEL_TRACES_SAMPLER:", "OTEL_TRACE_SAMPLER:", "OTEL_TRACE_SAMPLER is not read"),
    (METRICS_DROP_IN, "PALAVER_METRICS_PORT", "PALAVER_METRIC_PORT", "metrics.conf: PALAVER_METRIC_PORT is not read"),
    (PORT_DROP_IN, "947%i", "%ith", "metrics.conf: PALAVER_METRICS_PORT=1th"),
    (COMPOSE, 'PALAVER_DRAIN_GRACE: "10"', 'PALAVER_DRAIN_GRACE: "soon"', "compose: worker: PALAVER_DRAIN_GRACE=soon"),
    (COMPOSE, "PALAVER_API_KEYS_FILE: /run", "PALAVER_API_KEYS: /run", "compose: api: PALAVER_API_KEYS is a secret"),
    (HELPERS, "name: {{ $name }}_FILE", "name: X_{{ $name }}_FILE", "X_PALAVER_REDIS_URL_FILE is not read"),
    ("Dockerfile", "PALAVER_HOST=", "PALAVER_HOTS=", "Dockerfile: PALAVER_HOTS is not read"),
)  # fmt: skip
"""Of variables: what is broken, and what has to be said. One look at a copy finds them all."""
MONITORING = "deploy/helm/palaver/templates/monitoring.yaml"
MISMADE = (
    (WORKERS, "terminationGracePeriodSeconds", "terminationGracePeriodSecond", "('terminationGracePeriodSecond' was"),
    (WORKERS, "valueLocation", "valueLocatoin", "spec.triggers[0].metadata: Additional properties are not allowed "
     "('valueLocatoin' was"),
    (WORKERS, "minReplicaCount:", "minReplicasCount:", "('minReplicasCount' was"),
    (WORKERS, "{{- if not $.Values.keda.enabled }}", "{{- if true }}", "each upgrade would undo the scaling"),
    (WORKERS, "livenessProbe", "startupProbe", "Deployment/palaver-worker: no livenessProbe"),
    (HELPERS, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "the root file system can be written"),
    (API, "maxUnavailable: 0", "maxUnavailable: 1", "an upgrade may end a pod before another one is ready"),
    (API, "command: [sleep", "command: [slepe", "does not wait in preStop until load balancers forget it"),
    (API, "kind: PodDisruptionBudget", "kind: PodDisruptionBudgte", "schema for kind PodDisruptionBudgte"),
    (HELPERS, "mountPath: {{ include", "mountPath: /x{{ include", "nothing is mounted at /run/secrets/"),
    (MONITORING, "interval: {{", "intervall: {{", "ServiceMonitor/palaver-api: spec.endpoints[0]: Additional "
     "properties are not allowed ('intervall' was"),
    (MONITORING, "key: metrics-key", "kye: metrics-key", "ServiceMonitor/palaver-api: spec.endpoints[0]."
     "authorization.credentials: Additional properties are not allowed ('kye' was"),
)  # fmt: skip
"""The same of the chart."""
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {key: value}\n"


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """A copy, with one set of values."""
    for part in PARTS:
        source, target = ROOT / part, tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    made = Kit(tmp_path)
    for values in made.value_sets:
        if values.name != LEAST:
            values.unlink()
    return made


def only_chart(kit: Kit) -> list[str]:
    return chart(kit, kit.chart / "ci" / LEAST)


def monitored_chart(kit: Kit) -> list[str]:
    """With what Prometheus's operator is told."""
    values = kit.chart / "ci" / LEAST
    values.write_text(values.read_text() + "monitoring: {scrape: true, alerts: true}\n")
    return only_chart(kit)


def broken(kit: Kit, path: str, old: str, new: str) -> None:
    text = (kit.root / path).read_text()
    assert old in text
    (kit.root / path).write_text(text.replace(old, new))


@pytest.mark.parametrize("check", [dockerfile, compose, units, monitored_chart, names, dashboard, alerts])
def test_nothing_is_wrong_with_a_copy(kit: Kit, check: Callable[[Kit], list[str]]) -> None:
    assert check(kit) == []


@pytest.mark.parametrize(
    ("check", "path", "old", "new", "said"),
    [
        (dockerfile, "Dockerfile", "USER 10001:10001\n", "", "run as user 10001"),
        (dockerfile, "Dockerfile", "USER 10001", "RUN apt-get install curl\nUSER 10001", "DL3008"),
        (dockerfile, "Dockerfile", " AS build", "", "DL3022"),
        (compose, COMPOSE, "healthcheck: *worker-health", "helthcheck: *worker-health", "helthcheck"),
        (compose, COMPOSE, "read_only: true\n  tmpfs", "tmpfs", "worker: the root file system can be written to"),
        (compose, COMPOSE, "stop_grace_period: 20s", "stop_grace_period: 15s", "worker: is killed before"),
        (
            compose,
            COMPOSE,
            " > /tmp/redis.conf &&\n        exec redis-server /tmp/redis.conf",
            " | exec redis-server -",
            SHELL,
        ),
        (compose, COMPOSE, "exec redis-server", "redis-server", SHELL),
        (compose, REDIS, "timeout 0\n", "timeout 0\ntimeout 0\n", "timeout stands there twice"),
        (compose, COMPOSE, "command: [tools]", "command: [worker]", "not palaver tools"),
        (
            compose,
            COMPOSE,
            "redis_url: {file: ./secrets/redis_url}",
            "redis_url: {environment: X}",
            "redis_url is no file",
        ),
        (units, WORKER_UNIT, "KillSignal", "KillSignla", "KillSignla"),
        (units, WORKER_UNIT, "SIGTERM\n", "SIGTREM\n", "SIGTREM"),
        (units, WORKER_UNIT, "TimeoutStopSec=20", "TimeoutStopSec=15", "killed before its grace"),
        (
            units,
            WORKER_UNIT,
            "redis-url-worker\n",
            "redis-url-api\n",
            "worker does not log in to Redis as palaver-worker",
        ),
        (units, SERVE_UNIT, "TimeoutStopSec=30", "TimeoutStopSec=15", "killed before its grace"),
        (units, SERVE_UNIT, "StateDirectory=", "StateDirektory=", "StateDirektory"),
        (units, WORKER_UNIT, "PALAVER_REDIS_URL_FILE", "MY_KEY_FILE", "starts only where there is MY_KEY"),
        (units, DROP_IN, "LoadCredential", "LaodCredential", "LaodCredential"),
        (units, API_UNIT, "Requires=palaver-api.socket\n", "", "started again is refused"),
        (units, API_SOCKET, "ListenStream", "ListenStraem", "ListenStraem"),
        (units, WORKER_UNIT, "bin/palaver worker", "bin/palaver wroker", "no unit starts palaver worker"),
        (units, WORKER_UNIT, "/opt/palaver/bin/palaver", "/opt/palavre/bin/palaver", "not executable"),
        (only_chart, WORKERS, "{{- end }}\n{{- end }}\n", "{{- end }}\n", "unexpected EOF"),
        (alerts, ALERTS, "palaver_overdue_seconds", "palaver_overdue_time", "there is no metric palaver_overdue_time"),
        (alerts, ALERTS, "max by (type)", "max by (kind)", "none of its metrics has a label kind"),
        (alerts, ALERTS, 'reason="no_worker"', 'raeson="no_worker"', "none of its metrics has a label raeson"),
        (alerts, ALERTS, "#redis-is-away", "#redis-is-gone", "find-the-cause.md#redis-is-gone is not there"),
        (alerts, ALERTS, "alert: PalaverBug", "alert: PalaverBugs", "no test in alerts_test.yaml sets it off"),
        (alerts, ALERTS, "severity: page", "severity: urgent", "the severity is none of"),
        (
            alerts,
            ALERTS,
            "max by (queue) (palaver_queue_r",
            "sum by (queue) (palaver_queue_r",
            "take `max` of it first",
        ),
        (alerts, ALERTS, "max by (type)", "max", "takes one type for all"),
        (alerts, ALERTS, "sum by (limit)", "max by (limit)", "`max` leaves out the others"),
        (dashboard, DASHBOARD, "max(rate(palaver_runs_sub", "sum(rate(palaver_runs_sub", "take `max` of it first"),
        (dashboard, DASHBOARD, "max by (le, status)", "max by (le)", "takes one status for all"),
        (
            dashboard,
            DASHBOARD,
            "palaver_model_calls_total",
            "palaver_steps_total",
            "no panel shows palaver_model_calls",
        ),
        (
            dashboard,
            DASHBOARD,
            "max(increase(palaver_recoveries",
            "max(increase(palaver_recovered",
            "there is no metric palaver_recovered",
        ),
        (dashboard, DASHBOARD, '"title": "Palaver"', '"title": "Mine"', "not what `python -m deploy.grafana` makes"),
    ],
)
def test_what_is_wrong_is_found(
    kit: Kit, check: Callable[[Kit], list[str]], path: str, old: str, new: str, said: str
) -> None:
    broken(kit, path, old, new)
    assert said in "\n".join(check(kit))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("PALAVER_DATA_DIR=/var/lib/palaver", "PALAVER_DATA_DIR=/data", "/data is not made for user 10001"),
        ("ENV PALAVER_DATA_DIR=/var/lib/palaver\n", "", "no line ENV PALAVER_DATA_DIR"),
    ],
)
def test_a_volume_that_could_not_be_written_to_is_found(kit: Kit, old: str, new: str, said: str) -> None:
    assert volume(kit) is None
    broken(kit, "Dockerfile", old, new)
    assert said in str(volume(kit))


def test_every_variable_that_is_wrong_is_found(kit: Kit) -> None:
    for path, old, new, _ in MISNAMED:
        broken(kit, path, old, new)
    found = names(kit)
    assert [said for *_, said in MISNAMED if not any(said in fault for fault in found)] == [], found


@pytest.mark.skipif(shutil.which("promtool") is None, reason="NOT CHECKED: no promtool; apt-get install prometheus")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("max by (provider) (avg", "max by (provider) avg", "parse error"),
        ("for: 2m", "for: 20m", "FAILED"),
        ("{{ $labels.queue }}", "{{ $label.queue }}", "undefined variable"),
    ],
)
def test_what_prometheus_does_not_understand_is_found(kit: Kit, old: str, new: str, said: str) -> None:
    assert promtool(kit) == []
    broken(kit, ALERTS, old, new)
    assert said in "\n".join(promtool(kit))


def test_everything_that_is_wrong_with_the_chart_is_found(kit: Kit) -> None:
    (kit.chart / "templates" / "secret.yaml").write_text(SECRET)
    for path, old, new, _ in MISMADE:
        broken(kit, path, old, new)
    found = monitored_chart(kit)
    assert "Secret/x: the chart makes a Secret; it may only name one" in found
    assert [said for *_, said in MISMADE if not any(said in fault for fault in found)] == [], found


def test_a_pod_that_is_killed_within_its_grace_is_found(kit: Kit) -> None:
    broken(kit, WORKERS, "$.Values.drainSeconds 10", "$.Values.drainSeconds 9")
    assert "its grace is 10 s: too early" in "\n".join(only_chart(kit))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("settings: {PALAVER_API_KEYS: a-key}", "PALAVER_API_KEYS"),
        ("settings: {PALAVER_DRAIN_GRACE: '90'}", "PALAVER_DRAIN_GRACE"),
        ("worker: {minReplicas: 0}", "minReplicas"),
        ("settings: {PALAVER_METRICS_KEYS: a-key}", "PALAVER_METRICS_KEYS"),
        ("tracing: {endpoint: 'http://c:4318', settings: {OTEL_TRACES_SAMPLR: always_on}}", "OTEL_TRACES_SAMPLR"),
        ("tracing: {endpoint: 'http://c:4318', settings: {OTEL_EXPORTER_OTLP_HEADERS: k=v}}", "OTLP_HEADERS"),
        ("tracing: {headersKey: otlp-headers}", "headersKey"),
        ("settings: {PALAVER_TOOL_MEMORY: '4096'}", "PALAVER_TOOL_MEMORY"),
        ("extraEnv: [{name: PALAVER_RETENTION, value: '5'}]", "extraEnv"),
        ("drainSecond: 5", "drainSecond"),
        ("existingSecret: ''", "existingSecret"),
        ("tools: {queues: {GPU: {}}}", "GPU"),
        ("tools: {queues: {tools: {}}}", "tools"),
        ("tools: {queues: {gpu: {modules: [shop]}}}", "modules"),
    ],
)
def test_values_that_cannot_be_are_refused(kit: Kit, values: str, said: str) -> None:
    more = kit.root / "more.yaml"
    more.write_text(values)
    with pytest.raises(Wrong, match=said):
        kit.render(kit.chart / "ci" / LEAST, more)


def test_another_version_too_few_sets_of_values_and_a_guessed_image_are_found_and_nothing_else(kit: Kit) -> None:
    broken(kit, "deploy/helm/palaver/Chart.yaml", 'appVersion: "', 'appVersion: "9')
    broken(kit, "deploy/helm/palaver/values.yaml", 'repository: ""', "repository: somewhere")
    assert charts(kit) == [
        "chart: fewer than 4 sets of values in ci/",
        f"chart: appVersion is not {__version__}",
        "chart: without values no part asks for repository",
    ]


def test_a_program_that_is_not_there_is_said() -> None:
    with pytest.raises(Skipped, match="there is no no-such-program"):
        find("no-such-program")


@pytest.mark.parametrize("values", [LEAST, "everything-values.yaml"])
def test_calls_of_tools_fit_the_memory_of_their_pod(kit: Kit, values: str) -> None:
    manifests = kit.render(ROOT / "deploy/helm/palaver/ci" / values)
    (pod,) = [
        each for each in manifests if each["metadata"]["name"].endswith("-tools") and each["kind"] == "Deployment"
    ]
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    (memory,) = [each["value"] for each in container["env"] if each["name"] == "PALAVER_TOOL_MEMORY"]
    limit = container["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    room = int(limit.removesuffix("Gi")) * 1024 * 7 // 8
    assert int(container["command"][-1]) * int(memory) <= room, "an eighth is for the worker"


def test_two_workers_of_each_kind_are_the_least(kit: Kit) -> None:
    manifests = kit.render(kit.chart / "ci" / LEAST)
    least = [each["spec"]["minReplicaCount"] for each in manifests if each["kind"] == "ScaledObject"]
    assert least == [2, 2]


def test_what_an_operator_adds_is_in_each_pod(kit: Kit) -> None:
    manifests = kit.render(ROOT / "deploy/helm/palaver/ci/everything-values.yaml")
    pods = [each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "Deployment"]
    assert len(pods) == 5
    for pod in pods:
        assert (pod["priorityClassName"], pod["serviceAccountName"]) == ("agents", "palaver")
        assert "nodeAffinity" in pod["affinity"]
        assert "authority" in [each["name"] for each in pod["volumes"]]
        (container,) = pod["containers"]
        assert "/etc/authority" in [each["mountPath"] for each in container["volumeMounts"]]
        assert {"name": "SSL_CERT_FILE", "value": "/etc/authority/ca.pem"} in container["env"]
    policies = [each["spec"] for each in manifests if each["kind"] == "NetworkPolicy"]
    assert all(each["policyTypes"] == ["Ingress", "Egress"] and len(each["egress"]) == 2 for each in policies)


def test_a_queue_of_tools_has_pods_of_its_own(kit: Kit) -> None:
    manifests = kit.render(ROOT / "deploy/helm/palaver/ci/everything-values.yaml")
    named = {each["kind"]: each for each in manifests if each["metadata"]["name"] == "palaver-tools-gpu"}
    assert named.keys() == {"Deployment", "NetworkPolicy", "PodDisruptionBudget", "ScaledObject"}
    pod = named["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["palaver", "tools", "-Q", "gpu", "-c", "1"]
    assert {"name": "PALAVER_TOOL_MEMORY", "value": "4096"} in container["env"]
    assert (pod["spec"]["nodeSelector"], len(pod["spec"]["tolerations"])) == ({"accelerator": "nvidia"}, 1)
    scaled = named["ScaledObject"]["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (0, 4)
    assert scaled["triggers"][0]["metadata"]["url"].endswith("/v1/queues?format=keda&queue=gpu")
    # Neither is the other's, for whoever selects pods.
    components = [each["spec"]["selector"]["matchLabels"] for each in manifests if each["kind"] == "Deployment"]
    assert len({each["app.kubernetes.io/component"] for each in components}) == len(components)
    (monitor,) = [each for each in manifests if each["kind"] == "PodMonitor"]
    assert "tools-gpu" in str(monitor["spec"]["selector"])


def test_what_scales_workers_has_a_key_for_queues_alone(kit: Kit) -> None:
    manifests = kit.render(kit.chart / "ci" / LEAST)
    secrets = {each.role: each.secrets for manifest in manifests for each in containers_of(manifest)}
    assert secrets["api"]["PALAVER_QUEUES_KEYS"] == "scaler-key"
    assert not any("PALAVER_QUEUES_KEYS" in secrets[role] for role in ("worker", "tools"))


def test_secrets_are_files_each_with_what_its_role_needs_and_no_variables(kit: Kit) -> None:
    manifests = kit.render(ROOT / "deploy/helm/palaver/ci/everything-values.yaml")
    containers = {each.role: each for manifest in manifests for each in containers_of(manifest)}
    common = {"broker-url", "secret-key", "archive-url"}
    assert {role: set(each.secret_files.values()) for role, each in containers.items()} == {
        "api": {"redis-url-api", "api-keys", "scaler-key", "metrics-key", *common},
        "worker": {"redis-url-worker", "openai-api-key", *common},
        "tools": {"redis-url-worker", *common},
        "flower": {"redis-url-flower", "broker-url"},
    }
    for role, container in containers.items():
        # Flower's login and what OpenTelemetry reads have no file.
        assert container.secret_values.keys() <= {"FLOWER_BASIC_AUTH", "OTEL_EXPORTER_OTLP_HEADERS"}, role
        read = {path for name, path in container.values.items() if name.endswith("_FILE") and "secrets" in path}
        assert read == container.secret_files.keys(), role


def test_secrets_are_variables_where_that_is_wanted(kit: Kit) -> None:
    manifests = kit.render(ROOT / "deploy/helm/palaver/ci/plain-values.yaml")
    for container in (each for manifest in manifests for each in containers_of(manifest)):
        assert (container.secret_files, container.secret_values["PALAVER_REDIS_URL"]) == ({}, "redis-url")


def test_each_role_of_the_chart_has_the_url_of_its_own_user(kit: Kit) -> None:
    (kit.root / "more.yaml").write_text("flower: {enabled: true}")
    manifests = kit.render(kit.chart / "ci" / LEAST, kit.root / "more.yaml")
    keys = {each.role: each.secrets["PALAVER_REDIS_URL"] for manifest in manifests for each in containers_of(manifest)}
    assert keys == {role: logins.secret_of(user) for role, user in logins.USERS.items()}


def test_traces_are_begun_by_the_api_and_sent_by_model_workers_which_alone_have_the_key(kit: Kit) -> None:
    values = kit.chart / "ci" / LEAST
    values.write_text(values.read_text() + "tracing: {endpoint: 'http://collector:4318', headersKey: otlp-headers}\n")
    manifests = kit.render(values)
    containers = {each.role: each for manifest in manifests for each in containers_of(manifest)}
    endpoint, headers = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"
    assert {role for role, each in containers.items() if each.values.get(endpoint)} == {"api", "worker"}
    assert {role: each.secrets.get(headers) for role, each in containers.items()} == {
        "api": None,
        "worker": "otlp-headers",
        "tools": None,
    }
    broken(kit, HELPERS, endpoint, "OTEL_EXPORTER_OTLP_TARGET")
    assert "palaver-api: OTEL_EXPORTER_OTLP_TARGET is not read" in "\n".join(names(kit))


@pytest.mark.chaos
def test_what_a_user_of_redis_is_refused_is_found(kit: Kit) -> None:
    broken(kit, "deploy/users.acl", " +zlexcount", "")
    said = "\n".join(roles(kit))
    assert "api-1: /v1/queues answers 503" in said
    assert "palaver-api: command zlexcount" in said


@pytest.mark.chaos
def test_a_probe_that_nobody_answers_is_found(kit: Kit) -> None:
    broken(
        kit,
        API,
        "livenessProbe:\n            httpGet: {path: /healthz",
        "livenessProbe:\n            httpGet: {path: /heathz",
    )
    assert roles(kit) == ["api-1: livenessProbe fails"]
