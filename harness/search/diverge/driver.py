"""Runs a model on both sides, with all that lies between its ops, and finds the first wrong op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

from harness.contexts import OnnxModel
from harness.ground import ConfigError
from harness.libraries.runtimes.pypi import CompilerHost
from harness.run.experiments.accuracy import compare
from harness.search.diverge.curve import (
    MOST,
    Errors,
    chunks,
    difference,
    first_wrong,
    spread,
)
from harness.search.diverge.divergence import CurvePoint, Divergence, FirstOp
from harness.search.diverge.network import Network, Op, in_name, out_name, plain
from harness.search.diverge.sides import (
    Calculation,
    Cpu,
    HtpPlace,
    Npu,
    Stored,
    given_inputs,
)

MOST_BYTES: Final = 128 << 20
MOST_TENSORS: Final = 40
"""So many tensors, of so many bytes, come out of a model at most: the probe takes 64 fields."""

MOST_MODELS: Final = 12
"""Into so many models the cuts of a graph are divided; with more, only those that lead to it."""

MOST_REFUSALS: Final = 60
"""So often what is refused is divided to find the op that it is refused for."""

ON_HTP: Final = frozenset({"<f4", "<f2", "|u1", "|i1", "<u2", "<i2", "<i4", "<u4"})
"""What HTP gives out; anything else stays between its ops."""

FLOAT_LIMIT: Final = 0.01
QUANTISED_LIMIT: Final = 0.05
CHANGED_LIMIT: Final = 1e-6
"""From what on an error counts: half precision made up to 0.002 of an op; a step of 8 bits."""

EitherSide = Cpu | Npu


@dataclass(frozen=True)
class DivergeTask:
    """What is asked: a model, where it is tested, and against what."""

    model: Path
    place: HtpPlace
    tested: CompilerHost
    other: CompilerHost | None = None
    reference: Path | None = None
    inputs: Path | None = None
    threshold: float | None = None
    most_bytes: int = MOST_BYTES
    most_tensors: int = MOST_TENSORS


@dataclass
class FirstWrong:
    """One search; all its files are below `folder`."""

    asked: DivergeTask
    folder: Path
    compiles: int = 0
    refused: str | None = None
    skipped: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = self.asked
        own = OnnxModel.of(asked.model)
        self.network = Network(own.build())
        self.exact = self.network
        if asked.reference is not None:
            self.exact = Network(OnnxModel.of(asked.reference).build())
            self.network.like(self.exact)
        self.cpu = Cpu(asked.tested, self.folder)
        self.npu = Npu(asked.tested, asked.place, self.folder)
        self.other = Npu(asked.other, asked.place, self.folder) if asked.other else None
        kinds = {name: self.network.kinds[name] for name in self.network.inputs}
        made_up = own.inputs() if asked.inputs is None else {}
        self.inputs = given_inputs(kinds, asked.model, asked.inputs, made_up, self.folder)
        self.units = [one for one in self.network.units() if one.gives]
        if not self.units:
            raise ConfigError("has no op that calculates with its inputs", file=asked.model)
        self.values: dict[str, Stored] = dict(self.inputs)

    @property
    def threshold(self) -> float:
        """From what on an error of arithmetic counts."""
        if self.asked.threshold is not None:
            return self.asked.threshold
        if self.other is not None:
            return 0.0
        eight = any(self.network.kinds[one.gives[0]].dtype in ("|u1", "|i1") for one in self.units)
        return QUANTISED_LIMIT if eight else FLOAT_LIMIT

    def run(self, keep: Path | None) -> Divergence:
        """Finds it, and exports the op into a new folder `keep`. Raises InfraError, ConfigError."""
        self._reference_values()
        changed = self._changed() if self.exact is not self.network else {}
        cuts = [at for at, one in enumerate(self.units) if self._can_be_cut(one)]
        tested, theirs, complete = self._in_graph(cuts)
        near = list(range(len(self.units))) if complete else self._near(cuts, tested, theirs)
        made = self._made(near)
        inherited = self._inherited(cuts, tested, theirs)
        errors = [
            Errors(
                self._far(at, tested, theirs),
                made.get(at),
                inherited.get(at),
                max((changed[node] for node in one.nodes if node in changed), default=None),
            )
            for at, one in enumerate(self.units)
        ]
        limit = self.asked.threshold if self.asked.threshold is not None else CHANGED_LIMIT
        at = first_wrong(errors, self.threshold, min(limit, self.threshold) or CHANGED_LIMIT)
        first = self._first(at, errors, changed, keep) if at is not None else None
        return Divergence(
            model=str(self.asked.model),
            reference=str(self.asked.reference) if self.asked.reference else None,
            tested=self.npu.name,
            against=(self.other or self.cpu).name,
            threshold=self.threshold,
            first=first,
            curve=tuple(self._point(at, one) for at, one in enumerate(errors)),
            whole=complete,
            refused=self.refused,
            compiles=self.compiles,
            exit_code=1 if first else 0,
        )

    def _reference_values(self) -> None:
        """What ONNX Runtime has of all tensors of the exact model, called as the tested one's."""
        exact = self.exact
        names = self._names_in_exact
        wanted = [name for name in names.values() if name in exact.kinds]
        sizes = [exact.kinds[name].size for name in wanted]
        feeds = {in_name(at): self.inputs[name] for at, name in enumerate(exact.inputs)}
        own = {theirs: mine for mine, theirs in names.items()}
        for part in chunks(sizes, self.asked.most_bytes, self.asked.most_tensors):
            some = [wanted[at] for at in part]
            gives = {name: exact.kinds[name] for name in some}
            (answer,) = self.cpu.ask([Calculation(exact.whole(some), feeds, gives)])
            if isinstance(answer, str):
                raise ConfigError(answer, file=self.asked.reference or self.asked.model)
            self.values |= {own[name]: value for name, value in answer.items()}

    @cached_property
    def _names_in_exact(self) -> dict[str, str]:
        """What the outputs of each op of the tested model are called in the exact one."""
        by_name = {node.name: node for node in self.exact.nodes}
        found: dict[str, str] = {}
        for op in self.network.ops():
            node = self.network.nodes[op.nodes[0]]
            same = by_name.get(node.name)
            if same is None or len(same.output) != len(node.output):
                continue
            found.update(zip(node.output, same.output, strict=True))
        if self.exact is not self.network and not found:
            raise ConfigError("has no node of a name that the model has", field="--reference")
        return {mine: theirs for mine, theirs in found.items() if mine and theirs}

    def _changed(self) -> dict[int, float]:
        """By place in the model: how far an op is from the reference's, both on the CPU."""
        theirs = {one.op: one for one in self.exact.ops() if one.gives}
        ops = [one for one in self.network.ops() if one.gives and one.op in theirs]
        mine = self._apart(self.network, ops, self.cpu, self.values, unit=False)
        known = self._names_in_exact
        values = {known.get(name, name): value for name, value in self.values.items()}
        others = [theirs[one.op] for one in ops]
        exact = self._apart(self.exact, others, self.cpu, values, unit=False)
        found = {}
        for at, op in enumerate(ops):
            if at in mine and at in exact:
                pairs = zip(mine[at], exact[at], strict=False)
                far = max(difference(one.array(), two.array()) for one, two in pairs)
                found[op.nodes[0]] = far
            elif at in mine or at in exact:
                found[op.nodes[0]] = MOST
        return found

    def _can_be_cut(self, op: Op) -> bool:
        kind = self.network.kinds[op.gives[0]]
        return kind.dtype in ON_HTP and kind.size <= self.asked.most_bytes and self._known(op)

    def _known(self, op: Op) -> bool:
        value, kind = self.values.get(op.gives[0]), self.network.kinds[op.gives[0]]
        return value is not None and value.kind.dtype == kind.dtype

    def _in_graph(self, cuts: Sequence[int]) -> tuple[dict[int, Stored], dict[int, Stored], bool]:
        """What both sides have of ops in the graph: of all, or of those on the way to the first.

        The third says whether it is all of them.
        """
        tested: dict[int, Stored] = {}
        theirs: dict[int, Stored] = {}
        sizes = [self.network.kinds[self.units[at].gives[0]].size for at in cuts]
        limits = self.asked.most_bytes, self.asked.most_tensors
        parts = chunks(sizes, *limits)
        if len(parts) <= MOST_MODELS:
            self._look([[cuts[at] for at in part] for part in parts], tested, theirs)
            return tested, theirs, True
        good, bad = -1, len(cuts) - 1
        self._look([[cuts[bad]]], tested, theirs)
        while self.refused is None and bad - good > 1:
            chosen = spread(good, bad, sizes, *limits)
            if not chosen or not self._wrong(cuts[bad], tested, theirs):
                break
            self._look([[cuts[at] for at in chosen]], tested, theirs)
            wrong = [at for at in chosen if self._wrong(cuts[at], tested, theirs)]
            bad = wrong[0] if wrong else bad
            good = max([at for at in chosen if at < bad], default=good)
        return tested, theirs, False

    def _look(
        self,
        parts: Sequence[Sequence[int]],
        tested: dict[int, Stored],
        theirs: dict[int, Stored],
    ) -> None:
        """Calculates the graph with the outputs of these ops, a model for each part of them."""
        feeds = {in_name(at): self.inputs[name] for at, name in enumerate(self.network.inputs)}
        asked = []
        for part in parts:
            gives = {name: self.network.kinds[name] for name in self._outputs(part)}
            asked.append(Calculation(self.network.whole(list(gives)), feeds, gives))
        for side, found in ((self.npu, tested), (self.other, theirs)):
            if side is None:
                found.update(
                    {at: self.values[self._outputs([at])[0]] for at in chain.from_iterable(parts)}
                )
                continue
            self.compiles += len(asked)
            for part, answer in zip(parts, side.ask(asked), strict=True):
                if isinstance(answer, str):
                    self.refused = self.refused or answer
                else:
                    found.update({at: answer[self._outputs([at])[0]] for at in part})

    def _outputs(self, places: Sequence[int]) -> list[str]:
        return [self.units[at].gives[0] for at in places]

    def _far(
        self, at: int, tested: Mapping[int, Stored], theirs: Mapping[int, Stored]
    ) -> float | None:
        if at not in tested or at not in theirs:
            return None
        return difference(tested[at].array(), theirs[at].array(), self.units[at].zero)

    def _wrong(self, at: int, tested: Mapping[int, Stored], theirs: Mapping[int, Stored]) -> bool:
        return (self._far(at, tested, theirs) or 0.0) > self.threshold

    def _near(
        self, cuts: Sequence[int], tested: Mapping[int, Stored], theirs: Mapping[int, Stored]
    ) -> list[int]:
        """The ops between the last that is well and the first that is not."""
        looked = [at for at in cuts if at in tested]
        bad = next((at for at in looked if self._wrong(at, tested, theirs)), None)
        if bad is None:
            return [] if looked else list(range(len(self.units)))
        good = max((at for at in looked if at < bad), default=-1)
        return list(range(good + 1, bad + 1))

    def _made(self, places: Sequence[int]) -> dict[int, float]:
        """What each op makes of the reference's inputs, by itself, on the tested side."""
        ops = [self.units[at] for at in places]
        able = [at for at in range(len(ops)) if self._known(ops[at])]
        some = [ops[at] for at in able]
        mine = self._apart(self.network, some, self.npu, self.values, unit=True, told=places)
        theirs: dict[int, list[Stored]] = {}
        if self.other is not None:
            theirs = self._apart(self.network, some, self.other, self.values, unit=True)
        found = {}
        for number, values in mine.items():
            op = some[number]
            against = theirs.get(number) if self.other else [self.values.get(n) for n in op.gives]
            if against is not None and None not in against:
                pairs = zip(values, against, strict=True)
                found[places[able[number]]] = max(
                    difference(one.array(), two.array(), op.zero) for one, two in pairs if two
                )
        return found

    def _inherited(
        self, cuts: Sequence[int], tested: Mapping[int, Stored], theirs: Mapping[int, Stored]
    ) -> dict[int, float]:
        """What exact ops make of what the tested side hands them, where all of that is known."""
        mine = {self.units[at].gives[0]: value for at, value in tested.items()}
        others = {self.units[at].gives[0]: value for at, value in theirs.items()}
        names = self._names_in_exact
        by_name = {one.op: one for one in self.exact.units()}
        places, ops = [], []
        for at in cuts:
            op = by_name.get(self.units[at].op)
            if at in tested and at in theirs and op is not None and op.gives:
                places.append(at)
                ops.append(op)
        answers = []
        for side in (mine, others):
            known = {names.get(name, name): one for name, one in (self.values | side).items()}
            answers.append(self._apart(self.exact, ops, self.cpu, known, unit=True))
        return {
            places[number]: difference(
                one[0].array(), answers[1][number][0].array(), ops[number].zero
            )
            for number, one in answers[0].items()
            if number in answers[1]
        }

    def _apart(
        self,
        network: Network,
        ops: Sequence[Op],
        side: EitherSide,
        values: Mapping[str, Stored],
        *,
        unit: bool,
        told: Sequence[int] = (),
    ) -> dict[int, list[Stored]]:
        """What ops give by themselves, by their number; those that are refused are left out."""
        takes = [network.takes(one, unit=unit) for one in ops]
        sizes = [
            sum(network.kinds[name].size for name in (*one.gives, *took))
            for one, took in zip(ops, takes, strict=True)
        ]
        able = [at for at, took in enumerate(takes) if all(name in values for name in took)]
        many = self.asked.most_tensors // 2  # beside an output each has an input or two
        parts = chunks([sizes[at] for at in able], self.asked.most_bytes, many)
        left = [[able[at] for at in part] for part in parts]
        found: dict[int, list[Stored]] = {}
        refusals = 0
        while left and refusals < MOST_REFUSALS:
            asked = [self._alone(network, [ops[at] for at in part], values, unit) for part in left]
            self.compiles += len(asked) * isinstance(side, Npu)
            refused = []
            for part, answer in zip(left, side.ask(asked), strict=True):
                if not isinstance(answer, str):
                    for number, at in enumerate(part):
                        names = [out_name(number, out) for out in range(len(ops[at].gives))]
                        found[at] = [answer[name] for name in names]
                    continue
                refusals += 1
                half = len(part) // 2
                refused += [part[:half], part[half:]] if half else []
                if told and not half:
                    self.skipped[told[part[0]]] = answer
            left = refused
        return found

    def _alone(
        self, network: Network, ops: Sequence[Op], values: Mapping[str, Stored], unit: bool
    ) -> Calculation:
        """Ops by themselves, fed with these values."""
        taken = dict.fromkeys(name for one in ops for name in network.takes(one, unit=unit))
        names = {name: in_name(at) for at, name in enumerate(taken)}
        gives = {
            out_name(number, out): network.kinds[name]
            for number, op in enumerate(ops)
            for out, name in enumerate(op.gives)
        }
        feeds = {names[name]: values[name] for name in taken}
        return Calculation(network.apart(ops, names, unit=unit), feeds, gives)

    def _point(self, at: int, errors: Errors) -> CurvePoint:
        op = self.units[at]
        nodes = tuple(self.network.nodes[one].name for one in op.nodes)
        told = self.skipped.get(at)
        made = max((one for one in (errors.made, errors.changed) if one is not None), default=None)
        return CurvePoint(
            op=op.op,
            type=op.type,
            nodes=nodes,
            output=op.gives[0],
            error=errors.error,
            made=made,
            inherited=errors.inherited,
            changed=errors.changed,
            skipped=told.partition("\n")[0][:300] if told else None,
        )

    def _first(
        self, at: int, errors: Sequence[Errors], changed: Mapping[int, float], keep: Path | None
    ) -> FirstOp:
        """The op, told, and exported with what the reference gives it and makes of it."""
        unit, one = self.units[at], errors[at]
        model = (one.changed or 0.0) > CHANGED_LIMIT
        op = unit
        if model:  # of what is quantised together, the node that it is
            place = next(node for node in unit.nodes if changed.get(node, 0.0) > CHANGED_LIMIT)
            op = next(one for one in self.network.ops() if one.nodes == (place,))
        side: EitherSide = self.cpu if model else self.npu
        mine = self._apart(self.network, [op], side, self.values, unit=not model)
        theirs: Sequence[Stored | None] = [self.values.get(name) for name in op.gives]
        if self.other is not None and not model:
            made = self._apart(self.network, [op], self.other, self.values, unit=True)
            theirs = made.get(0, theirs)
        max_abs, cosine = float("inf"), 0.0
        expected = theirs[0]
        if 0 in mine and expected is not None and expected.kind == mine[0][0].kind:
            found = compare(op.gives[0], mine[0][0].array(), expected.array())
            max_abs, cosine = found.max_abs, found.cosine
        where = None
        if keep is not None and None not in theirs:
            where = str(self._export(op, [one for one in theirs if one], keep, unit=not model))
        return FirstOp(
            op=op.op,
            type=op.type,
            nodes=tuple(self.network.nodes[one].name for one in op.nodes),
            output=op.gives[0],
            error=(one.changed if model else max(one.made or 0.0, one.error or 0.0)) or 0.0,
            in_graph=one.error,
            inherited=one.inherited,
            because="the model" if model else "arithmetic",
            max_abs=min(max_abs, MOST),
            cosine=cosine,
            exported=where,
        )

    def _export(self, op: Op, expected: Sequence[Stored], keep: Path, *, unit: bool) -> Path:
        """The op alone as a model, its inputs and what they should come to, as numpy's files."""
        import numpy as np

        names: dict[str, str] = {}
        for name in self.network.takes(op, unit=unit):
            names[name] = plain(name, names.values())
        model = self.network.apart([op], names, unit=unit)
        taken = {one.name for one in model.graph.input}
        for folder in ("inputs", "expected"):
            (keep / folder).mkdir(parents=True)
        for name, new in names.items():
            if new in taken:
                np.save(keep / "inputs" / f"{new}.npy", self.values[name].array())
        for out, value in enumerate(expected):
            np.save(keep / "expected" / f"{out_name(0, out)}.npy", value.array())
        (keep / "op.onnx").write_bytes(model.SerializeToString())
        return keep
