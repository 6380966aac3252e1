"""When to measure and what becomes of a measurement: from a live loss to the diagonal in the state.

    due -> draw v over all parameters -> H v -> pending product -> fold, at the next step

A group is *scheduled* when enough steps have passed since it was last measured. A parameter never
measured is *fresh* for a loss that depends on it, and gets the warm-up: several vectors, one loss.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from equilibrate.kernels.lists import same
from equilibrate.optim.arguments import check_layouts, check_observed
from equilibrate.optim.drawing import drawn
from equilibrate.optim.due import Due
from equilibrate.optim.live_loss import LiveLoss, check_loss
from equilibrate.optim.pending import Pending
from equilibrate.optim.sharing import can_share, hand_on
from equilibrate.optim.state import widened


class Hessian(Protocol):
    """What a probe multiplies with.

    `present`: which parameters the loss depends on; `averaged`: H is the mean over the ranks.
    """

    present: list[bool]
    averaged: bool

    def __call__(self, vectors: Sequence[Tensor], wanted: Sequence[int]) -> list[Tensor]:
        """Return the rows of H v at the wanted positions."""
        ...


class Measuring(Due):
    """An optimizer that measures when due: from a live loss, a list of them, or from outside."""

    def probe(self, loss: Tensor, *, backward: bool = False) -> bool:
        """When due, measure the curvature of this live, unscaled loss; else return False at once.

        Call it before `loss.backward()`, for every micro-batch, with the very loss that is then
        backpropagated. It leaves the parameters' `.grad` and torch's random state alone. Among
        several ranks every rank calls it: in the first step they meet here.

        With `backward=True` it also does what `loss.backward()` would do, due or not; do not call
        that as well. Where it measures, the gradient is computed once for both and the graph is
        freed at once, which makes a probe a quarter cheaper; the loss is detached, if no view.

        Example:
            >>> import torch
            >>> from equilibrate import ESGD
            >>> weight = torch.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = ESGD([weight])
            >>> optimizer.probe((weight**3).sum(), backward=True)
            True
            >>> weight.grad
            tensor([ 3., 12.])
        """
        hessian = self._probe(loss, backward)
        if not backward:
            return hessian is not None
        if hessian is not None and hessian.shared:
            hand_on(self._trainable(), hessian.gradients)
            if not loss._is_view():  # torch detaches no view in place
                loss.detach_()
        else:
            torch.autograd.backward(loss)
        return hessian is not None

    def _probe(self, loss: Tensor, share: bool) -> LiveLoss | None:
        """Measure when due, and return the Hessian that was multiplied with."""
        self._require_itself()
        check_loss(loss)
        unmeasured = self._unmeasured(trainable := self._trainable())
        fresh = self._fresh(loss, unmeasured) if unmeasured else []
        due = len(unmeasured) == len(trainable) or bool(fresh)
        due = due or any(map(self._scheduled, self.param_groups))
        beside = self._wanted_beside()
        if not (due or beside):
            self._count_loss(loss)
            return None
        if self._pending.vectors is not None:
            raise ValueError(
                "All products of one step must belong to one vector v, and observe has brought "
                "its own since the last step. Measure a step by probe or by observe, not by both."
            )
        with self._taking_products():
            hessian = LiveLoss(loss, trainable)
            if share and self._ranks() is None and can_share(hessian.leaves, trainable):
                hessian.share(self._products(fresh) + len(beside))
            added = [self._contributions(hessian, asked, each.index) for each, asked in beside]
            if due:
                self._measure(hessian, fresh)
        for (each, _), products in zip(beside, added, strict=True):
            each.add(products)
        self._count_loss(loss)
        self._watch(loss)
        return hessian

    def calibrate(self, losses: Iterable[Tensor], *, release: bool = False) -> int:
        """Measure without stepping: one probe for each loss of an iterable, folded at once.

        Give a generator over the data loader, so that only one graph is alive at a time, and at
        least twenty losses: it takes the place of the warm-up. Returns the number of probes folded;
        products that are not finite are left out.

        `release=True` frees the graph of each loss on the way, as a backward pass would: less
        memory than for a warm-up, and no loss may then come twice or be backpropagated.
        """
        self._require_itself()
        if self._pending or self._warmed:
            raise RuntimeError("calibrate between probe and step would mix two; step first.")
        seen, folded = 0, 0
        for loss in losses:
            seen += 1
            folded += self._calibrate_by(loss, release)
            del loss  # and with it its graph, before the next one is made
        self._agree("the end of calibrate")
        if not seen:
            raise ValueError("calibrate was given no loss. Pass an iterable of live losses.")
        for group in self.param_groups if folded else []:
            group["steps_since_probe"] = 0
        return folded

    def _calibrate_by(self, loss: Tensor, release: bool) -> bool:
        """Fold one product of one loss; nothing of it is left then but the diagonal."""
        self._agree("calibrate")
        parameters = self._trainable()
        found = Pending()
        with self._taking_products():
            hessian = LiveLoss(loss, parameters)
            if release:
                hessian.share(1)
            found.add(parameters, self._contributions(hessian, parameters))
        return self._fold(self._mean_pending(found), parameters)

    def observe(self, vectors: Sequence[Tensor | None], products: Sequence[Tensor | None]) -> None:
        """Add products H v computed elsewhere to the pending product; the next step folds them.

        Both lists follow the order of the parameters; None stands for a parameter left out. v must
        have zero mean and unit variance; several calls before one step (micro-batches) must use
        the same v.
        """
        self._require_itself()
        check_observed(self._all(), vectors, products, self._pending)
        if self._ranks() and not self.probe_due:
            raise RuntimeError(
                "Among several ranks products are averaged on the steps that are due, and this "
                "one is not. Call observe only where optimizer.probe_due is true."
            )
        given = {
            p: self._kind.contribution(v.detach(), product.detach()).clone()
            for p, v, product in zip(self._all(), vectors, products, strict=True)
            if v is not None and product is not None
        }
        self._pending.add(given, given)
        self._pending.vectors = [None if v is None else v.detach() for v in vectors]
        self._pending.versions = [None if v is None else v._version for v in vectors]
        self._note_gradients()

    def _measure(self, hessian: Hessian, fresh: list[Tensor]) -> None:
        """Warm up what is fresh, then add one ordinary product for all that is due."""
        due = [g for g in self.param_groups if self._scheduled(g)]  # before a warm-up
        asked = [p for group in due for p in group["params"] if p.requires_grad]
        counts = self._warm_up_counts(fresh)
        several = {p: count for p, count in counts.items() if count > 1}
        with self._provisionally(counts):
            self._warm_up(hessian, several)
            if 1 in counts.values():
                chosen = {*asked, *(p for p, count in counts.items() if count == 1)}
                asked = [p for p in self._trainable() if p in chosen]
            if asked:
                self._pending.add(asked, self._contributions(hessian, asked))
                self._pending.averaged = hessian.averaged
            for parameter in self._unmeasured() if self._ranks() is None else []:
                if parameter not in self._pending.asked and parameter not in counts:
                    self._allocated(parameter)["absent"] = True

    def _products(self, fresh: list[Tensor]) -> int:
        """Return how many products `_measure` will take of one loss."""
        counts = self._warm_up_counts(fresh).values()
        first = max((count for count in counts if count > 1), default=0)
        last = bool(1 in counts or any(map(self._scheduled, self.param_groups)))
        return first + last

    def _warm_up(self, hessian: Hessian, fresh: dict[Tensor, int]) -> None:
        """Fold several vectors of this one loss into the fresh parameters, each at once."""
        if not fresh:
            return
        first = [g for g in self.param_groups if not any(map(self._measured, g["params"]))]
        for done in range(max(fresh.values())):
            asked = [p for p, count in fresh.items() if count > done]
            index = self.param_groups[0]["probe_index"]
            found = self._contributions(hessian, asked)
            mean = found if hessian.averaged else self._mean(found, asked)
            if self._fold(mean, asked):
                self._remember(index, (p for p in asked if fresh[p] == done + 1), found, mean)
            del found, mean  # before the next product is made
        for group in first:
            group["steps_since_probe"] = 0
        self._warmed += fresh

    def _contributions(
        self, hessian: Hessian, asked: Sequence[Tensor], index: int | None = None
    ) -> dict[Tensor, Tensor]:
        """Return what one vector over all parameters contributes to those asked for and present."""
        vectors, kind, trainable = self._draw(index), self._kind, self._trainable()
        rows: Sequence[int] = range(len(trainable))
        if not same(asked, trainable):
            position = dict(zip(trainable, rows, strict=True))
            rows = [position[p] for p in asked]
        products = hessian(vectors, rows)
        check_layouts(products)
        return {
            p: kind.contribution(vectors[i], widened(product, p.dtype))
            for p, i, product in zip(asked, rows, products, strict=True)
            if hessian.present[i]
        }

    def _draw(self, index: int | None = None) -> list[Tensor]:
        """Draw this probe's vector over all trainable parameters; a frozen one keeps its number."""
        vectors, first = list[Tensor](), 0
        for group in self.param_groups:
            numbered = [(i, p) for i, p in enumerate(group["params"], first) if p.requires_grad]
            probe = group["probe_index"] if index is None else index
            vectors += drawn(group | {"probe_index": probe}, numbered)
            first += len(group["params"])
        return vectors
