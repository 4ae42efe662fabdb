"""The part of the table of `algebra` for `ferrax.lax`, `ferrax.nn` and `ferrax.random`."""

TABLE = {}
OUT = {}

TABLE["ferrax.lax"] = """
abs(x); acos(x); acosh(1 + p); add(x, y); approx_max_k(x, 2); approx_min_k(x, 2); argmax(x, 1, "int32"); argmin(x, 0, "int32")
asin(x); asinh(x); associative_scan(lambda s, t: s * t + s, v); atan(x); atan2(x, p); atanh(x); batch_matmul(X, transpose(X, (0, 2, 1)))
bessel_i0e(x); bessel_i1e(x); betainc(1.5, 0.7, p); ~betainc(p + 0.5, q + 0.5, p); ~bitcast_convert_type(x, "int64"); bitwise_and(i, j); bitwise_not(i)
bitwise_or(i, j); bitwise_xor(i, j); broadcast(x, (2,)); broadcast_in_dim(v, (2, *v.shape), (1,)); broadcast_like(v, x)
broadcast_to_rank(v, 3); cbrt(p); ceil(x); clamp(-0.5, x, 0.5); clamp(x, y, x + p); clz(i); collapse(X, 0, 2); complex(x, y)
concatenate([x, y], 0); cond(a > 0, lambda t: sin(t), lambda t: t * t, x); conj(g); conv(c1, w1, (1,), "SAME")
~composite(lambda t: sin(t) * t, "own.sine")(x); conv_general_dilated(c1, w1, (1,), [(1, 1)], rhs_dilation=(2,))
conv_general_dilated_local(c1, w3, (1,), "VALID", (2,)); conv_general_dilated_patches(c1, (2,), (1,), "VALID")
conv_transpose(c1, w1, (2,), "SAME", dimension_numbers=("NCH", "OIH", "NCH"))
conv_with_general_padding(c1, w1, (1,), [(0, 1)], (1,), (1,)); ~convert_element_type(x, "float32"); cos(x); cosh(x)
cumlogsumexp(x, 1); cummax(x, 1); cummin(x, 0); cumprod(x, 1); cumsum(x, 0, reverse=True); digamma(p)
custom_linear_solve(lambda t: m @ t, v, lambda f, t: solve2(m, t), transpose_solve=lambda f, t: solve2(m.T, t))
custom_root(lambda t: t * t * t - p, p, lambda f, t: cbrt(p), lambda f, t: t / f(ones_like(t)))
div(x, p); dot(m, v); dot_general(X, X, (((1,), (1,)), ((0,), (0,)))); dynamic_index_in_dim(x, o, 1); dynamic_slice(x, (o, o), (1, 2))
dynamic_slice_in_dim(x, o, 2, 1); dynamic_update_index_in_dim(x, v, o, 0); dynamic_update_slice(x, y[:1, :2], (o, o))
dynamic_update_slice_in_dim(x, y[:, :1], o, 1); eq(i, j); erf(x); erf_inv(x); erfc(x); exp(x); exp2(x); expand_dims(x, (1,)); expm1(x)
fft(g, "FFT", g.shape[-1:]); floor(x); fori_loop(0, 3, lambda n, t: sin(t) + n, x); full_like(x, 3.0)
gather(x, l[:, None], GatherDimensionNumbers((0,), (1,), (1,)), (x.shape[0], 1), mode="clip"); ge(x, y); gt(x, y); igamma(p + 0.5, q)
~igamma_grad_a(p + 0.5, q); igammac(p + 0.5, q); imag(g); index_in_dim(x, 1, 1); index_take(x, (l,), (1,)); integer_pow(p, -3); is_finite(x)
le(x, y); lgamma(p); log(p); log1p(p); log2(p); logistic(x); lt(x, y); map(lambda t: sin(t) * t, x); max(x, y); min(x, y); mul(x, y)
mulhi(i, j); ne(x, y); neg(x); ~nextafter(x, y); one_minus_square(x); optimization_barrier(x); pad(x, a, [(1, 0, 1), (0, -1, 0)])
platform_dependent(x, cpu=lambda t: sin(t), default=lambda t: sin(t)); polygamma(full_like(p, 2.0), 1 + p); polynomial(x, [y, 2.0, p])
population_count(i); pow(p, y)
~ragged_dot(transpose(m, (1, 0)), stack3(m, n), full((2,), 1, "int32")); ~random_gamma_grad(p + 0.5, q); real(g); reciprocal(p)
reduce(x, 0.0, add, (1,)); reduce_and(b, (0,)); reduce_max(x, (1,)); reduce_min(x, (0,)); reduce_or(b, (0, 1)); reduce_precision(x, 11, 52)
reduce_prod(x, (1,)); reduce_sum(x, (0, 1)); reduce_window(x, 0.0, add, (1, 2), (1, 1), "SAME"); reduce_xor(i, (1,)); rem(x, p)
reshape(x, (x.size,)); rev(x, (1,)); ~round(x); rsqrt(p); scan(lambda s, t: (sin(s) * t, s + t), v, x)
scatter(v, o[None, None], w[:1], S0)
scatter_add(v, l[:, None], w, S0); scatter_apply(v, o[None, None], sin, S0, update_shape=(1,)); scatter_max(v, l[:, None], w, S0)
scatter_min(v, l[:, None], w, S0); scatter_mul(v, o[None, None], w[:1], S0, unique_indices=True); scatter_sub(v, l[:, None], w, S0)
select(b, x, y); select_n(b, x, y); shift_left(i, j); shift_right_arithmetic(i, j); shift_right_logical(i, j); sign(x); sin(x); sinh(x)
slice(x, (0, 1), (1, 2)); slice_in_dim(x, 0, 2, axis=1); sort(x, 1); sort((x, y), num_keys=1); sort_key_val(x, y); split(x, (1, x.shape[1] - 1), 1)
sqrt(p); square(x); squeeze(x[None], (0,)); stack([x, y]); stop_gradient(i); zeros_like_array(x); sub(x, y); switch(o, [sin, cos, square], x); tan(x); tanh(x)
tile(x, (2, 1)); top_k(x, 2); transpose(X, (2, 0, 1)); unstack(x, 1); while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, sin(s[1])), (0, x))
zeta(p + 1.5, q)
"""

