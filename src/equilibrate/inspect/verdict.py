"""Whether equilibration helps at these weights: condition numbers before and after, in a sentence.

The condition number here is the largest |eigenvalue| over their mean. The largest sets the rate at
which descent is stable, the mean how far a step at that rate carries the average direction: three
times as far where the condition number is divided by three. Products resolve it, which they do not
with a median (`monitor.spectrum`): most directions of a large network are hardly curved, and nobody
knows how little.
"""

import math
import statistics
from dataclasses import replace

import torch

from equilibrate.inspect.findings import Findings
from equilibrate.inspect.numbers import in_words, short
from equilibrate.monitor.interval import Interval
from equilibrate.monitor.lanczos import Ritz
from equilibrate.monitor.spectrum import Spectrum
from equilibrate.monitor.units import unit_of

_DEVIATIONS = 3.0
_STANDARD_ERRORS = 4.0
_LITTLE = 1.1  # a factor below which nobody would see a difference in training
_HUGE = 1e6  # over the largest eigenvalue: beyond it a coefficient's own node weighs 1e-12

_WHAT = "the condition number of this batch's Hessian (its largest |curvature| over the mean)"


def verdict(found: Findings) -> str:
    """Return in a sentence whether equilibration helps, by how much, and how sure that is."""
    by = gain(found, "equilibration")
    before, after = (condition(found.spectra[name]).value for name in ("none", "equilibration"))
    way = f"from {short(before)} to {short(after)}"
    if by.low > 1 / _LITTLE and by.high < _LITTLE:
        return (
            f"No, there is practically nothing to gain here: equilibration divides {_WHAT} by "
            f"{in_words(by)}, {way}."
        )
    if by.low > 1:
        helps = f"Yes, equilibration helps here{_beside_adam(found)}"
        return f"{helps}: it divides {_WHAT} by {in_words(by)}, {way}."
    if by.high < 1:
        worse = in_words(_inverse(by))
        return f"No, equilibration does not help here: it multiplies {_WHAT} by {worse}, {way}."
    narrower = f"; {found.full} it is narrower" if found.quick else ""
    return (
        f"No help of equilibration is seen here: it divides {_WHAT} by {in_words(by)}, {way}, and "
        f"that interval holds 1{narrower}."
    )


def _beside_adam(found: Findings) -> str:
    """Return where a gain is none over Adam's divisor: that belongs into the same sentence."""
    more = after(found, "gradient") / after(found, "equilibration")
    if more.high < 1:
        return ", but less than Adam's divisor does"
    if more.low > 1 and more.high > _LITTLE:
        return ""
    return ", but is not seen to do more than Adam's divisor does"


def beside(found: Findings) -> str:
    """Return what belongs to the verdict: Adam's divisor, and what curvature does not tell."""
    by = gain(found, "gradient")
    if by.high < 1:
        does = f"multiplies it by {in_words(_inverse(by))}"
    else:
        does = f"divides it by {in_words(by)}"
    return (
        f"The squared gradient, Adam's divisor, {does}. This is curvature at these weights, not "
        f"training: what it comes to in updates and in time, equilibrate compare measures."
    )


def gain(found: Findings, preconditioner: str) -> Interval:
    """Return what a preconditioner divides the condition number by; below 1 it makes it worse."""
    return condition(found.spectra["none"]) / after(found, preconditioner)


def after(found: Findings, preconditioner: str) -> Interval:
    """Return the condition number after preconditioning, as the exact diagonal would leave it.

    Equilibration's is of a number of probes, whose chance moves the condition number, mostly up: by
    how much is seen where D is made of a part of them alone. Of k parts the mean logarithm is as
    far off as that of all times k, which gives the bias; their scatter over sqrt(k) is the standard
    error. With the three degrees of freedom of four parts, one time in 36 is beyond four of them.
    """
    seen = condition(found.spectra[preconditioner])
    if preconditioner != "equilibration" or len(found.parts) < 2:
        return seen
    whole, *parts = (math.log(condition(part).value) for part in found.parts)
    bias = (statistics.mean(parts) - whole) / (len(parts) - 1)
    chance = _STANDARD_ERRORS * statistics.stdev(parts) / math.sqrt(len(parts))
    low, high = min(0.0, -bias) - chance, max(0.0, -bias) + chance
    return Interval(seen.value, seen.low * math.exp(low), seen.high * math.exp(high))


