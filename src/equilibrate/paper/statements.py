"""Every checkable sentence of the paper, in our words, with the right version where it slips.

Ids are stable. `correction` is empty where the sentence is right as it stands. Theory rows are held
by tests on matrices whose names start with test_t01_ to test_t24_; study rows by records.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """One sentence of the paper; `correction` is the right statement where it slips."""

    claim: str
    says: str
    correction: str = ""
    ours: str = ""  # of theory rows: what the tests hold

    @property
    def theory(self) -> bool:
        """Return whether tests on matrices hold it, rather than records."""
        return self.claim.startswith("T")


_AS_SAID = "holds on every matrix tested"

STATEMENTS: tuple[Statement, ...] = (
    Statement("T1", "Eq. 1-4: a gradient step on the transformed function is a D^-1 step on f", "",
              "equal step by step"),
    Statement("T2", "The condition number is defined for definite and indefinite matrices", "",
              "ratio of extreme singular values"),
    Statement("T3", "Newton's step on an indefinite Hessian moves toward the saddle", "",
              "shown on Figure 1's function"),
    Statement("T4", "Prop. 1: |H|^-1 is the only s.p.d. preconditioner with condition number 1",
              "Up to scale, and false for indefinite H in the symmetric form: for H = diag(1, -1) "
              "every D^-1 = [[cosh t, sinh t], [sinh t, cosh t]] gives 1. True for D^-1 H, and in "
              "the symmetric form when H is definite or D commutes with H",
              "counterexample and both true versions tested"),
    Statement("T5", "Section 3: AdaGrad's D = (sum g^2)^(-1/2)",
              "That is the inverse; D = (sum g^2)^(+1/2)", "agrees with torch's AdaGrad"),
    Statement("T6", "Gauss-Newton approximates the Hessian under certain conditions", "",
              "equal where the residual term vanishes; distance measured elsewhere"),
    Statement("T7", "Row scaling reduces round-off in elimination", "",
              "float32 solves before and after"),
    Statement("T8", "Prop. 2: spectra of D^-1 H, H D^-1 and D^-1/2 H D^-1/2 agree", "", _AS_SAID),
    Statement("T9", "So the transformed Hessian's condition number is reduced by the same amount",
              "Only eigenvalues agree; kappa(D^-1/2 H D^-1/2) <= kappa(D^-1 H)", _AS_SAID),
    Statement("T10", "van der Sluis: row equilibration is within sqrt(N) of the best diagonal",
              "One-sided: kappa(D_E^-1 H) <= sqrt(N) min_D kappa(D H)", _AS_SAID),
    Statement("T11", "Guggenheimer: kappa < (2/|det H|) (|H|_F / sqrt N)^N", "", _AS_SAID),
    Statement("T12", "Prop. 4: equilibration improves that bound by det(D_E)(|H|_F/sqrt N)^N",
              "The factor is (|H|_F/sqrt N)^N / det(D_E) >= 1; the symmetric form gains at least "
              "as much", _AS_SAID),
    Statement("T13", "The bound is tight when all singular values but the smallest are equal", "",
              "measured"),
    Statement("T14", "The bound falls more the more row norms vary; also for columns and both", "",
              "measured"),
    Statement("T15", "For Jacobi no such improvement can be proved",
              "Jacobi worsens the bound on random indefinite matrices; in the symmetric form it "
              "can improve it more than equilibration on badly scaled ones, one-sided it cannot: "
              "there D_E minimises the bound over all diagonals", "all shown"),
    Statement("T16", "E[(Hv)^2] is the squared row norm, for any v of zero mean, unit variance",
              "Its entries must be uncorrelated too: E[v v'] = I",
              "unbiased within the interval, three distributions"),
    Statement("T17", "(not in the paper) Over random batches E[(Hv)^2] = |E H_i|^2 + sum_j Var "
              "H_ij: the online diagonal depends on the batch size, Jacobi's does not", "",
              "measured within its interval"),
    Statement("T18", "D_E is the Jacobi preconditioner of |H|; D_E <= |H|^-1_ii (Jensen)",
              "Up to the order of root and diagonal: 1/|H_i| <= 1/|H|_ii <= (|H|^-1)_ii", _AS_SAID),
    Statement("T19", "Rayleigh quotient R(H, v) = sum lambda_j q_j q_j' v",
              "sum lambda_j (q_j' v)^2 / v'v", _AS_SAID),
    Statement("T20", "Mixed curvature cancels in Jacobi, which diverges; equilibration never does",
              "The spectral radius of D_E^-1 H is at most sqrt(N), so that a learning rate below "
              "2/sqrt(N) is safe; Jacobi's is unbounded when indefinite",
              "divergence example and bound tested"),
    Statement("T21", "diag H = E[v * Hv] for signs; variance sum_j H_ji^2 - H_ii^2", "",
              "within its interval"),
    Statement("T22", "The estimator of Martens 2012 has variance H_ii^2; which is better depends",
              "With normal noise its variance is 2 P^2 + 2 Q^2 where H_ii = P - Q, P and Q >= 0: "
              "at least 2 H_ii^2; which is better does depend",
              "both variances measured on small networks"),
    Statement("T23", "A product with the Hessian costs about two gradients",
              "Two besides the gradient that it differentiates: three from scratch, less than two "
              "more where the gradient is shared",
              "counted in multiplications, two networks"),
    Statement("T24", "(not in the paper) Row norms repair half of a bad parameter scaling, "
              "row-column equilibration all of it", "", "medians measured on 20 x 20 matrices"),
    Statement("S1", "Figure 1: descent escapes the saddle slowly before, fast after"),
    Statement("S2", "Figure 2: Jacobi and equilibration closely matched in the convex case"),
    Statement("S3", "Figure 2: equilibration significantly better than Jacobi, non-convex"),
    Statement("S4", "Figure 2: the Gauss-Newton diagonal does poorly"),
    Statement("S5", "The Hessian is indefinite along training"),
    Statement("S6", "MNIST: ESGD significantly outperforms RMSProp and Jacobi SGD"),
    Statement("S7", "MNIST: the difference is most notable after 250 epochs"),
    Statement("S8", "MNIST: ESGD reaches 0.86"),
    Statement("S9", "Every adaptive method improves on 2.1 (SGD)"),
    Statement("S10", "ESGD converges about three times faster than SGD"),
    Statement("S11", "CURVES: ESGD is best, by a smaller margin"),
    Statement("S12", "The margin is small because the preconditioners coincide there"),
    Statement("S13", "Damping 1e-4 is robust over the tasks"),
    Statement("S14", "One product in 20 steps brings the cost very close to SGD"),
    Statement("S15", "The iterative row-column method does not work very well online"),
    Statement("S16", "RMSProp does not mix well with momentum"),
    Statement("S17", "With momentum the results reach the state of the art"),
    Statement("S18", "Figure 4, CURVES: RMSProp near 0.05 from equilibration, 0.2 from Jacobi"),
    Statement("S19", "Figure 4, MNIST: RMSProp near |diag H| early, then diverges"),
    Statement("S20", "Figure 4, MNIST: after 1000 epochs that distance exceeds "
              "Jacobi-equilibration"),
    Statement("S21", "RMSProp's drift coincides in time with ESGD's lead"),
    Statement("S22", "RMSProp's update direction is very similar to the equilibrated one"),
    Statement("S23", "Cosine distance between preconditioners should not exceed one",
              "Vacuous: positive vectors lie in [0, 1]"),
    Statement("S24", "ESGD as good as or better than RMSProp, always clearly better than SGD"),
    Statement("S25", "Sampled learning-rate ranges contain each method's best"),
    Statement("S26", "The success of Jacobi is not limited by estimator noise (implicit)"),
)  # fmt: skip
