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
        "onnxruntime-1.26.0-cp313-cp313-manylinux_2_28_x86_64.whl": (
            "c07af6fc6d5557835f2b6ee7a96d8b3235d0c57a8e230efdedaee106a8a3cbc6"
        ),
        "onnxruntime-1.26.0-cp314-cp314-manylinux_2_28_x86_64.whl": (
            "01498e80ba8988428d08c2d51b1338f89e3de2a93e6ffe555f79c68f26a5c06b"
        ),
        "onnxruntime-1.24.1-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "34b6119526eda12613f0d0498e2ae59563c247c370c9cef74c2fc93133dde157"
        ),
        "onnxruntime-1.24.2-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "09aa6f8d766b4afc3cfba68dd10be39586b49f9462fbd1386c5d5644239461ca"
        ),
        "onnxruntime-1.24.3-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "b354afce3333f2859c7e8706d84b6c552beac39233bcd3141ce7ab77b4cabb5d"
        ),
        "onnxruntime-1.24.4-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "0d640eb9f3782689b55cfa715094474cd5662f2f137be6a6f847a594b6e9705c"
        ),
        "onnxruntime-1.25.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "be93baa694ef8e5831fcb7b542da21f502b122918b5b9612d9f02972e043ee01"
        ),
        "onnxruntime-1.25.1-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "905409e9eb2ef87f8226e073f56e71faf731c3e480ebd34952cf953730e4a4ff"
        ),
        "onnxruntime-1.26.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "9b6dd70599005bd1bf29779f04a91978b92b5e719c11a20068a8f8e535f725b6"
        ),
        "onnxruntime-1.27.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "7c65a7438632d55dfbc8a02ee60bd6cf7dd9d1ba05a43d4b851452f32338e194"
        ),
        "onnxruntime-1.28.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "0a83bdb70d143cede762b677789bf2a7acca54b3fb82565601d5c30695aa933c"
        ),
        "onnxruntime-1.29.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "2b80d8c7ec2cc7438e4da3760b88c24568cba72c9ace96d668800a6c79419acb"
        ),
        "onnxruntime-1.30.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "fa688e7891a6aa206636fe7372e27ee75fd17713289f6b4fc7b190e0a7de9328"
        ),
        "onnxruntime-1.31.0-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "5e129d6c56abd53e659cb70f00a108d6824086470ff99c2e47a82e5786563db3"
        ),
        "onnxruntime-1.31.1-cp312-cp312-manylinux_2_28_x86_64.whl": (
            "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536"
        ),
        "onnxruntime-1.24.1-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "780add442ce2d4175fafb6f3102cdc94243acffa3ab16eacc03dd627cc7b1b54"
        ),
        "onnxruntime-1.24.2-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "76c44fc9a89dcefcd5a4ab5c6bbbb9ff1604325ab2d5d0bc9ff5a9cba7b37f4a"
        ),
        "onnxruntime-1.24.3-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "0a9847b870b6cb462652b547bc98c49e0efb67553410a082fde1918a38707452"
        ),
        "onnxruntime-1.24.4-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "1a5c5a544b22f90859c88617ecb30e161ee3349fcc73878854f43d77f00558b5"
        ),
        "onnxruntime-1.25.0-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "9c99238d20bfa80ac68c7b03c2c936d389189ae40997f78a30d151570d7e18bf"
        ),
        "onnxruntime-1.25.1-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "a5f41779f044d1ff75593df5c10a4d311bc82563687796d5218e2685b8f9da25"
        ),
        "onnxruntime-1.26.0-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "91f2bb870a4b9224eba0a6728c1fa7a9e552b8e59e1083c51fbbc3d013f2b5c0"
        ),
        "onnxruntime-1.27.0-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "c6fddce0539a4898c7bef35b052ffd37935b2190e35488eab99ce91887743ea1"
        ),
        "onnxruntime-1.28.0-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "4e81a23df16e7acb9d51b06d30cc098e49315ef9180f97bc2221d167b4b04d9c"
        ),
        "onnxruntime-1.29.0-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "d2fb19e848f7c33ed8d3182b52504aaa11c5e8da438bbb47296f85b133cbcf6b"
        ),
        "onnxruntime-1.30.0-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "6c32a000d5139a38ba9349030b0032e3331acb559d596b22738d9d2b343a2b83"
        ),
        "onnxruntime-1.31.0-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "35758d7606d578ec5b9d65f6e8a1f488013194c3f6097038a3223cb26d35ef9a"
        ),
        "onnxruntime-1.31.1-cp312-cp312-manylinux_2_28_aarch64.whl": (
            "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc"
        ),
    }
)
