"""The chart, rendered by helm with each set of values, and judged as the cluster would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from palaver.version import __version__

from .containers import Container, containers_of
from .kit import Kit, Manifest, Wrong, lines, run

_OTHERS: Final = {
    "keda.sh/": Path(__file__).with_name("keda.schema.json"),
    "monitoring.coreos.com/": Path(__file__).with_name("prometheus_operator.schema.json"),
}
"""Of kinds that Kubernetes does not have by itself, by the API that brings them: what they may say."""
_WHERE: Final = re.compile(r"::\$\[(\d+)\]\.?(.*)")
"""In what check-jsonschema says: which manifest of the list, and where in it."""


def charts(kit: Kit) -> list[str]:
    """Everything, for each set of values."""
    faults = [] if len(kit.value_sets) >= 4 else ["chart: fewer than 4 sets of values in ci/"]
    if f'appVersion: "{__version__}"' not in (kit.chart / "Chart.yaml").read_text():
        faults.append(f"chart: appVersion is not {__version__}")
    for values in kit.value_sets:
        faults += [f"{values.name}: {fault}" for fault in chart(kit, values)]
    return faults + _refusals(kit)


def chart(kit: Kit, values: Path) -> list[str]:
    """What is wrong with the chart under these values."""
    try:
        run("helm", "lint", str(kit.chart), "--strict", "--quiet", "--values", str(values))
        manifests = kit.render(values)
    except Wrong as wrong:
        return lines(str(wrong))
    faults = [*_known_to_kubernetes(manifests), *_known_to_others(manifests)]
    for manifest in manifests:
        faults += [*_secrets_in(manifest), *_replaced(manifest)]
    found = [each for manifest in manifests for each in containers_of(manifest)]
    for container in found:
        faults += _container(container)
    return [*faults, *_scaled(manifests)]


def _refusals(kit: Kit) -> list[str]:
    """Without what has to be said the chart does not render: neither an image nor a Secret is guessed."""
    try:
        kit.render()
    except Wrong as wrong:
        needed, said = ("repository", "existingSecret", "providers"), str(wrong)
        return [f"chart: without values no part asks for {name}" for name in needed if name not in said]
    return ["chart: renders without an image and without a Secret"]


def _known_to_kubernetes(manifests: list[Manifest]) -> Iterator[str]:
    """Each manifest against the schema of its kind; a field that the kind has not is wrong."""
    own = [each for each in manifests if not each["apiVersion"].startswith((*_OTHERS,))]
    try:
        text = "\n---\n".join(json.dumps(each) for each in own)
        said = run("kubernetes-validate", "--strict", "-", text=text)
        # A kind that it does not know is a warning.
        yield from (line for line in lines(said) if line.startswith("WARN"))
    except Wrong as wrong:
        yield from (line for line in lines(str(wrong)) if not line.startswith("INFO"))


def _known_to_others(manifests: list[Manifest]) -> Iterator[str]:
    """Each manifest of another kind against what that kind may say; for KEDA, the scaler's metadata too."""
    for api, schema in _OTHERS.items():
        own = [each for each in manifests if each["apiVersion"].startswith(api)]
        try:
            run("check-jsonschema", "--schemafile", str(schema), "-", text=json.dumps(own))
        except Wrong as wrong:
            for line in lines(str(wrong)):
                if found := _WHERE.search(line):
                    yield f"{_called(own[int(found[1])])}: {found[2]}"


def _secrets_in(manifest: Manifest) -> Iterator[str]:
    if manifest["kind"] == "Secret":
        yield f"{_called(manifest)}: the chart makes a Secret; it may only name one"


def _replaced(manifest: Manifest) -> Iterator[str]:
    """An upgrade ends no pod of the API before another one is ready."""
    if [each.role for each in containers_of(manifest)] == ["api"]:
        rolling = manifest["spec"].get("strategy", {}).get("rollingUpdate", {})
        if rolling.get("maxUnavailable") != 0:
            yield f"{_called(manifest)}: an upgrade may end a pod before another one is ready: maxUnavailable"


def _container(container: Container) -> Iterator[str]:
    where, security = container.where, container.spec.get("securityContext", {})
    pod = container.pod.get("securityContext", {})
    if not security.get("readOnlyRootFilesystem"):
        yield f"{where}: the root file system can be written to"
    if pod.get("runAsUser") != 10001 or not pod.get("runAsNonRoot"):
        yield f"{where}: does not run as user 10001"
    if security.get("allowPrivilegeEscalation") is not False or security.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{where}: has privileges that it does not need"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe not in container.spec:
            yield f"{where}: no {probe}"
    for path in container.values.values():
        if path.startswith("/run/secrets/") and path not in container.secret_files:
            yield f"{where}: nothing is mounted at {path}"
    drain = container.values.get("PALAVER_DRAIN_GRACE")
    if drain is not None and container.grace < float(drain) + 10:
        yield f"{where}: is killed {container.grace} s after it is told to end, and its grace is {drain} s: too early"
    if container.role == "api":
        if container.grace <= container.pre_stop:
            yield f"{where}: is killed {container.grace} s after it is told to end, before preStop is over"
        if container.pre_stop <= 0:
            yield f"{where}: does not wait in preStop until load balancers forget it: who they send to it is refused"


def _scaled(manifests: list[Manifest]) -> Iterator[str]:
    """What KEDA and the autoscaler scale, they alone count; and it exists."""
    deployments = {each["metadata"]["name"]: each["spec"] for each in manifests if each["kind"] == "Deployment"}
    for manifest in manifests:
        if manifest["kind"] in ("ScaledObject", "HorizontalPodAutoscaler"):
            target: Any = manifest["spec"]["scaleTargetRef"]["name"]
            if target not in deployments:
                yield f"{_called(manifest)}: scales {target}, which is not there"
            elif "replicas" in deployments[target]:
                yield f"{_called(manifest)}: {target} has replicas of its own: each upgrade would undo the scaling"


def _called(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"
