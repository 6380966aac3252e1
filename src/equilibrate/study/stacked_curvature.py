"""ESGD and JacobiSGD for a stack of trials: what `optim` keeps as numbers is a tensor here.

Every trial draws its own vector, folds with its own weight and is damped by its own mean, exactly
as the optimizer alone; the summed loss has a block-diagonal Hessian, so one product serves all.
One thing differs: a product that is not finite is dropped for its trial alone and waits for the
next scheduled probe, for nothing is read back to the host in between.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.curvature import draw_elements
from equilibrate.diagonals import equilibration, jacobi, row_column
from equilibrate.optim import ESGD, JacobiSGD, growth, mean_floor
from equilibrate.optim.damping import noise_level
from equilibrate.study.fused import fused
from equilibrate.study.passes import Hessian
from equilibrate.study.stacked_arithmetic import folding, limiting, stepping
from equilibrate.study.stacked_optimizer import StackedOptimizer, wide
from equilibrate.study.vector_words import VectorWords

KINDS: dict[type[Optimizer], ModuleType] = {ESGD: equilibration, JacobiSGD: jacobi}


class StackedCurvature(StackedOptimizer):
    """The stacked form of a curvature optimizer."""

    def __init__(
        self,
        optimizer: type[Optimizer],
        settings: Sequence[Mapping[str, Any]],
        parameters: Sequence[Tensor],
    ) -> None:
        super().__init__(optimizer, settings, parameters)
        self.kind = self._kind_of(optimizer)
        self.state["diagonal"] = [torch.zeros_like(p) for p in self.parameters]
        lr = self.numbers["lr"]
        trials, tensors = len(lr), len(self.parameters)
        self.seeds = self.numbers["seed"].to(torch.int64)
        self.drawn = torch.zeros_like(self.seeds)  # vectors so far: the next one's number
        self.weight = torch.zeros_like(lr)  # their total weight after forgetting
        self.scale = lr.new_zeros(trials, tensors)  # mean diagonal over the elements seen
        self.seen = lr.new_zeros(trials, tensors)  # elements whose curvature was ever non-zero
        like = self.parameters[0]
        self.damping = like.new_zeros(trials, tensors)
        self.fill = like.new_zeros(trials, tensors)
        self._rows = [
            p.shape[order[-1]] if p.dim() > 1 else 1
            for p, order in zip(self.parameters, self.orders, strict=True)
        ]
        self._sizes = lr.new_tensor([p[0].numel() for p in self.parameters])
        self._decays = any(s.get("weight_decay") for s in self.settings)
        self._limited = any(s["update_limit"] is not None for s in self.settings)
        self.update_mean = torch.zeros_like(lr)  # of the size of an update, as in `optim.growth`
        self.update_count = torch.zeros_like(self.seeds)
        self.first_mean_scale = torch.zeros_like(
            lr
        )  # of the mean diagonal, as in `optim.mean_floor`
        self.initial_scale = torch.zeros_like(lr)  # as in `optim.damping`
        self.brake = torch.ones_like(lr)
        self._grows = any(s["momentum"] and s["growth_limit"] is not None for s in self.settings)
        self._fold_all = fused(folding(self.kind), self.device)
        self._words = self._vector_words() if self.device.type == "cuda" else None
        self._step_all = fused(stepping(self.kind), self.device)
        self._limit_all = fused(limiting(self.kind), self.device)

    def _vector_words(self) -> VectorWords:
        return VectorWords(self.switches["distribution"], self.parameters)

    def _kind_of(self, optimizer: type[Optimizer]) -> ModuleType:
        return KINDS[optimizer]

    def probes_at(self, update: int) -> bool:
        """Tell whether a probe is due at an update."""
        return bool(update % self.switches["probe_every"] == 0)

    @torch.no_grad()
    def warm_up(self, hessian: Hessian) -> None:
        """Fold as many products of every trial as its warm-up asks for."""
        self._measure_first(hessian, self.numbers["warmup_probes"])
        self.first_mean_scale.copy_(self._mean_scale())
        for parameter in self.parameters:  # no finite curvature at the start: the trial has failed
            parameter[self.weight == 0] = torch.nan

    def _measure_first(self, hessian: Hessian, counts: Tensor) -> None:
        """Fold as many products of the first loss as each trial counts."""
        for done in range(int(counts.max())):
            vectors = self.draw()
            self._fold(vectors, *hessian(vectors), counts > done, steps=0)

    @torch.no_grad()
    def fold(
        self, vectors: Sequence[Tensor], products: Sequence[Tensor], finite: Tensor, steps: int
    ) -> None:
        """Fold one product of every trial, `steps` updates after the last one."""
        everyone = torch.ones_like(self.seeds, dtype=torch.bool)
        self._fold(vectors, products, finite, everyone, steps)

    def _fold(
        self,
        vectors: Sequence[Tensor],
        products: Sequence[Tensor],
        finite: Tensor,
        chosen: Tensor,
        steps: int,
    ) -> None:
        self.drawn += chosen
        chosen = chosen & finite
        weight = self.weight * self.numbers["decay"] ** steps + 1
        self.weight.copy_(torch.where(chosen, weight, self.weight))
        # An infinite weight leaves a diagonal as it is, to the last bit.
        shares = self.kind.shares(torch.where(chosen, weight, torch.inf))
        old, new = (wide(share.to(self.dtype)) for share in shares)
        total, seen = self._fold_all(
            self._views(self.state["diagonal"]),
            self._views(vectors, may_copy=True) if self.kind is jacobi else vectors,
            self._views(products, may_copy=True),
            wide(chosen),
            old,
            new,
            self._rows,
        )
        self._summarise(total, seen)

    def _summarise(self, total: Tensor, seen: Tensor) -> None:
        """Renew what follows from the sums and counts of every tensor's diagonal."""
        self.seen.copy_(seen)
        self.scale.copy_(total.double() / self.seen.clamp(min=1))
        mean, initial = self._mean_scale(), self.initial_scale
        first = (self.step == 0) | (initial == 0)  # nothing has moved, or no curvature was seen
        initial.copy_(torch.where(first, mean, initial))
        added = mean_floor.added(self.switches["damping_kind"], self.numbers["damping"], initial)
        self.brake.copy_(mean_floor.brake_on_device(mean, self.first_mean_scale, added))
        self._renew_damping()

    @torch.no_grad()
    def draw(self) -> list[Tensor]:
        """Draw every trial's own next vector over all parameters."""
        if self._words is not None:
            return [v.to(self.dtype) for v in self._words.draw(self.seeds, self.drawn)]
        flat = [
            draw_elements(
                self.switches["distribution"], 0, p[0].numel(),
                seed=self.seeds, probe=self.drawn, parameter=i, device=self.device,
            )
            for i, p in enumerate(self.parameters)
        ]  # fmt: skip
        return [v.to(self.dtype).view(p.shape) for v, p in zip(flat, self.parameters, strict=True)]

    def _mean_scale(self) -> Tensor:
        """Return the mean diagonal of every trial over all elements whose curvature was seen."""
        return (self.scale * self.seen).sum(1) / self.seen.sum(1).clamp(min=1)

    def _renew_damping(self) -> None:
        """Renew damping and fill of every tensor, as `optim.damping` does."""
        share = self.numbers["damping"][:, None]
        if self.switches["damping_kind"] == "absolute":
            self.damping.copy_(share.expand_as(self.damping))
            return
        own, mean = self.scale, self._mean_scale()[:, None]
        first = self.initial_scale[:, None].expand_as(own)
        initial = self.switches["damping_kind"] == "initial"
        of_own, of_all = (first, first) if initial else (own, mean)
        scaling = "row-column" if self.kind is row_column else "row"
        above = own > noise_level(self.damping.dtype, scaling) * mean
        self.damping.copy_(torch.where(above, share * of_own, share * of_all + mean))
        self.fill.copy_(torch.where(above & (self.seen < self._sizes), own, 0.0))

    @torch.no_grad()
    def move(self, gradients: Sequence[Tensor | None]) -> None:
        """Move every trial along its gradient divided by its diagonal."""
        self._count_a_step()
        buffers = self.state.get("momentum_buffer")
        filled = self._views(self._filled(gradients), may_copy=True)
        diagonals = self._views(self.state["diagonal"])
        limit = self._derived["update_limit"] if self._limited else None
        self._step_all(
            self._views(self.parameters),
            filled,
            diagonals,
            self._views(buffers) if buffers else None,
            self.damping,
            self.fill,
            {
                "lr": self._derived["lr"],
                "momentum": self._derived["momentum"],
                "weight_decay": self._derived["weight_decay"] if self._decays else None,
                "update_limit": limit,
                "nesterov": self.switches["nesterov"],
                "maximize": self.switches["maximize"],
                "scale": self._scale_of_update(filled, diagonals, limit),
            },
        )

    def _scale_of_update(
        self, gradients: list[Tensor], diagonals: list[Tensor], limit: Tensor | None
    ) -> Tensor | None:
        """Return what multiplies the update of every trial, as in `optim.limiting`."""
        brake = self.brake if self.switches["mean_floor"] else None
        if not self._grows:
            return None if brake is None else wide(brake.to(self.dtype))
        factor: Tensor = self._limit_all(
            gradients,
            diagonals,
            self.damping,
            self.fill,
            limit,
            self._rows,
            sum(p[0].numel() for p in self.parameters),
            (self.update_mean, self.update_count),
            self.numbers["growth_limit"],
            brake,
        )
        return wide(factor)

    def tensors(self) -> dict[str, Any]:
        """Return everything kept, by name; the first dimension of all of it counts trials."""
        counted = (
            "drawn",
            "weight",
            "scale",
            "seen",
            "damping",
            "fill",
            "first_mean_scale",
            "initial_scale",
            "brake",
        )
        own = (*counted, *growth.OF_GROUP)
        return {**super().tensors(), **{name: getattr(self, name) for name in own}}
