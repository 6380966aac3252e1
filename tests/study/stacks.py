"""Small problems, trials and comparisons that the tests of stacks share."""

import torch
from torch import nn

from equilibrate.study.alone import Alone
from equilibrate.study.autoencoder import autoencoder, cross_entropy, squared_error
from equilibrate.study.methods import METHODS
from equilibrate.study.problem import Problem
from equilibrate.study.stack import Stack
from equilibrate.study.trial import Trial

CPU = torch.device("cpu")


def dense(sizes=(30, 20, 5, 20, 30), cases=64, batch_size=8):
    """An auto-encoder: the dense fast path."""
    images = torch.rand(cases, sizes[0], generator=torch.Generator().manual_seed(0))
    return Problem(
        "small",
        lambda seed: autoencoder(sizes, seed=seed),
        lambda: (images, images),
        cross_entropy,
        squared_error,
        batch_size,
    )


def convolution():
    """A network that runs under vmap: convolutions, a normalisation without buffers, classes."""

    def data():
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(40, 1, 6, 6, generator=generator)
        return inputs, torch.randint(3, (40,), generator=generator)

    def model(seed):
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), nn.Flatten(), nn.Linear(64, 3)
        )

    return Problem("convolution", model, data, nn.functional.cross_entropy, None, 8)


def regression():
    """A network without saturation: too large a step leaves the numbers for good."""

    def data():
        inputs = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
        return inputs, inputs.square().sum(1, keepdim=True)

    def model(seed):
        return nn.Sequential(nn.Linear(5, 8), nn.Softplus(), nn.Linear(8, 1))

    return Problem("regression", model, data, nn.functional.mse_loss, None, 8)


class _Power(nn.Module):
    def forward(self, x):
        return x.abs().pow(1.5)


def without_curvature(seed_that_fails):
    """Regression by |w x|^1.5: where w = 0, loss and gradient are finite and the Hessian is not."""
    whole = regression()

    def model(seed):
        network = nn.Sequential(nn.Linear(5, 1), _Power())
        if seed == seed_that_fails:
            nn.init.zeros_(network[0].weight)
            nn.init.zeros_(network[0].bias)
        return network

    return Problem("power", model, whole.data, whole.loss, None, 8)


def trials(method, settings, precision="float64", epochs=10, batch_size=8):
    """One trial for each mapping of settings, each with a seed of its own."""
    return [
        Trial("small", "f", method, each, seed, batch_size, epochs, precision)
        for seed, each in enumerate(settings)
    ]


def stack_of(problem, listed):
    return Stack(problem, METHODS, listed, CPU)


def alone_of(problem, trial):
    return Alone(problem, METHODS[trial.method], [trial], CPU)


def row_of(stack, row):
    """The parameters of one trial in a stack, as one vector."""
    return torch.cat([p[row].detach().flatten() for p in stack.parameters.values()])


def vector_of(alone):
    return torch.cat([p.detach().flatten() for p in alone.network.parameters()])


def parted(one, other):
    """The relative norm of a difference."""
    return float((one - other).norm() / other.norm())


def transplanted(stack, row, alone):
    """Give a trainer of one trial the state of that trial in a stack of one curvature method."""
    optimizer, network = stack.optimizer, alone.network.state_dict()
    saved = alone.optimizer.state_dict()
    if stack.updates:
        places = range(len(stack.parameters))
        saved["state"] = {i: _state(optimizer, row, i, stack.updates) for i in places}
        every = optimizer.switches["probe_every"]
        seen, scale = optimizer.seen[row], optimizer.scale[row]
        saved["param_groups"][0] |= {
            "probe_index": int(optimizer.drawn[row]),
            "steps_since_probe": (stack.updates - 1) % every + 1,
            "mean_scale": float((seen * scale).sum() / seen.sum()),
            "update_mean": float(optimizer.update_mean[row]),
            "update_count": int(optimizer.update_count[row]),
        }
    alone.load_state_dict(
        {
            "updates": stack.updates,
            "failed": False,
            "random": torch.get_rng_state(),
            "network": {name: stack.parameters[name][row].detach() for name in network},
            "optimizer": saved,
        }
    )
    return alone


def _state(optimizer, row, place, updates):
    """What `optim.state` keeps of one parameter, from what a stack keeps of one trial."""
    every = optimizer.switches["probe_every"]
    diagonal = optimizer.state["diagonal"][place][row]
    kept = {
        "step": torch.tensor(float(optimizer.step[row])),
        "diagonal": diagonal.clone(),
        "probes": int(optimizer.drawn[row]),
        "weight": float(optimizer.weight[row]),
        "probed_at": (updates - 1) // every * every,
        "scale": float(optimizer.scale[row, place]),
        "unseen": diagonal.numel() - int(optimizer.seen[row, place]),
        "absent": False,
    }
    if "momentum_buffer" in optimizer.state:
        kept["momentum_buffer"] = optimizer.state["momentum_buffer"][place][row].clone()
    return kept
