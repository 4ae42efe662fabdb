"""The part of the table of `algebra` for `ferrax.numpy`: how each function is called. `algebra.py` says with what."""

TABLE = {}

TABLE["ferrax.numpy"] = """
abs(x); absolute(x); acos(x); acosh(1 + p); add(x, y); all(b, axis=0); allclose(x, y); amax(x, axis=1); amin(x, axis=0)
angle(x + 1j * y); any(b, axis=1); append(x, y, axis=0); append(v, w); apply_along_axis(lambda t: t * t.sum(), 1, x)
apply_over_axes(sum, x, [0, 1]); arccos(x); arccosh(1 + p); arcsin(x); arcsinh(x); arctan(x); arctan2(x, p); arctanh(x)
argmax(x, axis=1); argmin(x); ~argpartition(v, 1); argsort(x, axis=-1); argwhere(b, size=3); around(x, 1); array(x)
array([v, w]); array_equal(x, x); array_equiv(x, v); array_split(v, 2); asarray(x); asin(x); asinh(x); ~astype(x, "float32")
atan(x); atan2(x, p); atanh(x); atleast_1d(a); atleast_2d(v); atleast_3d(x); average(x, axis=1, weights=v); average(x)
bincount(l, weights=v, length=5); bitwise_and(i, j); bitwise_count(i); bitwise_invert(i); bitwise_left_shift(i, j)
bitwise_not(i); bitwise_or(i, j); bitwise_right_shift(i, j); bitwise_xor(i, j); block([[x, y], [y, x]])
broadcast_arrays(x, v); broadcast_to(v, (3, *v.shape)); cbrt(p); ceil(x); choose(i, [x, y], mode="wrap"); clip(x, -0.5, 0.5)
clip(x, y, y + p); column_stack([v, w]); compress(array([True, False]), x, axis=1); concat([x, y], axis=1)
concatenate([x, y]); conj(x + 1j * y); conjugate(g); convolve(v, w); convolve(v, w, mode="same"); copy(x); copysign(x, y)
corrcoef(X[0], X[1]); correlate(v, w); cos(x); cosh(x); count_nonzero(b, axis=0); cov(X[0], X[1]); cov(v, w); cross(d, e)
cumprod(x, axis=1); cumsum(x, axis=0); cumsum(x); cumulative_prod(v); cumulative_sum(x, axis=1, include_initial=True)
deg2rad(x); degrees(x); delete(v, 1); diag(v); diag(m); diag_indices_from(m); diagflat(x); diagonal(X, 1, 0, 2)
diff(v); diff(x, axis=1, prepend=0.0); digitize(x, array([-0.5, 0.0, 0.5])); divide(x, p); divmod(x, p); dot(m, v)
dot(m, n); dsplit(X, [1]); dstack([x, y]); ediff1d(v); einsum("ij,kj->ik", x, y); einsum("ii->i", m); einsum("ij->", x)
empty_like(x) * 0; equal(i, j); exp(x); exp2(x); expand_dims(x, (0, 2)); expm1(x); extract(b, x, size=2, fill_value=0)
fabs(x); fill_diagonal(m, 3.0, inplace=False); flatnonzero(b, size=4); flip(x); flip(x, axis=1); fliplr(x); flipud(x)
float_power(p, y); floor(x); floor_divide(x, p); fmax(x, y); fmin(x, y); fmod(x, p); frexp(x)[0]; ~frexp(x)
full_like(x, 2.0); gcd(i, j); geomspace(a + 2, a + 5, 4)
gradient(v); gradient(x, axis=1); greater(x, y); greater_equal(x, y); heaviside(x, y); histogram(v, 3, (-1.0, 1.0))
~histogram2d(v, w, 2, [[-1, 1], [-1, 1]]); histogram_bin_edges(v, 3); ~histogramdd(x, 2, [(-1, 1)] * x.shape[1])
histogram(v, 3, (-1.0, 1.0), weights=w)[0]; hsplit(x, [1]); hstack([x, y]); hypot(x, y); i0(x); imag(g)
inner(x, y); insert(v, 1, a); interp(x, array([-1.5, -0.2, 0.3, 1.5]), array([1.0, -2.0, 0.5, 3.0])); invert(i)
interp(a, array([-1.5, 0.0, 1.5]), e); intersect1d(l, l, size=2); isclose(x, y); iscomplex(g); isfinite(x); isin(i, l)
isinf(x); isnan(x); isneginf(x); isposinf(x); isreal(g); kron(x, y); lcm(i, j); ldexp(x, i); left_shift(i, j); less(x, y)
less_equal(x, y); lexsort((v, w)); linspace(x, y, 3); linspace(a, 2.0, 4, axis=-1); log(p); log10(p); log1p(p); log2(p)
logaddexp(x, y); logaddexp2(x, y); logical_and(b, x); logical_not(b); logical_or(b, i); logical_xor(b, b)
logspace(a, 2.0, 3); matmul(m, n); matmul(X, m); matrix_transpose(X); matvec(m, v); max(x, axis=0); maximum(x, y)
mean(x, axis=1); mean(x, where=b | (x == x.max())); median(x, axis=1); median(X); meshgrid(v, w); min(x); minimum(x, y); minmax(x, axis=1); mod(x, p); modf(x)
moveaxis(X, 0, -1); multiply(x, y); nan_to_num(x); nanargmax(x, axis=0); nanargmin(x); nancumprod(x, axis=0)
nancumsum(x, axis=1); nanmax(x, axis=1); nanmean(x); nanmedian(x, axis=0); nanmin(x); nanpercentile(x, 30.0, axis=1)
nanprod(x, axis=1); nanquantile(x, 0.3, axis=0); nanstd(x, axis=1); nansum(x, axis=0); nanvar(x); negative(x)
~nextafter(x, y); nonzero(b, size=3); not_equal(i, j); ones_like(x); outer(v, w); packbits(b, axis=1)
pad(x, ((1, 0), (0, 2))); pad(x, 1, mode="edge"); pad(x, 1, mode="reflect") if x.shape[0] > 1 else pad(x, 1, mode="wrap")
pad(x, 1, mode="linear_ramp"); pad(v, 1, mode="mean"); partition(v, 1); percentile(x, 40.0, axis=1); permute_dims(X, (2, 0, 1))
piecewise(x, [x < 0, x >= 0], [lambda t: t * t, lambda t: sin(t)]); place(x, b, v, inplace=False); poly(v); polyadd(v, e)
polyder(v); polydiv(e + 3, d[:2] + 3); polyfit(array([0.0, 1.0, 2.5]), e, 1); polyint(v); polymul(v, e); polysub(v, e)
polyval(v, x); positive(x); pow(p, y); power(p, y); power(x, 3); power(p, i); prod(x, axis=1); ptp(x, axis=1)
put(x, array([0, 1]), e[:2], inplace=False); put_along_axis(x, argsort(y, axis=1), x, axis=1, inplace=False)
quantile(x, 0.25, axis=1); quantile(v, array([0.1, 0.7])); rad2deg(x); radians(x); ravel(x)
ravel_multi_index((i, j), (6, 6), mode="clip"); real(g); reciprocal(p); remainder(x, p); repeat(x, 2, axis=1)
repeat(v, l, total_repeat_length=5); reshape(x, (-1,)); reshape(X, (-1, x.shape[1]), order="F"); resize(x, (2, 5))
right_shift(i, j); rint(x); roll(x, 1); roll(x, (1, -1), (0, 1)); rollaxis(X, 2); ~roots(e + 2, strip_zeros=False)
rot90(x); round(x, 2); searchsorted(sort(v), x); select([x < 0, y < 0], [x, y], 2.0); setdiff1d(l, i, size=3)
setxor1d(l, array([1, 2]), size=3); sign(x); signbit(x); sin(x); sinc(x); sinh(x); sort(x, axis=0); sort(x, descending=True)
sort_complex(g.ravel()); ~spacing(x); split(X, 2); sqrt(p); square(x); squeeze(x[None], 0); stack([x, y], axis=1)
std(x, axis=1); subtract(x, y); sum(x, axis=0); sum(x, where=b); sum(x); swapaxes(X, 0, 2); take(x, l, axis=1)
take(v, i, mode="clip"); take_along_axis(x, argsort(y, axis=0), axis=0); tan(x); tanh(x); tensordot(X, X, ((0, 2), (0, 2)))
tensordot(v, w, 0); tile(x, (2, 1)); top_k(x, 2); trace(X, 1); transpose(X, (1, 0, 2)); trapezoid(x, axis=1); trapezoid(v, w); tril(m)
tril(X, -1); tril_indices_from(m); trim_zeros(array([0.0, 1.0, 0.0])); triu(m, 1); triu_indices_from(m); true_divide(x, p)
trunc(x); union1d(l, l, size=4); unique(l, size=3); unique_all(l, size=3); unique_counts(l, size=3)
unique_inverse(l, size=3); unique_values(l, size=3); unpackbits(packbits(b, axis=1), axis=1); unravel_index(l, (2, 3))
unstack(x, axis=1); unwrap(5 * v); vander(v, 3); var(x, axis=0); var(x, ddof=0, where=b | True); vdot(v, w); vecdot(x, y)
vecmat(v, m); vectorize(lambda s, t: s * t)(x, v); vsplit(X, [1]); vstack([x, y]); where(b, x, y); where(b, size=2)
zeros_like(x); arange(a.ndim + 3); full((2, 3), a); frompyfunc(lambda s, t: s + t, 2, 1, identity=0).reduce(v)
frompyfunc(lambda s, t: s + t, 2, 1, identity=0)(x, y)
"""