def _inverse(interval: Interval) -> Interval:
    return Interval(1.0, 1.0, 1.0) / interval


def condition(spectrum: Spectrum) -> Interval:
    """Return the largest |eigenvalue| over the mean |eigenvalue|.

    Example:
        >>> from equilibrate.monitor.spectrum import spectrum
        >>> found = spectrum(lambda v: [v[0] * torch.tensor([1.0, -2.0, 9.0])], [torch.zeros(3)])
        >>> str(condition(found))
        '2.25 [2.25, 2.25]'
    """
    spectrum = _in_units(spectrum)
    return spectrum.radius / mean_size(spectrum)


def _in_units(spectrum: Spectrum) -> Spectrum:
    """Return the spectrum of the Hessian over a power of four, whose squares are numbers."""
    unit = unit_of([ritz.nodes for ritz in spectrum.ritz]) or 1.0
    scaled = (
        replace(r, nodes=r.nodes / unit, matrix=None if r.matrix is None else r.matrix / unit)
        for r in spectrum.ritz
    )
    return replace(spectrum, ritz=tuple(scaled))


def mean_size(spectrum: Spectrum) -> Interval:
    """Return the mean |eigenvalue|, within three deviations of chance and what products miss.

    A start vector's mean q^T |A| q of a normal q has the variance 2 mean(lambda^2) / N at most,
    and a mean square of at least radius^2 / N. What the quadrature finds of it is never too much
    (`pinned`), and each doubling of the products adds less: the last addition stands for what is
    still missing.
    """
    if spectrum.complete:
        value = float(spectrum.ritz[0].nodes.abs().mean())
        return Interval(value, value, value)
    starts, least = len(spectrum.ritz), spectrum.radius.value / spectrum.size
    value = max(least, sum(map(pinned, spectrum.ritz)) / starts)
    missed = value - sum(pinned(ritz, share=0.5) for ritz in spectrum.ritz) / starts
    squares = [float(ritz.weights @ ritz.nodes.square()) for ritz in spectrum.ritz]
    square = max(sum(squares) / starts, spectrum.radius.value * least)
    chance = _DEVIATIONS * math.sqrt(2 * square / spectrum.size / starts)
    return Interval(value, max(least, value - chance), value + chance + max(0.0, missed))


def pinned(ritz: Ritz, share: float = 1.0) -> float:
    """Return a lower bound of q^T |A| q from a share of the products, by a rule with a node at 0.

    Gauss's rule may have its nodes beside the crowd of eigenvalues near zero and take all of them
    for larger. Radau's rule, which has a node at zero, cannot: of m nodes it is exact for
    polynomials up to degree 2 m - 2, and the one that meets |x| at zero and touches it at the
    other nodes lies nowhere above it, for its second derivative has no zeros left to cross with.

    Rounding does not take that away: what a recursion gives whose vectors are not orthogonal any
    more is what an exact one gives of a matrix with clusters in the place of eigenvalues (Greenbaum
    1989). So the rule is made of the recursion's own coefficients.
    """
    if ritz.exact or ritz.matrix is None:
        return float(ritz.weights @ ritz.nodes.abs())
    size = max(2, round(share * len(ritz.nodes)))
    small = ritz.matrix[:size, :size].clone()
    # The last coefficient that makes zero an eigenvalue (Golub 1973).
    unit = torch.zeros(len(small) - 1, dtype=small.dtype)
    unit[-1] = small[-1, -2].square()
    solved, singular = torch.linalg.solve_ex(small[:-1, :-1], unit)
    last = math.inf if int(singular) else float(solved[-1])
    if abs(last) > _HUGE * float(ritz.nodes.abs().max()):  # zero is a node already, without it
        small = small[:-1, :-1]
    else:
        small[-1, -1] = last
    nodes, vectors = torch.linalg.eigh(small)
    return float(vectors[0].square() @ nodes.abs())
