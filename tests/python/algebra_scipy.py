"""The part of the table of `algebra` for `ferrax.scipy`, `ferrax.image` and `ferrax.ops`."""

TABLE = {}
OUT = {}

TABLE["ferrax.scipy.special"] = """
~bessel_jn(p, v=3, n_iter=20); beta(p, q); betainc(1.5, 0.7, p); ~betainc(p + 0.5, q + 0.5, p); betaln(p, q); boxcox(p, y); boxcox1p(p, y); comb(5 + p, 2 + q); dawsn(x)
digamma(p); entr(p); erf(x); erfc(x); erfcx(x); erfinv(x); erfcinv(p * 0.5); exp1(p); expi(p); expit(x); ~expn(i + 2, p); factorial(p); fresnel(x); gamma(p); gammainc(p + 0.5, q)
gammaincc(p + 0.5, q); gammaln(p); gammasgn(x); hyp1f1(p, q + 1, x); hyp2f1(p, q, 1 + q, x / 2); i0(x); i0e(x); i1(x); i1e(x); kl_div(p, q)
log_ndtr(x); log_softmax(x); loggamma(1 + p); logit(p); logsumexp(x, axis=1); multigammaln(3 + p, 2); ndtr(x); ndtri(p); owens_t(x, y); poch(1 + p, q)
polygamma(2, p + 0.5); rel_entr(p, q); sici(p); softmax(x); spence(p); ~sph_harm_y(full_like(l, 2), full_like(l, 1), u, u, n_max=4); wofz(g)
xlog1py(x, p); xlogy(x, p); zeta(p + 1.5, q)
"""
OUT["ferrax.scipy.special"] = """
No array is an argument: bernoulli
"""

TABLE["ferrax.scipy.linalg"] = """
block_diag(x, m); cho_factor(s + s.T)[0]; cho_solve((jnp.linalg.cholesky(s), True), v); cholesky(s + s.T); circulant(v); companion(1 + p[0]); convolution_matrix(v, 3); det(m)
eigh(s, eigvals_only=True); ~eigh_tridiagonal(v, w[1:], eigvals_only=True); expm(m / 4); expm_frechet(m / 4, n / 4); fiedler(v); fiedler_companion(1 + p[0])
hankel(v, w); ~hessenberg(m); inv(m); leslie(u, u[1:]); lu(m)[1]; lu_factor(m)[0]
lu_solve((m, zeros_like(l)), v); polar(m); qr(m); ~qr_multiply(m, v); ~rsf2csf(jnp.triu(m), jnp.eye(m.shape[0])); ~schur(m); solve(m, v); ~solve_sylvester(m, n, s)
solve_triangular(m, v, lower=True); ~sqrtm(s); svd(m, compute_uv=False); toeplitz(v, w); ~funm(s, jnp.sin, disp=False)
"""
OUT["ferrax.scipy.linalg"] = "No array is an argument: dft hadamard helmert hilbert invhilbert invpascal pascal"

TABLE["ferrax.scipy.signal"] = """
convolve(v, w); convolve(x, y, mode="same"); convolve2d(x, y); correlate(v, w); correlate2d(x, y); csd(L, L * L, nperseg=4); detrend(x); detrend(v, type="constant")
fftconvolve(v, w); istft(stft(L, nperseg=4)[2], nperseg=4)[1]; stft(L, nperseg=4)[2]; welch(L, nperseg=4)[1]
"""
OUT["ferrax.scipy.signal"] = ""
TABLE["ferrax.scipy.fft"] = "dct(x); dct(v, norm='ortho'); dctn(x); idct(x); idctn(x)"
OUT["ferrax.scipy.fft"] = ""
TABLE["ferrax.scipy.integrate"] = "trapezoid(x); trapezoid(v, w)"
OUT["ferrax.scipy.integrate"] = ""
TABLE["ferrax.scipy.ndimage"] = "map_coordinates(x, [p[0], q[0]], order=1); ~map_coordinates(x, [p, q], order=0)"
OUT["ferrax.scipy.ndimage"] = ""
TABLE["ferrax.scipy.cluster.vq"] = "vq(x, y)"
OUT["ferrax.scipy.cluster.vq"] = ""
TABLE["ferrax.scipy.sparse.linalg"] = """
~bicgstab(s, v, tol=1e-12)[0]; cg(s, v, tol=1e-12)[0]; gmres(s, v, tol=1e-12)[0]
"""
OUT["ferrax.scipy.sparse.linalg"] = ""
TABLE["ferrax.scipy.interpolate"] = "RegularGridInterpolator((jnp.arange(3.0), jnp.arange(4.0)), P)(jnp.stack([p[0], q[0]], -1))"
OUT["ferrax.scipy.interpolate"] = ""
TABLE["ferrax.scipy.optimize"] = "~minimize(lambda t: ((t - v) ** 2).sum() + (t**4).sum(), w, method='BFGS').x"
OUT["ferrax.scipy.optimize"] = ""
TABLE["ferrax.scipy.stats"] = "~mode(i, axis=1); ~rankdata(x, axis=1); sem(x, axis=1)"
OUT["ferrax.scipy.stats"] = ""
TABLE["ferrax.image"] = 'resize(x, (4, 5), "linear"); resize(x, (3, 3), "cubic"); scale_and_translate(x, (3, 4), (0, 1), array2(1 + a, 1.3), array2(0.1, a), "linear")'
OUT["ferrax.image"] = ""
TABLE["ferrax.ops"] = """
segment_max(v, jnp.arange(v.size) % 2, 2); segment_min(v, jnp.arange(v.size) % 2, 2); ~segment_prod(v, l % 2, 2); segment_sum(v, l % 2, 2)
~segment_max(v, l % 2, 2)
"""
OUT["ferrax.ops"] = ""

# Each distribution: what its functions take before the place, and what is a place.
DISTRIBUTIONS = {
    "bernoulli": ("i % 2", "p"), "beta": ("p", "1.5, 2.5"), "betabinom": ("i", "6, 1 + q, 2 + p"), "binom": ("i", "6, p"), "cauchy": ("x", "y, p"),
    "chi2": ("p", "3 + q"), "dirichlet": ("softmax(v)", "1 + u"), "expon": ("p", "0.0, 1 + q"), "gamma": ("p", "1 + q"), "gennorm": ("x", "1.5 + q"),
    "geom": ("i + 1", "p"), "gumbel_l": ("x", "y, p"), "gumbel_r": ("x", "y, p"), "laplace": ("x", "y, p"), "logistic": ("x", "y, p"),
    "multinomial": ("l % 2, (l % 2).sum()", "softmax(w)"), "multivariate_normal": ("v", "w, s"), "nbinom": ("i", "4, p"), "norm": ("x", "y, p"),
    "pareto": ("2 + p", "1 + q"), "poisson": ("i", "2 + p"), "t": ("x", "3 + p"), "truncnorm": ("x / 2", "-1 - p, 1 + q"), "uniform": ("x / 2", "-1 - p, 3.0"),
    "vonmises": ("x", "p"), "wrapcauchy": ("3 + x", "p"),
}  # fmt: skip
PLACES = {"pdf": "{0}", "pmf": "{0}", "logpdf": "{0}", "logpmf": "{0}", "cdf": "{0}", "logcdf": "{0}", "sf": "{0}", "logsf": "{0}", "ppf": "p", "isf": "p"}
