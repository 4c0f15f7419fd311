"""Runs a model on both sides, with all that lies between its ops, and finds the first wrong op."""

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
from harness.layers.network import (
    INSIDE,
    Calculation,
    Cpu,
    Network,
    NotCalculated,
    Op,
    Qnn,
    Stored,
)
from harness.models.onnx_model import OnnxModel

if TYPE_CHECKING:
    import numpy as np
    import onnx


STANDS_OUT: Final = 10.0
"""Where most ops make an error, one has to be so many times as large as what is usual."""


def difference(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], zero: int = 0) -> float:
    """How far a tensor is from another; `zero` is the value of quantised ones that means 0.

    It is the SQNR of `accuracy.compare` as a ratio. What is not finite in both alike is no
    difference. Infinite where there is no figure, see `incomparable`.
    """
    if got.shape != expected.shape:
        return inf
    accuracy = compare("", got, expected, step=1.0, offset=-zero)
    if accuracy.sqnr_db is None:
        return 0.0 if accuracy.equals else inf
    return 10 ** (-accuracy.sqnr_db / 20)


def incomparable(
    got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], zero: int = 0
) -> str | None:
    """Return why there is no figure for how far a tensor is from another; None if there is."""
    if difference(got, expected, zero) != inf:
        return None
    if got.shape != expected.shape:
        return f"its shape is {list(got.shape)}, and should be {list(expected.shape)}"
    accuracy = compare("", got, expected)
    if bad := accuracy.not_finite:
        return f"{bad} of {accuracy.elements} elements are NaN or infinite on one side"
    return "it should be all zeros, and is not"