TABLE["ferrax.numpy.fft"] = """
fft(x); fft(g, n=5); fft2(x); fftn(X); fftshift(x); hfft(g, n=4); ifft(g); ifft2(g); ifftn(g); ifftshift(x, axes=1)
ihfft(v); irfft(g, n=4); irfft2(g, s=(2, 4)); irfftn(g, s=(2, 4)); rfft(x); rfft(x, n=6, norm="ortho"); rfft2(x); rfftn(X)
"""

TABLE["ferrax.numpy.linalg"] = """
cholesky(s); cholesky(s, upper=True); cond(m); cross(d, e); det(m); diagonal(X); eigh(s)[0]; ~eigvals(m * 1j + n).sum()
eigvalsh(s); inv(m); lstsq(m, v)[0]; matmul(m, n); matrix_norm(m); matrix_norm(m, ord="nuc"); matrix_power(m, 3)
matrix_power(m, -2); ~matrix_rank(m); matrix_transpose(X); multi_dot([x, m, n]); norm(x); norm(x, axis=1); norm(v, ord=3)
norm(m, ord=2); outer(v, w); pinv(m); qr(m); qr(m, mode="r"); slogdet(m); solve(m, v); solve(m, n); svd(m)[1]; svdvals(m)
svd(m, compute_uv=False); tensordot(m, n); tensorinv(m, ind=1); tensorsolve(m, v); trace(m); vecdot(x, y)
vector_norm(x, axis=1); ~eig(m + 0j)[0].sum()
"""

# Why a public name has no row.
OUT = {}
OUT["ferrax.numpy"] = """
No array is an argument: bartlett blackman broadcast_shapes can_cast diag_indices einsum_path empty eye from_dlpack
frombuffer fromfile fromfunction fromiter fromstring get_printoptions hamming hanning indices isdtype issubdtype
kaiser load mask_indices ones printoptions promote_types result_type set_printoptions tri tril_indices
triu_indices zeros identity
Python values come out: array_repr array_str iscomplexobj isrealobj isscalar iterable ndim save savez shape size
Objects to index: ix_
"""
OUT["ferrax.numpy.fft"] = "No array is an argument: fftfreq rfftfreq"
OUT["ferrax.numpy.linalg"] = ""
