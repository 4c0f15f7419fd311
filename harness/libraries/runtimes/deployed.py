"""A runtime on a device: how it gets there, and what a process needs to use it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.device.store.deploy import KEY_LENGTH, Deployer
from harness.device.store.layout import FileSet
from harness.ground.facts.platforms import process_environment
from harness.libraries.runtimes.runtime import Runtime


@dataclass(frozen=True)
class DeployedRuntime:
    """A runtime on a device: its folder and what a process needs in its environment to use it."""

    runtime: Runtime
    root: str
    environment: dict[str, str]

    def library(self, name: str) -> str:
        """The path on the device of a library such as libQnnHtp.so. Raises ConfigError."""
        path = self.runtime.library(name)
        (found,) = (file.name for file in self.runtime.files if file.path == path)
        return f"{self.root}/{found}"


def deploy_runtime(deployer: Deployer, runtime: Runtime) -> DeployedRuntime:
    """Puts a runtime on the device; one round trip if it is there already. Raises DeviceError."""
    (root,) = deployer.deploy_sets([runtime_set(runtime)])
    folders = [f"{root}/{folder}" for folder in runtime.library_dirs]
    return DeployedRuntime(runtime, root, process_environment(runtime.target, folders))


def runtime_set(runtime: Runtime) -> FileSet:
    """A runtime as the set that `deploy_runtime` makes, to deploy it together with others."""
    name = f"qnn-{runtime.qnn_version}-{runtime.key[:KEY_LENGTH]}"
    return FileSet(name, f"QNN {runtime.qnn_version}", runtime.files)
