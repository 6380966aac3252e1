"""Many runs of one auto-encoder at once: every parameter has a leading dimension of trials.

The arithmetic is the library's: `draw_elements` draws each trial's own vectors, `LossHessian` of
the summed losses is block-diagonal over trials, `diagonals` fold with one weight per trial.
`tests/test_benchmarks.py` holds a stack equal to the optimizers themselves.
"""

from typing import Any

import torch
from torch import Tensor, nn

from equilibrate.curvature import LossHessian, draw_elements
from equilibrate.diagonals import equilibration, jacobi
from equilibrate.study.autoencoder import cross_entropy, squared_error

KINDS = {"ESGD": equilibration, "OneDamping": equilibration, "JacobiSGD": jacobi}
PROBE_EVERY = 20


class Stack:
    """Trials of one method; `settings` has one dictionary of hyper-parameters per trial."""

    def __init__(
        self, method: str, settings: list[dict[str, Any]], models: list[nn.Module]
    ) -> None:
        self.method, self.settings, self.model = method, settings, models[0]
        names = [name for name, _ in models[0].named_parameters()]
        self.parameters = {
            name: torch.stack([m.get_parameter(name).detach() for m in models]).requires_grad_()
            for name in names
        }
        device, dtype = self.values[0].device, self.values[0].dtype
        self.lr = torch.tensor([s["lr"] for s in settings], device=device, dtype=dtype)
        self.damping = torch.tensor(
            [s.get("damping", 0.0) for s in settings], device=device, dtype=dtype
        )
        self.decay = torch.tensor(
            [s.get("decay") or 1.0 for s in settings], device=device, dtype=torch.float64
        )
        self.warmup = torch.tensor([s.get("warmup_probes", 1) for s in settings], device=device)
        self.diagonals = [torch.zeros_like(p) for p in self.values]
        self.weight = torch.zeros(len(settings), device=device, dtype=torch.float64)
        self.scales = [torch.zeros_like(self.lr) for _ in names]
        self.probes = torch.zeros(len(settings), device=device, dtype=torch.int64)
        self.steps = 0

    @property
    def values(self) -> list[Tensor]:
        return list(self.parameters.values())

    def step(self, batches: Tensor) -> Tensor:
        """Take one step on batches (trials, cases, pixels); return each trial's squared error."""

        def forward(parameters: dict[str, Tensor], batch: Tensor) -> tuple[Tensor, Tensor]:
            logits = torch.func.functional_call(self.model, parameters, batch)
            return cross_entropy(logits, batch), squared_error(logits.detach(), batch)

        losses, errors = torch.vmap(forward)(self.parameters, batches)
        total = losses.sum()
        if self.method in KINDS:
            self._probe_when_due(total)
        gradients = torch.autograd.grad(total, self.values)
        with torch.no_grad():
            self._move(list(gradients))
        self.steps += 1
        return errors.detach()

    def _probe_when_due(self, total: Tensor) -> None:
        if self.steps == 0:
            hessian = LossHessian(total, self.values)
            for done in range(int(self.warmup.max())):
                self._fold(hessian, self.warmup > done, steps=0)
        elif self.steps % PROBE_EVERY == 0:
            everyone = torch.ones_like(self.warmup, dtype=torch.bool)
            self._fold(LossHessian(total, self.values), everyone, steps=PROBE_EVERY)

    @torch.no_grad()
    def _fold(self, hessian: LossHessian, chosen: Tensor, steps: int) -> None:
        vectors = [self._draw(number, p) for number, p in enumerate(self.values)]
        products = hessian(vectors)
        kind = KINDS[self.method]
        weight = self.weight * self.decay**steps + 1
        for d, v, hv in zip(self.diagonals, vectors, products, strict=True):
            folded = d.clone()
            kind.fold_(folded, kind.contribution(v, hv), _wide(weight, d).to(d.dtype))
            d.copy_(torch.where(_wide(chosen, d), folded, d))
        self.weight = torch.where(chosen, weight, self.weight)
        self.probes += chosen
        for scale, d in zip(self.scales, self.diagonals, strict=True):
            positive = kind.magnitude(d).flatten(1)
            scale.copy_(positive.sum(1) / positive.count_nonzero(1).clamp(min=1))

    def _draw(self, number: int, p: Tensor) -> Tensor:
        """Draw every trial's vector from its own distribution at its own number of probes."""
        count, drawn = p[0].numel(), torch.empty_like(p).flatten(1)
        kinds = [s.get("distribution", "rademacher") for s in self.settings]
        for distribution in set(kinds):
            rows = [trial for trial, kind in enumerate(kinds) if kind == distribution]
            drawn[rows] = draw_elements(
                distribution, 0, count, seed=0, probe=self.probes[rows], parameter=number,
                device=p.device,
            ).to(p.dtype)  # fmt: skip
        return drawn.view(p.shape)

    def _move(self, gradients: list[Tensor]) -> None:
        for i, (p, g) in enumerate(zip(self.values, gradients, strict=True)):
            lr = _wide(self.lr, p)
            if self.method == "SGD":
                p.sub_(lr * g)
            elif self.method == "RMSprop":
                alpha = self.settings[0]["alpha"]
                self.diagonals[i].mul_(alpha).addcmul_(g, g, value=1 - alpha)
                p.sub_(lr * g / (self.diagonals[i].sqrt() + 1e-8))
            else:
                p.sub_(lr * g / self._denominator(i))

    def _denominator(self, i: int) -> Tensor:
        d = KINDS[self.method].magnitude(self.diagonals[i])
        scale = self.scales[i]
        if self.method == "OneDamping":
            counts = [x[0].numel() for x in self.diagonals]
            scale = sum(s * c for s, c in zip(self.scales, counts, strict=True)) / sum(counts)
        fill = torch.where(d == 0, _wide(self.scales[i], d), d)
        return fill + _wide(self.damping * scale, d)


def _wide(per_trial: Tensor, like: Tensor) -> Tensor:
    """Give a tensor of one number per trial the trailing dimensions to broadcast."""
    return per_trial.view(-1, *[1] * (like.dim() - 1))