OUT["ferrax.lax"] = """
No array is an argument: after_all broadcast_shapes broadcasted_iota conv_dimension_numbers conv_general_permutations
conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple create_token empty full iota padtype_to_pads
reduce_window_shape_tuple rng_bit_generator rng_uniform dtype
A record of parameters: DotDimensionNumbers
Lanes of a mapped axis, which `test_collectives.py` has: all_gather all_to_all axis_index axis_size pbroadcast pcast pmax
pmean pmin ppermute precv psend pshuffle psum psum_scatter pswapaxes ragged_all_to_all
Devices: with_sharding_constraint
Parts of programs that have no values of their own: dce_sink shape_as_value stage
Sizes of groups that have to add up, which `test_lax_composed.py` has: ragged_dot_general scaled_dot
"""

TABLE["ferrax.lax.linalg"] = """
cholesky(s); ~cholesky_update(cholesky(s).T, v); eigh(s)[1]; ~hessenberg(m); lu(m)[0]; qr(m)
qr(m, full_matrices=False); svd(m, compute_uv=False); symmetric_product(m, s)
triangular_solve(m, n, left_side=True, lower=True); triangular_solve(m, n, transpose_a=True); tridiagonal_solve(v, w + 4, v, n); ~schur(m)
~eig(m + 0j, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0].sum(); ~qdwh(m)[0]; ~tridiagonal(s); ~lu_pivots_to_permutation(l, 5)
~householder_product(m, v); ~ormqr(m, v, n)
"""
OUT["ferrax.lax.linalg"] = ""

TABLE["ferrax.nn"] = """
celu(x); ~dot_product_attention(A, A, A); elu(x); gelu(x); gelu(x, approximate=False); glu(x[:, :2]); hard_sigmoid(x); hard_silu(x); hard_swish(x)
hard_tanh(x); identity(x); leaky_relu(x); log1mexp(p); log_sigmoid(x); log_softmax(x); logmeanexp(x, axis=1); logsumexp(x, axis=1)
logsumexp(x, b=y + 2); mish(x); one_hot(l, 4); relu(x); relu6(x); selu(x); sigmoid(x); silu(x); soft_sign(x); softmax(x); softmax(x, axis=0)
softplus(x); sparse_plus(x); sparse_sigmoid(x); squareplus(x); standardize(x) if x.shape[1] > 2 else identity(x); swish(x); tanh(x)
"""
OUT["ferrax.nn"] = """
A record of parameters: get_scaled_dot_general_config
Sizes in blocks of 32, which `test_lax_composed.py` has: scaled_dot_general scaled_matmul
"""

TABLE["ferrax.nn.initializers"] = """
constant(2.0)(k, (2, 3)); delta_orthogonal()(k, (3, 2, 2)); glorot_normal()(k, (3, 2)); glorot_uniform()(k, (3, 2)); he_normal()(k, (3, 2))
he_uniform()(k, (3, 2)); kaiming_normal()(k, (3, 2)); kaiming_uniform()(k, (3, 2)); lecun_normal()(k, (3, 2)); lecun_uniform()(k, (3, 2))
normal()(k, (3, 2)); ones(k, (2,)); orthogonal()(k, (3, 3)); truncated_normal()(k, (4,)); uniform()(k, (3,)); xavier_normal()(k, (3, 2))
variance_scaling(1.0, "fan_in", "normal")(k, (3, 2)); xavier_uniform()(k, (3, 2)); zeros(k, (2,))
"""
OUT["ferrax.nn.initializers"] = ""

TABLE["ferrax.random"] = """
ball(k, 3); ~bernoulli(k, p); ~beta(k, 1 + p, 1 + q); ~binomial(k, 5.0, p); bits(k, (3,)); categorical(k, x); cauchy(k, (3,)); ~chisquare(k, 2 + p)
choice(k, v, (4,)); clone(k); ~dirichlet(k, u); double_sided_maxwell(k, a, 2.0, (3,)); exponential(k, (3,)); ~f(k, 2 + p, 3 + q); fold_in(k, o)
~gamma(k, 1 + p); generalized_normal(k, 1.5, (3,)); ~geometric(k, p); gumbel(k, (3,)); key_data(k); laplace(k, (3,)); ~loggamma(k, 1 + p)
logistic(k, (3,)); lognormal(k, p, (2, *p.shape)[1:]); maxwell(k, (3,)); ~multinomial(k, 5.0, u / u.sum()); multivariate_normal(k, v, s)
normal(k, (3,)); orthogonal(k, 3); pareto(k, 1 + p); permutation(k, v); ~poisson(k, 3 * p); rademacher(k, (3,)); randint(k, (3,), 0, 10)
rayleigh(k, p); split(k, 3); ~t(k, 2 + p); triangular(k, -1 - p, y / 4, 1 + q); truncated_normal(k, -p, q, p.shape); uniform(k, (3,))
uniform(k, p.shape, minval=x, maxval=2.0); wald(k, p); weibull_min(k, p, 1 + q); wrap_key_data(key_data(k))
"""
OUT["ferrax.random"] = """
No array is an argument: PRNGKey Key key key_dtype
A name comes out: key_impl
"""
