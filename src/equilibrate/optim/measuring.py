"""When to measure and what becomes of a measurement: from a live loss to the diagonal in the state.

    due -> draw v over all parameters -> H v -> pending product -> fold, at the next step

A group is *scheduled* when enough steps have passed since it was last measured; it is *fresh*
while a trainable parameter of it was never measured. Fresh parameters get the warm-up: several
vectors on the first loss, each folded at once.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, Protocol

from torch import Tensor

from equilibrate.curvature import draw_like
from equilibrate.optim.arguments import check_layouts, check_observed
from equilibrate.optim.keeping import Keeping
from equilibrate.optim.live_loss import LiveLoss
from equilibrate.optim.pending import Pending
from equilibrate.optim.state import all_finite, allocate, fold, wide, zeros_like

Group = dict[str, Any]


class Hessian(Protocol):
    """What a probe multiplies with; `present` tells which parameters the loss depends on."""

    present: list[bool]

    def __call__(self, vectors: Sequence[Tensor], wanted: Sequence[int]) -> list[Tensor]:
        """Return the rows of H v at the wanted positions."""
        ...


class Measuring(Keeping):
    """An optimizer that keeps a diagonal of the Hessian; `_kind` says which one."""

    _kind: ClassVar[ModuleType]

    @property
    def probe_due(self) -> bool:
        """Whether this step wants a probe: enough steps have passed, or a parameter is new."""
        return any(self._scheduled(group) or self._fresh(group) for group in self.param_groups)

    def probe(self, loss: Tensor) -> bool:
        """When due, measure the curvature of this live, unscaled loss; else return False at once.

        Call it before `loss.backward()`, for every micro-batch, with the very loss that is then
        backpropagated. It leaves `.grad` and torch's random state alone.
        """
        if not self.probe_due:
            return False
        if self._pending.vectors is not None:
            raise ValueError(
                "All products of one step must belong to one vector v, and observe has brought "
                "its own since the last step. Measure a step by probe or by observe, not by both."
            )
        self._measure(LiveLoss(loss, self._trainable()))
        return True

    def calibrate(self, losses: Iterable[Tensor]) -> int:
        """Measure without stepping: one probe for each loss of an iterable, folded at once.

        Give a generator over the data loader, so that only one graph is alive at a time. Returns
        the number of probes folded; products that are not finite are left out.
        """
        if self._pending:
            raise RuntimeError(
                "calibrate between probe and step would mix two vectors; step first."
            )
        parameters, seen, folded = self._trainable(), 0, 0
        for loss in losses:
            seen += 1
            contributions = self._contributions(LiveLoss(loss, parameters), parameters)
            folded += self._fold(contributions, parameters)
        if not seen:
            raise ValueError("calibrate was given no loss. Pass an iterable of live losses.")
        for group in self.param_groups if folded else []:
            group["steps_since_probe"] = 0
        return folded

    def observe(self, vectors: Sequence[Tensor | None], products: Sequence[Tensor | None]) -> None:
        """Add products H v computed elsewhere to the pending product; the next step folds them.

        Both lists follow the order of the parameters; None stands for a parameter left out. v must
        have zero mean and unit variance; several calls before one step (micro-batches) must use
        the same v.
        """
        check_observed(self._all(), vectors, products, self._pending)
        given = {
            p: self._kind.contribution(v.detach(), product.detach()).clone()
            for p, v, product in zip(self._all(), vectors, products, strict=True)
            if v is not None and product is not None
        }
        self._pending.add(list(given), list(given.values()), self._all())
        self._pending.vectors = [None if v is None else v.detach() for v in vectors]
        self._pending.versions = [None if v is None else v._version for v in vectors]

    def diagonal(self) -> list[Tensor]:
        """Return the present diagonal, undamped: one copied tensor per parameter, in order.

        It is zero where no curvature was ever seen.
        """
        return [
            self._kind.magnitude(self.state[p]["diagonal"]).clone()
            if p in self.state
            else zeros_like(p)
            for p in self._all()
        ]

    def unseen_share(self) -> float:
        """Return the share of elements whose curvature was never seen non-zero."""
        parameters = self._all()
        unseen = sum(self.state[p]["unseen"] if p in self.state else p.numel() for p in parameters)
        return float(unseen / max(1, sum(p.numel() for p in parameters)))

    def _trainable(self) -> list[Tensor]:
        return [p for p in self._all() if p.requires_grad]

    def _fresh(self, group: Group) -> list[Tensor]:
        """Return the trainable parameters that were never measured."""
        return [p for p in group["params"] if p.requires_grad and not self._measured(p)]

    def _scheduled(self, group: Group) -> bool:
        """Tell whether enough steps have passed since a group that trains was measured."""
        enough = group["steps_since_probe"] >= group["probe_every"]  # never a modulus
        return enough and any(p.requires_grad for p in group["params"])

    def _measured(self, parameter: Tensor) -> bool:
        state = self.state.get(parameter)
        return state is not None and (state["probes"] > 0 or state["absent"])

    def _measure(self, hessian: Hessian) -> None:
        """Warm up what is fresh, then add one ordinary product for the groups that are due."""
        due = [group for group in self.param_groups if self._scheduled(group)]
        due += [g for g in self.param_groups if g["warmup_probes"] == 1 and self._fresh(g)]
        self._warm_up(hessian)
        members = {p for group in due for p in group["params"]}
        asked = [p for p in self._trainable() if p in members]
        if asked:
            contributions = self._contributions(hessian, asked)
            self._pending.add(asked, [contributions.get(p) for p in asked], self._all())

    def _warm_up(self, hessian: Hessian) -> None:
        """Fold several vectors of this one loss into the fresh parameters, each at once."""
        fresh = [
            (p, g) for g in self.param_groups for p in self._fresh(g) if g["warmup_probes"] > 1
        ]
        started = [g for g in self.param_groups if not any(self._measured(p) for p in g["params"])]
        for done in range(max((g["warmup_probes"] for _, g in fresh), default=0)):
            asked = [p for p, g in fresh if g["warmup_probes"] > done]
            self._fold(self._contributions(hessian, asked), asked)
        for group in started if fresh else []:
            group["steps_since_probe"] = 0

    def _contributions(self, hessian: Hessian, asked: Sequence[Tensor]) -> dict[Tensor, Tensor]:
        """Return what one vector over all parameters contributes to those asked for and present."""
        trainable = self._trainable()
        vectors = self._draw()
        position = {p: i for i, p in enumerate(trainable)}
        products = hessian(vectors, [position[p] for p in asked])
        check_layouts(products)
        return {
            p: self._kind.contribution(vectors[position[p]], product.to(wide(p.dtype)))
            for p, product in zip(asked, products, strict=True)
            if hessian.present[position[p]]
        }

    def _draw(self) -> list[Tensor]:
        """Draw this probe's vector over all trainable parameters; a frozen one keeps its number."""
        numbered = enumerate((p, g) for g in self.param_groups for p in g["params"])
        return [
            draw_like(
                g["distribution"], p, seed=g["seed"], probe=g["probe_index"], parameter=number
            )
            for number, (p, g) in numbered
            if p.requires_grad
        ]

    def _fold(self, contributions: Mapping[Tensor, Tensor], asked: Iterable[Tensor] = ()) -> bool:
        """Fold one vector's contributions, or drop them whole where any is not finite."""
        group_of = {p: g for g in self.param_groups for p in g["params"]}
        for group in self.param_groups:
            group["probe_index"] += 1
        if not all_finite(list(contributions.values())):
            self._drop()
            return False
        for p in [*contributions, *asked]:
            if p not in self.state:
                self.state[p] = allocate(p, group_of[p]["momentum"])
            self.state[p]["absent"] = self.state[p]["probes"] == 0
        decays = {p: group_of[p]["decay"] for p in contributions}
        fold(self._kind, contributions, self.state, decays)
        return True

    def _drop(self) -> None:
        """Count a product that was not finite, and say so."""
        for group in self.param_groups:
            group["dropped_probes"] += 1
        warnings.warn(
            "A curvature product was not finite and was dropped; the diagonal is unchanged (see "
            "param_groups[0]['dropped_probes']). If the loss is finite, the second derivative "
            "overflows: lower the learning rate or look for a division by zero.",
            stacklevel=4,
        )

    def _fold_pending(self) -> None:
        """Fold what this step's losses have contributed; a dropped product leaves the probe due."""
        pending, self._pending = self._pending, Pending()
        if pending and self._fold(pending.sums, pending.asked):
            for group in self.param_groups:
                if any(p in pending.asked for p in group["params"]):
                    group["steps_since_probe"] = 0
