"""The sha256 of the wheels the harness names itself, so that no other file can pass for them.

Made with `pip download --no-deps --only-binary :all: --platform P --python-version V
--implementation cp --abi A PROJECT==VERSION` and `sha256sum` on what came; a package index shows
the same numbers beside its files. The keys are the names under which the cache keeps the wheels
(see `WheelRequest.file_name`). A wheel that is not here is trusted when it is first fetched, and
held to that from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

KNOWN_SHA256: Final[Mapping[str, str]] = MappingProxyType(
    {
        "onnxruntime_qnn-2.3.0-cp312-cp312-manylinux_2_35_x86_64.whl": (
            "5d3dec6c8065eebe80efb3775b8e5270c56a937c3e611642a8b4ef7f46bb5660"
        ),
        "onnxruntime_qnn-2.4.0-cp312-cp312-manylinux_2_35_x86_64.whl": (
            "9db7b8a8b251ba04e9dc7314dbc552a3f8872312326086ac998b9a5429261787"
        ),
        "onnxruntime_qnn-2.5.0-cp312-cp312-manylinux_2_35_x86_64.whl": (
            "953b0bebad3494e2af32cc8f648894bdae54369072d9f87614bbe5a416b0e929"
        ),
        "onnxruntime_qnn-2.6.0-cp312-cp312-manylinux_2_35_x86_64.whl": (
            "63710d0291135e47c8aa7edab7048b9acc105f072c603a8c9679e9d202822a73"
        ),
        "onnxruntime_qnn-2.7.0-cp312-cp312-manylinux_2_35_x86_64.whl": (
            "6feb735e2910127febd9c24c1be0f541bcaf688a90028b7efe55d12aca214c13"
        ),
        "onnxruntime_qnn-2.3.0-cp312-cp312-manylinux_2_34_aarch64.whl": (
            "1f0c072e1b0243f4ee5fabb9732323b20ecd6dd3af8b2fee8dbdacbd8eaf616d"
        ),
        "onnxruntime_qnn-2.4.0-cp312-cp312-manylinux_2_34_aarch64.whl": (
            "3b09af275e4b1cc0f7010b57d08c3070e3ad7cf95a3ad816201c9cafc6c6e3f7"
        ),
        "onnxruntime_qnn-2.5.0-cp312-cp312-manylinux_2_34_aarch64.whl": (
            "8cf34723e2fdf579160e3b93c8a5bae38aec5459843ddcbdcddbd866bb57c630"
        ),
        "onnxruntime_qnn-2.6.0-cp312-cp312-manylinux_2_34_aarch64.whl": (
            "aa78412661bb8b6ce2ed44d4ff2360817875131d6c79f35c1d915159c668d79e"
        ),
        "onnxruntime_qnn-2.7.0-cp312-cp312-manylinux_2_34_aarch64.whl": (
            "40f6f8ab76a877b36c875122caf46189f810e52a1e7c2f75e431dfb7714168b8"
        ),
        "onnxruntime-1.26.0-cp311-cp311-manylinux_2_28_x86_64.whl": (
            "11a8df4dcfe9ad5ff0bd71a7571dbed019fabc7594676c89fe8b86ea029c246f"
        ),
        "onnxruntime-1.26.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "9b6dd70599005bd1bf29779f04a91978b92b5e719c11a20068a8f8e535f725b6"
        ),
        "onnxruntime-1.26.0-cp313-cp313-manylinux_2_28_x86_64.whl": (
            "c07af6fc6d5557835f2b6ee7a96d8b3235d0c57a8e230efdedaee106a8a3cbc6"
        ),
        "onnxruntime-1.26.0-cp314-cp314-manylinux_2_28_x86_64.whl": (
            "01498e80ba8988428d08c2d51b1338f89e3de2a93e6ffe555f79c68f26a5c06b"
        ),
    }
)
