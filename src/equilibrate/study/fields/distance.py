"""The signed distance to a random star: the shortest way to its outline, negative inside.

Exact: the distance to a polygon is the least one to its edges, and the sign is whether a ray to the
right crosses the outline an odd number of times.
"""

import math

import torch
from torch import Tensor

_CORNERS = 24
_CASES_AT_ONCE = 8192


def outline(instance: int = 0) -> Tensor:
    """Return the corners of a star around the origin, [24, 2], alternately near and far.

    Example:
        >>> outline(1).shape
        torch.Size([24, 2])
    """
    generator = torch.Generator().manual_seed(instance)
    angles = (torch.arange(_CORNERS) + 0.6 * torch.rand(_CORNERS, generator=generator)) / _CORNERS
    radii = 0.25 + 0.2 * torch.rand(_CORNERS, generator=generator)
    radii[::2] += 0.3
    angles = 2 * math.pi * angles
    return torch.stack([radii * angles.cos(), radii * angles.sin()], 1)


def signed_distance(places: Tensor, corners: Tensor) -> Tensor:
    """Return the signed distance from places [n, 2] to a polygon's outline, [n, 1].

    Example:
        >>> square = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> signed_distance(torch.tensor([[0.0, 0.0], [3.0, 0.0]]), square)
        tensor([[-1.],
                [ 2.]])
    """
    pieces = [_signed_distance(part, corners) for part in torch.split(places, _CASES_AT_ONCE)]
    return torch.cat(pieces).unsqueeze(1)


def _signed_distance(places: Tensor, corners: Tensor) -> Tensor:
    edges = corners.roll(-1, 0) - corners
    offsets = places.unsqueeze(1) - corners  # [places, edges, 2]
    along = ((offsets * edges).sum(2) / edges.square().sum(1)).clamp(0, 1)
    nearest = (offsets - along.unsqueeze(2) * edges).norm(dim=2).amin(1)
    below, above = offsets[..., 1] >= 0, offsets[..., 1] < edges[:, 1]
    straddles = below == above
    left_of = edges[:, 0] * offsets[..., 1] > offsets[..., 0] * edges[:, 1]
    crosses = straddles & (left_of == (edges[:, 1] > 0))
    return torch.where(crosses.sum(1) % 2 == 1, -nearest, nearest)
