"""Search for the first wrong op: run a model on both sides, and compare the tensors between ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from harness.core.errors import ConfigError
from harness.experiments.accuracy import compare
from harness.layers.divergence import Because, CurvePoint, Divergence, FirstOp
from harness.layers.network import INSIDE, Calculation, Cpu, Network, NotCalculated, Op, Qnn, Stored
from harness.models.onnx_model import OnnxModel

if TYPE_CHECKING:
    import numpy as np
    import onnx


STANDS_OUT: Final = 10.0
"""If most ops make an error, factor from the usual error to one that stands out."""


def difference(
    got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], zero: int = 0
) -> tuple[float, str | None]:
    """Return the relative error of a tensor; `zero` is the zero point of quantised ones.

    It is the SQNR of `accuracy.compare` as a ratio. Elements that are not finite in both tensors
    are ignored. It is infinite, with the reason, if there is no figure.
    """
    if got.shape != expected.shape:
        return inf, f"its shape is {list(got.shape)}, expected {list(expected.shape)}"
    accuracy = compare("", got, expected, step=1.0, offset=-zero)
    if accuracy.sqnr_db is not None:
        return 10 ** (-accuracy.sqnr_db / 20), None
    if accuracy.equals:
        return 0.0, None
    if bad := accuracy.not_finite:
        return inf, f"{bad} of {accuracy.elements} elements are NaN or infinite on one side"
    return inf, "it is not all zeros, as expected"


def error_limit(errors: Sequence[float | None], threshold: float) -> float:
    """Return the error from which an op is wrong: the threshold, or more if most ops are above it.

    Those are noise only if hardly any op is exact, as the ops after an overflow are wrong, too. The
    limit is at most ten times the threshold. Without a threshold it follows from the usual error.
    """
    known = sorted(error for error in errors if error is not None)
    if sum(error > threshold for error in known) * 2 <= len(known) or len(known) < 4:
        return threshold
    if not threshold:
        return STANDS_OUT * median(known)
    return max(threshold, min(STANDS_OUT * known[(len(known) - 1) // 4], STANDS_OUT * threshold))


def first_wrong(
    curve: Sequence[CurvePoint], threshold: float, changed_threshold: float
) -> tuple[int, Because] | None:
    """Return the place of the first wrong op and the cause; None if no op is wrong.

    An op of a changed model comes before one with an arithmetic error. Else it is one that makes an
    error from right inputs, or whose error in the graph is not explained by its inputs: that is how
    ops fail that are calculated together.
    """
    changed = [point.changed for point in curve]
    for limit in (error_limit(changed, changed_threshold), changed_threshold):
        for index, error in enumerate(changed):
            if error is not None and error > limit:
                return index, "the model"
    limit = error_limit([point.made for point in curve], threshold)
    for index, point in enumerate(curve):
        if point.made is not None and point.made > limit:
            return index, "arithmetic"
        if point.error is not None and point.error > limit:
            inherited = point.inherited
            if inherited is not None and inherited < point.error / 2:
                return index, "the graph"
    return None


def chunks(sizes: Sequence[int], most_bytes: int, most: int) -> list[list[int]]:
    """Divide places in order into parts with at most so many bytes and members.

    A place that is too large by itself is in none.
    """
    parts: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if size > most_bytes:
            continue
        if not parts or size > room or len(parts[-1]) >= most:
            parts.append([])
            room = most_bytes
        parts[-1].append(index)
        room -= size
    return parts


MOST_BYTES: Final = 128 << 20
MOST_TENSORS: Final = 40
"""Most outputs of a model, and their bytes: the probe accepts 64 fields."""

MOST_MODELS: Final = 12
"""Most models that are tried to reproduce an error of the graph."""

ON_HTP: Final = frozenset({"<f4", "<f2", "|u1", "|i1", "<u2", "<i2", "<i4", "<u4"})
"""Types that HTP can output; tensors of other types stay between its ops."""

FLOAT_LIMIT: Final = 0.01
QUANTISED_LIMIT: Final = 0.05
CHANGED_LIMIT: Final = 1e-6
"""Usual thresholds: half precision makes errors up to 0.002, 8 bits have larger steps."""

Values = dict[str, Stored]
"""Tensors by their names."""


@dataclass
class FirstWrong:
    """One search of a model on the `tested` side; all its files are below `folder`.

    The other side is `other`, else the CPU, which runs the model `reference` if there is one.
    `user_threshold` is the user's threshold of errors.
    """

    model: Path
    tested: Qnn
    cpu: Cpu
    folder: Path
    other: Qnn | None = None
    reference: Path | None = None
    inputs: Path | None = None
    user_threshold: float | None = None
    refused: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    mine: Values = field(default_factory=dict)
    theirs: Values = field(default_factory=dict)
    values: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        model = OnnxModel.of(self.model, inputs=self.inputs)
        self.network = self.exact = Network(model.build())
        if self.reference is not None:
            self.exact = Network(OnnxModel.of(self.reference).build(), self.network)
            self.network.check_inputs(self.exact)
        self.units = [op for op in self.network.units() if op.gives]
        if not self.units:
            raise ConfigError("has no op that depends on its inputs", file=self.model)
        for name, value in zip(self.network.inputs, model.inputs().values(), strict=True):
            self.values[name] = Stored(self.folder / f"{name}.raw", self.network.kinds[name])
            value.tofile(self.values[name].path)

    @property
    def threshold(self) -> float:
        if self.user_threshold is not None:
            return self.user_threshold
        if self.other is not None:
            return 0.0
        eight = any(self.network.kinds[op.gives[0]].dtype in ("|u1", "|i1") for op in self.units)
        return QUANTISED_LIMIT if eight else FLOAT_LIMIT

    def run(self, folder: Path | None) -> Divergence:
        """Search, and export the op into a new `folder`. Raises InfraError, ConfigError."""
        files = [file for file in (self.model, self.reference) if file is not None]
        models = [Calculation(OnnxModel.of(file).build(), {}, {}) for file in files]
        for file, answer in zip(files, self.cpu.calculate(models), strict=True):
            if isinstance(answer, NotCalculated):  # ONNX Runtime refuses it, if not its parts
                raise ConfigError(answer.text, file=file)
        self._reference_values()
        changed = self._changed() if self.exact is not self.network else {}
        cuts = [
            op
            for op in self.units
            if self._known(op) and self.network.kinds[op.gives[0]].dtype in ON_HTP
        ]
        sizes = [self.network.kinds[op.gives[0]].size for op in cuts]
        parts = chunks(sizes, MOST_BYTES, MOST_TENSORS)
        self._calculate_cuts([[cuts[i] for i in part] for part in parts])
        some = [op for op in self.units if op.op not in self.skipped and self._known(op)]
        isolated = self._calculate_isolated(some, unit=True)
        inherited = self._inherited(cuts)
        curve = []
        for op in self.units:
            names = tuple(self._names(op))
            sides = (self.mine, self.theirs), isolated, inherited
            errors, why = zip(*(_difference(op, *values) for values in sides), strict=True)
            point = CurvePoint(
                op=op.op,
                type=op.type,
                nodes=names,
                output=self.network.original_names[op.gives[0]],
                error=errors[0],
                made=errors[1],
                inherited=errors[2],
                changed=max((changed[name] for name in names if name in changed), default=None),
                skipped=self.skipped.get(op.op) or next(filter(None, why), None),
            )
            curve.append(point)
        limit = self.user_threshold if self.user_threshold is not None else CHANGED_LIMIT
        place = first_wrong(curve, self.threshold, min(limit, self.threshold) or CHANGED_LIMIT)
        first = None
        if place is not None:
            index, because = place
            first = self._describe_first(self.units[index], curve[index], because, changed, folder)
        return Divergence(
            model=str(self.model),
            reference=str(self.reference) if self.reference else None,
            tested=self.tested.name,
            against=(self.other or self.cpu).name,
            threshold=self.threshold,
            first=first,
            curve=tuple(point.without_infinite() for point in curve),
            refused=self.refused,
            exit_code=1 if first or self.refused else 0,
        )

    def _reference_values(self) -> None:
        """Compute all tensors of the exact model with ONNX Runtime."""
        exact = self.exact
        outputs = (name for op in exact.ops() for name in op.gives)
        names = [name for name in outputs if name in self.network.producers]
        if not names:
            raise ConfigError("has no node with a name of the model", field="--reference")
        sizes = [exact.kinds[name].size for name in names]
        # the last part needs all ops: it is the first to show that a model does not end
        for part in reversed(chunks(sizes, MOST_BYTES, MOST_TENSORS)):
            model = exact.with_outputs([names[i] for i in part])
            (answer,) = self.cpu.calculate([_calculation(exact, model, self.values)])
            if isinstance(answer, NotCalculated):
                raise ConfigError(answer.text, file=self.reference or self.model)
            self.values |= answer

    def _changed(self) -> dict[str, float]:
        """Return the error of each op against the reference's, both on the CPU, by node."""
        ops = [op for op in self.network.ops() if op.gives]
        mine, theirs = self._calculate_isolated(ops, unit=False)
        errors = {}
        for op in ops:
            sides = [values for values in (mine, theirs) if op.gives[0] in values]
            if sides:
                errors[op.op] = (
                    (_difference(op, mine, theirs)[0] or 0.0) if len(sides) == 2 else inf
                )
        return errors

    def _known(self, op: Op) -> bool:
        value, kind = self.values.get(op.gives[0]), self.network.kinds[op.gives[0]]
        return value is not None and value.kind.dtype == kind.dtype

    def _calculate_cuts(self, parts: Sequence[Sequence[Op]]) -> None:
        """Calculate the graph with the outputs of these ops, one model for each part."""
        models = [self.network.with_outputs([op.gives[0] for op in part]) for part in parts]
        calculations = [_calculation(self.network, model, self.values) for model in models]
        self.theirs |= {} if self.other else self.values
        for side, values in ((self.tested, self.mine), (self.other, self.theirs)):
            for answer in side.calculate(calculations) if side else ():
                if isinstance(answer, NotCalculated):
                    self.refused = self.refused or answer.text
                    self.skipped |= self._refused_ops(self.units, answer)
                else:
                    values |= answer

    def _refused_ops(self, ops: Iterable[Op], refusal: NotCalculated) -> dict[str, str]:
        reasons = {
            op.op: [refusal.nodes[n] for n in self._names(op) if n in refusal.nodes] for op in ops
        }
        return {op: why[0] for op, why in reasons.items() if why}

    def _names(self, op: Op) -> list[str]:
        return [self.network.nodes[i].name for i in self.network.nodes_of(op)]

    def _calculate_isolated(self, ops: Sequence[Op], *, unit: bool) -> tuple[Values, Values]:
        """Calculate ops by themselves from the reference's inputs: tested and expected outputs.

        As a `unit` on the tested processor, else as nodes of both models on the CPU.
        """
        other = self.other
        if unit:
            mine = self._outputs_of(self.network, ops, self.tested, self.values, unit=True)
            if other is None:
                return mine, self.values
            theirs = self._outputs_of(self.network, ops, other, self.values, unit=True)
            if not theirs and ops:
                raise ConfigError(f"no op of the model ran: {self.refused}", field="--against")
            return mine, theirs
        cpu, others = self.cpu, {op.op: op for op in self.exact.ops() if op.gives}
        same = [op for op in ops if op.op in others]
        mine = self._outputs_of(self.network, same, cpu, self.values, unit=False)
        exact = [others[op.op] for op in same]
        return mine, self._outputs_of(self.exact, exact, cpu, self.values, unit=False)

    def _inherited(self, cuts: Iterable[Op]) -> tuple[Values, Values]:
        """Calculate exact ops from the inputs of each side, if all of these are known."""
        same = {op.op: op for op in self.exact.units() if op.gives}
        both = self.mine.keys() & self.theirs.keys()
        ops = [same[op.op] for op in cuts if op.op in same and op.gives[0] in both]
        mine, theirs = (
            self._outputs_of(self.exact, ops, self.cpu, self.values | values, unit=True)
            for values in (self.mine, self.theirs)
        )
        return mine, theirs

    def _outputs_of(
        self, network: Network, ops: Sequence[Op], side: Cpu | Qnn, values: Values, *, unit: bool
    ) -> Values:
        """Calculate ops by themselves; the reasons of refused ones go into `skipped`."""
        inputs = {op.op: network.inputs_of(op, unit=unit) for op in ops}
        able = [op for op in ops if all(name in values for name in inputs[op.op])]
        sizes = [
            sum(network.kinds[name].size for name in (*op.gives, *inputs[op.op])) for op in able
        ]
        many = MOST_TENSORS // 2  # beside its output, each has an input or two
        pending = [[able[i] for i in part] for part in chunks(sizes, MOST_BYTES, many)]
        results: Values = {}
        while pending:
            models = [network.isolated(part, unit=unit) for part in pending]
            answers = side.calculate([_calculation(network, model, values) for model in models])
            parts, pending = pending, []
            for part, answer in zip(parts, answers, strict=True):
                if not isinstance(answer, NotCalculated):
                    results |= answer
                    continue
                why = self._refused_ops(part, answer)
                rest = [op for op in part if op.op not in why]
                if not why and len(rest) > 1:  # no op is named: each is tested by itself
                    pending += [[op] for op in rest]
                elif why:
                    pending += [rest] if rest else []
                else:
                    why = {rest[0].op: answer.text.partition("\n")[0][:300]}
                self.skipped |= why
        return results

    def _describe_first(
        self,
        unit: Op,
        point: CurvePoint,
        because: Because,
        changed: Mapping[str, float],
        folder: Path | None,
    ) -> FirstOp:
        """Describe the op, and export it with the reference's inputs and outputs."""
        op = unit
        if because == "the model":  # the changed node among those calculated together
            name = next(name for name in point.nodes if changed.get(name, 0.0) > CHANGED_LIMIT)
            op = next(op for op in self.network.ops() if op.op == name)
        alone = because != "the model"
        model, together = self.network.isolated([op], unit=alone), 1
        mine, theirs = self._calculate_isolated([op], unit=alone)
        if because == "the graph":
            together, model, mine, theirs = self._reproduced(op) or (0, model, mine, theirs)
        errors = {"the model": point.changed, "arithmetic": point.made}
        fields = {
            "op": op.op,
            "type": op.type,
            "nodes": tuple(self._names(op)),
            "output": self.network.original_names[op.gives[0]],
            "error": errors.get(because, point.error),
            "in_graph": point.error,
            "because": because,
            "together": together,
        }
        fields["skipped"] = _difference(op, mine, theirs)[1] or point.skipped
        if folder is not None and together and all(name in theirs for name in op.gives):
            fields["exported"] = str(self._export(model, theirs, folder))
        return FirstOp(**point.model_dump() | fields).without_infinite()

    def _reproduced(self, op: Op) -> tuple[int, onnx.ModelProto, Values, Values] | None:
        """Find the fewest ops before one with which it goes wrong.

        Return their number with it, their model, and the outputs of both sides; None if it goes
        wrong in the whole graph only.
        """
        behind = [
            (count, model)
            for count, model in self.network.models_before(op)
            if all(tensor.name in self.values for tensor in model.graph.input)
        ]
        chosen = [behind[place] for place in _spaced(len(behind), MOST_MODELS)]
        jobs = [_calculation(self.network, model, self.values) for _, model in chosen]
        mine = self.tested.calculate(jobs)
        theirs = self.other.calculate(jobs) if self.other else [dict(self.values)] * len(jobs)
        for (count, model), got, right in zip(chosen, mine, theirs, strict=True):
            if isinstance(got, NotCalculated) or isinstance(right, NotCalculated):
                continue
            if (_difference(op, got, right)[0] or 0.0) > self.threshold:
                return count, model, got, right
        return None

    def _export(self, model: onnx.ModelProto, expected: Values, folder: Path) -> Path:
        import numpy as np

        graph = model.graph
        for subfolder, listed, values in (
            ("inputs", graph.input, self.values),
            ("expected", graph.output, expected),
        ):
            (folder / subfolder).mkdir(parents=True)
            for name in (tensor.name for tensor in listed):
                np.save(folder / subfolder / f"{name}.npy", values[name].array())
        (folder / "op.onnx").write_bytes(model.SerializeToString())
        return folder


def _spaced(count: int, most: int) -> list[int]:
    """Return places below `count`, ever sparser towards the end (pure)."""
    if count <= most:
        return list(range(count))
    return sorted({round((count - 1) ** (i / (most - 1))) for i in range(most)} | {0})[:most]


def _difference(op: Op, mine: Values, theirs: Values) -> tuple[float | None, str | None]:
    """Return the largest error of an op's outputs, and why outputs cannot be compared."""
    both = [name for name in op.gives if name in mine and name in theirs]
    results = [difference(mine[name].array(), theirs[name].array(), op.zero) for name in both]
    error = max((error for error, _ in results), default=None)
    return error, next((why for _, why in results if why), None)


def _calculation(network: Network, model: onnx.ModelProto, values: Values) -> Calculation:
    feeds = {tensor.name: values[tensor.name.removesuffix(INSIDE)] for tensor in model.graph.input}
    gives = {tensor.name: network.kinds[tensor.name] for tensor in model.graph.output}
    return Calculation(model, feeds, gives)