def limit_of(errors: Sequence[float | None], threshold: float) -> float:
    """From what on an error counts: the threshold, or more where most ops are above it.

    That is noise only where hardly an op is exact: what follows an overflow makes errors, too. Of
    ten times the threshold none is. Without a threshold what is usual tells what is much.
    """
    known = sorted(one for one in errors if one is not None)
    if sum(one > threshold for one in known) * 2 <= len(known) or len(known) < 4:
        return threshold
    if not threshold:
        return STANDS_OUT * median(known)
    return max(threshold, min(STANDS_OUT * known[(len(known) - 1) // 4], STANDS_OUT * threshold))


def first_wrong(
    curve: Sequence[CurvePoint], threshold: float, changed_threshold: float
) -> tuple[int, Because] | None:
    """The place of the first op that goes wrong, and because of what; None if none does.

    An op of a changed model comes before what arithmetic does. Else it is one that makes an error
    of right inputs, or whose error in the graph is not explained by what it inherits: that is how
    ops go wrong that are calculated together.
    """
    changed = [one.changed for one in curve]
    for limit in (limit_of(changed, changed_threshold), changed_threshold):
        for at, error in enumerate(changed):
            if error is not None and error > limit:
                return at, "the model"
    limit = limit_of([one.made for one in curve], threshold)
    for at, one in enumerate(curve):
        if one.made is not None and one.made > limit:
            return at, "arithmetic"
        if one.error is not None and one.error > limit:
            inherited = one.inherited
            if inherited is not None and inherited < one.error / 2:
                return at, "the graph"
    return None


def chunks(sizes: Sequence[int], most_bytes: int, most: int) -> list[list[int]]:
    """Places in order, divided so that none has more bytes or members than may be.

    One that is too large by itself is in none.
    """
    found: list[list[int]] = []
    room = 0
    for at, size in enumerate(sizes):
        if size > most_bytes:
            continue
        if not found or size > room or len(found[-1]) >= most:
            found.append([])
            room = most_bytes
        found[-1].append(at)
        room -= size
    return found


def spread(good: int, bad: int, sizes: Sequence[int], most_bytes: int, most: int) -> list[int]:
    """Where to look next between a cut that is well and a later one that is not (both known).

    Evenly spread places, as many as fit. With one it is bisection: log2 n looks.
    """
    between = [at for at in range(good + 1, bad) if sizes[at] <= most_bytes]
    for number in range(min(most, len(between)), 0, -1):
        step = len(between) / (number + 1)
        chosen = sorted({between[int(step * (one + 1))] for one in range(number)})
        if sum(sizes[at] for at in chosen) <= most_bytes:
            return chosen
    return []


MOST_BYTES: Final = 128 << 20
MOST_TENSORS: Final = 40
"""So many tensors, of so many bytes, come out of a model at most: the probe takes 64 fields."""

MOST_MODELS: Final = 12
"""Into so many models the cuts of a graph are divided; with more, only those that lead to it."""

ON_HTP: Final = frozenset({"<f4", "<f2", "|u1", "|i1", "<u2", "<i2", "<i4", "<u4"})
"""What HTP gives out; anything else stays between its ops."""

FLOAT_LIMIT: Final = 0.01
QUANTISED_LIMIT: Final = 0.05
CHANGED_LIMIT: Final = 1e-6
"""From what on an error counts: half precision made up to 0.002 of an op; a step of 8 bits."""

Values = dict[str, Stored]
"""Tensors by their names."""


@dataclass
class FirstWrong:
    """One search of a model on the `tested` side; all its files are below `folder`.

    The other side is `other`, else the CPU, there of the model `reference` if that is given.
    `least` is from what error on an op is wrong, if somebody says so.
    """

    model: Path
    tested: Qnn
    cpu: Cpu
    folder: Path
    other: Qnn | None = None
    reference: Path | None = None
    inputs: Path | None = None
    least: float | None = None
    compiles: int = 0
    whole: bool = True
    refused: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    mine: Values = field(default_factory=dict)
    theirs: Values = field(default_factory=dict)
    values: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = OnnxModel.of(self.model, inputs=self.inputs)
        self.network = self.exact = Network(own.build())
        if self.reference is not None:
            self.exact = Network(OnnxModel.of(self.reference).build(), self.network)
            self.network.check_inputs(self.exact)
        self.units = [one for one in self.network.units() if one.gives]
        if not self.units:
            raise ConfigError("has no op that calculates with its inputs", file=self.model)
        for name, value in zip(self.network.inputs, own.inputs().values(), strict=True):
            self.values[name] = Stored(self.folder / f"{name}.raw", self.network.kinds[name])
            value.tofile(self.values[name].path)

    @property
    def threshold(self) -> float:
        """From what on an error of arithmetic counts."""
        if self.least is not None:
            return self.least
        if self.other is not None and self.other.backend == self.tested.backend:
            return 0.0
        eight = any(self.network.kinds[one.gives[0]].dtype in ("|u1", "|i1") for one in self.units)
        return QUANTISED_LIMIT if eight else FLOAT_LIMIT

    def run(self, keep: Path | None) -> Divergence:
        """Finds it, and exports the op into a new folder `keep`. Raises InfraError, ConfigError."""
        self._require_loaded()
        self._reference_values()
        changed = self._changed() if self.exact is not self.network else {}
        cuts = [one for one in self.units if self._can_be_cut(one)]
        near = self._in_graph(cuts)
        some = [one for one in near if one.op not in self.skipped and self._known(one)]
        made = self._by_themselves(some, unit=True)
        inherited = self._inherited(cuts)
        curve = []
        for op in self.units:
            names = tuple(self._names(op))
            sides = (self.mine, self.theirs), made, inherited
            errors = [_far(op, *one) for one in sides]
            why = (_incomparable(op, *one) for one in sides)
            point = CurvePoint(
                op=op.op,
                type=op.type,
                nodes=names,
                output=self.network.called[op.gives[0]],
                error=errors[0],
                made=errors[1],
                inherited=errors[2],
                changed=max((changed[one] for one in names if one in changed), default=None),
                skipped=self.skipped.get(op.op) or next(filter(None, why), None),
            )
            curve.append(point)
        limit = self.least if self.least is not None else CHANGED_LIMIT
        found = first_wrong(curve, self.threshold, min(limit, self.threshold) or CHANGED_LIMIT)
        first = None
        if found is not None:
            at, because = found
            first = self._first(self.units[at], curve[at], because, changed, keep)
        return Divergence(
            model=str(self.model),
            reference=str(self.reference) if self.reference else None,
            tested=self.tested.name,
            against=(self.other or self.cpu).name,
            threshold=self.threshold,
            first=first,
            curve=tuple(one.without_infinite() for one in curve),
            whole=self.whole,
            refused=self.refused,
            compiles=self.compiles,
            exit_code=1 if first or self.refused else 0,
        )

    def _require_loaded(self) -> None:
        """Raise ConfigError for a model that ONNX Runtime refuses as it is: parts of it may run."""
        files = [one for one in (self.model, self.reference) if one is not None]
        models = [Calculation(OnnxModel.of(one).build(), {}, {}) for one in files]
        for file, answer in zip(files, self.cpu.ask(models), strict=True):
            if isinstance(answer, NotCalculated):
                raise ConfigError(answer.text, file=file)

    def _reference_values(self) -> None:
        """What ONNX Runtime has of all tensors of the exact model."""
        exact = self.exact
        given = (name for one in exact.ops() for name in one.gives)
        wanted = [name for name in given if name in self.network.made_by]
        if not wanted:
            raise ConfigError("has no node of a name that the model has", field="--reference")
        sizes = [exact.kinds[name].size for name in wanted]
        # the last part needs all ops: it tells first of a model that comes to no end
        for part in reversed(chunks(sizes, MOST_BYTES, MOST_TENSORS)):
            model = exact.whole([wanted[at] for at in part])
            (answer,) = self.cpu.ask([_calculation(exact, model, self.values)])
            if isinstance(answer, NotCalculated):
                raise ConfigError(answer.text, file=self.reference or self.model)
            self.values |= answer

    def _changed(self) -> dict[str, float]:
        """By node: how far an op is from the reference's, both on the CPU."""
        ops = [one for one in self.network.ops() if one.gives]
        mine, theirs = self._by_themselves(ops, unit=False)
        found = {}
        for op in ops:
            there = [one for one in (mine, theirs) if op.gives[0] in one]
            if there:
                found[op.op] = (_far(op, mine, theirs) or 0.0) if len(there) == 2 else inf
        return found

    def _can_be_cut(self, op: Op) -> bool:
        kind = self.network.kinds[op.gives[0]]
        return kind.dtype in ON_HTP and kind.size <= MOST_BYTES and self._known(op)

    def _known(self, op: Op) -> bool:
        value, kind = self.values.get(op.gives[0]), self.network.kinds[op.gives[0]]
        return value is not None and value.kind.dtype == kind.dtype

    def _in_graph(self, cuts: Sequence[Op]) -> Sequence[Op]:
        """Has both sides calculate ops in the graph: all, or those on the way to the first.

        What is left to be looked at by itself: all, or those up to the first that is not well.
        """
        sizes = [self.network.kinds[one.gives[0]].size for one in cuts]
        parts = chunks(sizes, MOST_BYTES, MOST_TENSORS)
        if len(parts) <= MOST_MODELS:
            self._look([[cuts[at] for at in part] for part in parts])
            return self.units
        self.whole, good, bad = False, -1, len(cuts) - 1
        self._look([[cuts[bad]]])
        if self.refused is None and not self._wrong(cuts[bad]):
            return []
        while self.refused is None and bad - good > 1:
            chosen = spread(good, bad, sizes, MOST_BYTES, MOST_TENSORS)
            if not chosen:
                break
            self._look([[cuts[at] for at in chosen]])
            bad = next((at for at in chosen if self._wrong(cuts[at])), bad)
            good = max([at for at in chosen if at < bad], default=good)
        begin = self.units.index(cuts[good]) + 1 if good >= 0 else 0
        return self.units[begin : self.units.index(cuts[bad]) + 1]

    def _look(self, parts: Sequence[Sequence[Op]]) -> None:
        """Calculates the graph with the outputs of these ops, a model for each part of them."""
        models = [self.network.whole([one.gives[0] for one in part]) for part in parts]
        asked = [_calculation(self.network, model, self.values) for model in models]
        self.theirs |= {} if self.other else self.values
        for side, found in ((self.tested, self.mine), (self.other, self.theirs)):
            self.compiles += len(asked) if side else 0
            for answer in side.ask(asked) if side else ():
                if isinstance(answer, NotCalculated):
                    self.refused = self.refused or answer.text
                    self.skipped |= self._why(self.units, answer)
                else:
                    found |= answer

    def _why(self, ops: Iterable[Op], refusal: NotCalculated) -> dict[str, str]:
        """Why ops are refused, of those that are named."""
        nodes = {one.op: self._names(one) for one in ops}
        told = {
            op: [refusal.nodes[n] for n in of if n in refusal.nodes] for op, of in nodes.items()
        }
        return {op: why[0] for op, why in told.items() if why}

    def _names(self, op: Op) -> list[str]:
        return [self.network.nodes[at].name for at in self.network.parts(op)]

    def _wrong(self, op: Op) -> bool:
        return (_far(op, self.mine, self.theirs) or 0.0) > self.threshold

    def _by_themselves(self, ops: Sequence[Op], *, unit: bool) -> tuple[Values, Values]:
        """What ops make of the reference's inputs: on the tested side, and as it should be.

        As a `unit` on the tested processor, else as nodes of both models on the CPU.
        """
        other = self.other
        if unit:
            mine = self._apart(self.network, ops, self.tested, self.values, unit=True)
            if other is None:
                return mine, self.values
            theirs = self._apart(self.network, ops, other, self.values, unit=True)
            if not theirs and ops:
                raise ConfigError(f"it calculates no op: {self.refused}", field="--against")
            return mine, theirs
        cpu, others = self.cpu, {one.op: one for one in self.exact.ops() if one.gives}
        same = [one for one in ops if one.op in others]
        mine = self._apart(self.network, same, cpu, self.values, unit=False)
        exact = [others[one.op] for one in same]
        return mine, self._apart(self.exact, exact, cpu, self.values, unit=False)

    def _inherited(self, cuts: Iterable[Op]) -> tuple[Values, Values]:
        """What exact ops make of what each side hands them, where all of that is known."""
        same = {one.op: one for one in self.exact.units() if one.gives}
        both = self.mine.keys() & self.theirs.keys()
        ops = [same[one.op] for one in cuts if one.op in same and one.gives[0] in both]
        mine, theirs = (
            self._apart(self.exact, ops, self.cpu, self.values | one, unit=True)
            for one in (self.mine, self.theirs)
        )
        return mine, theirs

    def _apart(
        self, network: Network, ops: Sequence[Op], side: Cpu | Qnn, values: Values, *, unit: bool
    ) -> Values:
        """What ops give by themselves; why some are refused goes into `skipped`."""
        takes = {one.op: network.takes(one, unit=unit) for one in ops}
        able = [one for one in ops if all(name in values for name in takes[one.op])]
        sizes = [
            sum(network.kinds[name].size for name in (*one.gives, *takes[one.op])) for one in able
        ]
        many = MOST_TENSORS // 2  # beside an output each has an input or two
        left = [[able[at] for at in part] for part in chunks(sizes, MOST_BYTES, many)]
        found: Values = {}
        while left:
            models = [network.apart(part, unit=unit) for part in left]
            self.compiles += len(models) * isinstance(side, Qnn)
            answers = side.ask([_calculation(network, model, values) for model in models])
            asked, left = left, []
            for part, answer in zip(asked, answers, strict=True):
                if not isinstance(answer, NotCalculated):
                    found |= answer
                    continue
                why = self._why(part, answer)
                rest = [one for one in part if one.op not in why]
                if not why and len(rest) > 1:  # no op is named: each is asked by itself
                    left += [[one] for one in rest]
                elif why:
                    left += [rest] if rest else []
                else:
                    why = {rest[0].op: answer.text.partition("\n")[0][:300]}
                self.skipped |= why
        return found

    def _first(
        self,
        unit: Op,
        one: CurvePoint,
        because: Because,
        changed: Mapping[str, float],
        keep: Path | None,
    ) -> FirstOp:
        """The op, told, and exported with what the reference gives it and makes of it."""
        op = unit
        if because == "the model":  # of what is calculated together, the node that it is
            name = next(name for name in one.nodes if changed.get(name, 0.0) > CHANGED_LIMIT)
            op = next(op for op in self.network.ops() if op.op == name)
        alone = because != "the model"
        model, together = self.network.apart([op], unit=alone), 1
        mine, theirs = self._by_themselves([op], unit=alone)
        if because == "the graph":
            together, model, mine, theirs = self._reproduced(op) or (0, model, mine, theirs)
        fields = {
            "op": op.op,
            "type": op.type,
            "nodes": tuple(self._names(op)),
            "output": self.network.called[op.gives[0]],
            "error": {"the model": one.changed, "arithmetic": one.made}.get(because, one.error),
            "in_graph": one.error,
            "because": because,
            "together": together,
        }
        got, expected = mine.get(op.gives[0]), theirs.get(op.gives[0])
        if got and expected and got.kind == expected.kind:
            accuracy = compare(op.gives[0], got.array(), expected.array())
            fields |= {"max_abs": accuracy.max_abs, "cosine": accuracy.cosine}
        fields["skipped"] = _incomparable(op, mine, theirs) or one.skipped
        if keep is not None and together and all(name in theirs for name in op.gives):
            fields["exported"] = str(self._export(model, theirs, keep))
        return FirstOp(**one.model_dump() | fields).without_infinite()

    def _reproduced(self, op: Op) -> tuple[int, onnx.ModelProto, Values, Values] | None:
        """Find the fewest ops before one with which it goes wrong.

        Return how many they are with it, their model, and what both sides give; None if it goes
        wrong in the whole graph only.
        """
        behind = [
            (count, model)
            for count, model in self.network.behind(op)
            if all(tensor.name in self.values for tensor in model.graph.input)
        ]
        chosen = [behind[place] for place in _spaced(len(behind), MOST_MODELS)]
        asked = [_calculation(self.network, model, self.values) for _, model in chosen]
        self.compiles += len(asked)
        mine = self.tested.ask(asked)
        theirs = self.other.ask(asked) if self.other else [dict(self.values)] * len(asked)
        for (count, model), got, right in zip(chosen, mine, theirs, strict=True):
            if isinstance(got, NotCalculated) or isinstance(right, NotCalculated):
                continue
            if (_far(op, got, right) or 0.0) > self.threshold:
                return count, model, got, right
        return None

    def _export(self, model: onnx.ModelProto, expected: Values, keep: Path) -> Path:
        """A model with its inputs and what they should come to, as numpy's files."""
        import numpy as np

        graph = model.graph
        for folder, listed, values in (
            ("inputs", graph.input, self.values),
            ("expected", graph.output, expected),
        ):
            (keep / folder).mkdir(parents=True)
            for name in (one.name for one in listed):
                np.save(keep / folder / f"{name}.npy", values[name].array())
        (keep / "op.onnx").write_bytes(model.SerializeToString())
        return keep


def _spaced(count: int, most: int) -> list[int]:
    """Return the first places of `count`, and ever fewer of the later ones (pure)."""
    if count <= most:
        return list(range(count))
    return sorted({round((count - 1) ** (at / (most - 1))) for at in range(most)} | {0})[:most]


def _far(op: Op, mine: Values, theirs: Values) -> float | None:
    both = [name for name in op.gives if name in mine and name in theirs]
    far = (difference(mine[one].array(), theirs[one].array(), op.zero) for one in both)
    return max(far, default=None)


def _incomparable(op: Op, mine: Values, theirs: Values) -> str | None:
    """Why the outputs of an op cannot be compared that both sides have; None if they can."""
    both = [name for name in op.gives if name in mine and name in theirs]
    why = (incomparable(mine[one].array(), theirs[one].array(), op.zero) for one in both)
    return next(filter(None, why), None)


def _calculation(network: Network, model: onnx.ModelProto, values: Values) -> Calculation:
    feeds = {one.name: values[one.name.removesuffix(INSIDE)] for one in model.graph.input}
    gives = {one.name: network.kinds[one.name] for one in model.graph.output}
    return Calculation(model, feeds, gives)
