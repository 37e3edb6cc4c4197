"""The containers of rendered manifests: what is started, with which environment, and how it is probed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from palaver.config.secret_files import SUFFIX

from .kit import Manifest


@dataclass(frozen=True)
class Container:
    """A container of a Deployment."""

    where: str
    pod: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def role(self) -> str:
        """The role of Palaver that it is started as."""
        return str(self.command[1]) if self.command[:1] == ["palaver"] else ""

    @property
    def command(self) -> list[str]:
        """The whole of it."""
        return [*self.spec.get("command", []), *self.spec.get("args", [])]

    @property
    def values(self) -> dict[str, str]:
        """Variables whose values stand in the manifest."""
        return {each["name"]: each["value"] for each in self.spec.get("env", []) if "value" in each}

    @property
    def secret_values(self) -> dict[str, str]:
        """Variables whose values come from a Secret, with the key of each."""
        refs = {each["name"]: each.get("valueFrom", {}).get("secretKeyRef") for each in self.spec.get("env", [])}
        return {name: ref["key"] for name, ref in refs.items() if ref}

    @property
    def secret_files(self) -> dict[str, str]:
        """Files that a Secret is mounted as, by their paths, with the key of each."""
        volumes = {each["name"]: each["secret"]["items"] for each in self.pod.get("volumes", []) if "secret" in each}
        return {
            f"{mount['mountPath']}/{item['path']}": item["key"]
            for mount in self.spec.get("volumeMounts", [])
            for item in volumes.get(mount["name"], ())
        }

    @property
    def secrets(self) -> dict[str, str]:
        """Variables that a Secret has the values of, themselves or in files, with the key of each."""
        files = self.secret_files
        named = {name: files.get(value) for name, value in self.values.items() if name.endswith(SUFFIX)}
        return self.secret_values | {name.removesuffix(SUFFIX): key for name, key in named.items() if key}

    @property
    def ports(self) -> dict[str, int]:
        """Its ports by name."""
        return {each["name"]: each["containerPort"] for each in self.spec.get("ports", [])}

    @property
    def grace(self) -> int:
        """Seconds from when it is told to end, preStop included, until it is killed."""
        return int(self.pod.get("terminationGracePeriodSeconds", 30))

    @property
    def pre_stop(self) -> float:
        """Seconds that its preStop sleeps."""
        command = self.spec.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
        return float(command[1]) if command[:1] == ["sleep"] else 0.0


def containers_of(manifest: Manifest) -> Iterator[Container]:
    """Those of a Deployment, none of another kind."""
    if manifest["kind"] == "Deployment":
        pod = manifest["spec"]["template"]["spec"]
        for spec in pod["containers"]:
            yield Container(f"Deployment/{manifest['metadata']['name']}", pod, spec)
