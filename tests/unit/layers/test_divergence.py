"""The page of a search for the first wrong op: the curve can be read without its table."""

from __future__ import annotations

import re
from typing import Any

from harness.layers.divergence import CurvePoint, Divergence, FirstOp, as_page, picture


def divergence(**changed: Any) -> Divergence:
    point: dict[str, Any] = {"type": "Conv", "output": "y"}
    curve = [
        CurvePoint(op=f"<op{index}>", nodes=(f"<op{index}>",), error=error, made=error, **point)
        for index, error in enumerate((1e-8, None, 1e-4, 1.0, 50.0))
    ]
    first = FirstOp(
        op="<op2>", nodes=("<op2>",), in_graph=1e-4, because="arithmetic", error=1e-4, **point
    )
    values = {"model": "net.onnx", "tested": "htp", "against": "float", "threshold": 1e-4}
    return Divergence(**({"reference": None, "first": first, "curve": curve} | values | changed))


def test_the_picture_has_a_title_axes_a_legend_and_the_threshold() -> None:
    svg = picture(divergence())
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert texts[:9] == ["1", *(f"1e-{decade}" for decade in range(1, 9))]
    assert texts[9:] == [
        "threshold 0.0001",
        *(f"{index + 1}: &lt;op{index}&gt;" for index in (0, 2, 4)),
        "ops in the order of the graph",
    ]
    title = "Relative error of each op of net.onnx, htp against float"
    assert f"<figcaption>{title}</figcaption>" in svg
    assert svg.count("</i>") == svg.count("<polyline") == 3
    assert re.search(r"<h1[^>]*>Where net.onnx goes wrong</h1>", as_page(divergence()))


def test_heights_are_those_of_the_axis() -> None:
    svg = picture(divergence(), width=400, height=80)
    (points,) = re.findall(r'points="([^"]*)"><title>in the graph', svg)
    heights = {float(x): float(y) for x, y in (point.split(",") for point in points.split())}
    assert heights == {0: 80, 200: 40, 300: 0, 400: 0}, "beyond 1 it stays at the top"
    assert 'x2="400.0" y2="40.0" stroke="#a60"' in svg, "the threshold"


def test_nothing_is_drawn_of_nothing() -> None:
    assert "<polyline" in picture(divergence(curve=(), first=None, threshold=0))
