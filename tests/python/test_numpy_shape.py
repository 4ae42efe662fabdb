"""Shape functions, padding, splitting, differences and mapped functions against the reference."""

import numpy as np
import pytest
from numpy_oracle import check

X = np.arange(12, dtype=np.float32).reshape(4, 3) - 4.5
I = np.arange(6).reshape(2, 3)

EXPRESSIONS = """
n.reshape(x, (3, 4)); n.reshape(x, -1); n.reshape(x, (2, -1, 3)); n.reshape(x, (5,)); n.reshape(x, (-1, -1))
n.reshape(x, (-1, 5)); n.reshape(x, (2., 6)); n.reshape(x, (3, 4), order='F'); n.reshape(x, (3, 4), order='K'); n.reshape([1], 1)
n.ravel(x); n.ravel(x, order='F'); n.ravel(x, order='K'); n.transpose(x); n.transpose(x, (1, 0)); n.transpose(x, (0, 0)); n.transpose(x, (0,))
n.transpose(x, (-1, 0)); n.matrix_transpose(x); n.matrix_transpose(x[0]); n.permute_dims(x, (1, 0)); n.swapaxes(x, 0, -1); n.swapaxes(x, 0, 2)
n.moveaxis(x[None], 0, -1); n.moveaxis(x[None], (0, 1), (2, 0)); n.moveaxis(x, (0, 0), (0, 1)); n.rollaxis(x[None], 2); n.rollaxis(x[None], 0, 3)
n.squeeze(x[None]); n.squeeze(x[None], 0); n.squeeze(x, 0); n.squeeze(x[None, :, None], (0, -2)); n.expand_dims(x, 0); n.expand_dims(x, (0, -1)); n.expand_dims(x, 5); n.expand_dims(x, (0, 0))
n.broadcast_to(x, (2, 4, 3)); n.broadcast_to(x[:1], (4, 3)); n.broadcast_to(x, (3,)); n.broadcast_to(x, (2, 3)); n.broadcast_to(1, (2,)); n.broadcast_to(x, 3)
n.broadcast_shapes((2, 1), (3,)); n.broadcast_shapes((2,), (3,)); n.broadcast_arrays(x, x[0]); n.broadcast_arrays(x, n.ones(2)); n.broadcast_arrays()
n.concatenate([x, x]); n.concatenate([x, x], axis=-1); n.concatenate([x, x[:, :1].astype(int)], axis=1); n.concatenate([x, x], axis=None); n.concatenate([]); n.concatenate([x, x[0]])
n.concatenate(x); n.concatenate(3.); n.concatenate([x], dtype='int8'); n.concatenate([1, 2]); n.concatenate([[1], [2]]); n.concatenate([x, x], axis=2); n.concat([x, x], axis=1)
n.stack([x, x]); n.stack([x, x], axis=-1); n.stack([]); n.stack([x, x.T]); n.stack(x); n.stack([1, 2.]); n.stack([x, x], dtype=int); n.stack([x], axis=3)
n.vstack([x, x[0]]); n.hstack([x, x]); n.hstack([x[0], x[1]]); n.dstack([x, x]); n.column_stack([x[0], x[1]]); n.column_stack([x, x[:, 0]]); n.vstack(x); n.hstack([1, 2])
n.block([[x, x], [x, x]]); n.block([x[0], 1]); n.block([[x], x]); n.block(x); n.append(x, x); n.append(x, x, axis=1); n.append(x, 1)
n.split(x, 2); n.split(x, 3); n.split(x, [1, 3]); n.split(x, [1], axis=1); n.array_split(x, 3); n.array_split(x, 5); n.hsplit(x, 3); n.hsplit(x[0], 3); n.vsplit(x, 2); n.dsplit(x[None], 3); n.split(x, [3, 1]); n.split(x, [-1])
n.unstack(x); n.unstack(x, axis=1); n.unstack(1); n.tile(x, 2); n.tile(x, (2, 1)); n.tile(x[0], (2, 2)); n.tile(x, (1, 1, 1)); n.tile(x, 0); n.tile(1, 3)
n.repeat(x, 2); n.repeat(x, 2, axis=0); n.repeat(x, n.array([1, 0, 2, 1]), axis=0); n.repeat(x, n.array([1, 2, 3]), axis=0); n.repeat(x, n.array([1, 0, 2, 1]), axis=0, total_repeat_length=6)
n.repeat(x, n.array([1, 0, 2, 1]), axis=0, total_repeat_length=2); n.repeat(3, 2); n.repeat(x, n.array([2]), axis=1); n.repeat(x, -1)
n.resize(x, (3, 7)); n.resize(x, 5); n.resize(x, (0, 2)); n.resize(x, -1); n.flip(x); n.flip(x, 0); n.flip(x, (0, 1)); n.flip(x, 2); n.flipud(x); n.fliplr(x); n.fliplr(x[0])
n.rot90(x); n.rot90(x, 2); n.rot90(x, -1); n.rot90(x, axes=(0, 0)); n.rot90(x[None], 3, axes=(1, 2)); n.roll(x, 1); n.roll(x, -1, axis=0); n.roll(x, (1, 2), axis=(0, 1)); n.roll(x, 5, axis=1); n.roll(x, (1, 2), axis=0); n.roll(x, 1, axis=(0, 1))
n.roll(x, n.array(1), axis=0); n.roll(x[:0], 1); n.atleast_1d(1); n.atleast_2d(x[0]); n.atleast_3d(x[0], x, 1); n.atleast_1d([1]); n.array_equal(x, x); n.array_equal(x, x[0]); n.array_equal(x, x.astype(int)); n.array_equiv(x[:1], n.tile(x[:1], (3, 1))); n.array_equal(n.array([n.nan]), n.array([n.nan]), equal_nan=True)
n.shape(x); n.ndim(x); n.size(x); n.size(x, 1); n.size(x, (0, 1)); n.size(x, 7); n.ndim(3); n.iscomplexobj(x); n.iscomplexobj(1j); n.isrealobj(x); n.isscalar(3); n.isscalar(x); n.isscalar(n.array(1)); n.iterable(x)
n.trim_zeros(n.array([0, 0, 1, 0, 2, 0])); n.trim_zeros(n.array([0, 0, 1, 0]), 'f'); n.trim_zeros(n.zeros(3))
n.pad(x, 1); n.pad(x, (1, 2)); n.pad(x, ((1, 0), (0, 2)), constant_values=7); n.pad(x, 1, constant_values=((1, 2), (3, 4))); n.pad(x, {0: 1}); n.pad(x, -1); n.pad(x, 1.5); n.pad(x, (1, 2, 3)); n.pad(x, 1, foo=1); n.pad(x, 1, mode='foo'); n.pad(1, 0)
n.pad(x, 2, mode='edge'); n.pad(x, 2, mode='reflect'); n.pad(x, 7, mode='reflect'); n.pad(x, (0, 2), mode='reflect', reflect_type='odd'); n.pad(x, 2, mode='symmetric'); n.pad(x, 9, mode='symmetric'); n.pad(x, 2, mode='wrap'); n.pad(x, 9, mode='wrap')
n.pad(x, 2, mode='linear_ramp'); n.pad(x, (1, 3), mode='linear_ramp', end_values=(5, -4)); n.pad(x, 2, mode='maximum'); n.pad(x, 1, mode='minimum', stat_length=2); n.pad(x, 1, mode='mean'); n.pad(x.astype(int), 1, mode='mean', stat_length=((1, 2), (2, 1))); n.pad(x, 1, mode='empty'); n.pad(x[:1], 2, mode='reflect'); n.pad(x[:0], 1, mode='edge')
n.pad(x[0], 2, lambda row, w, axis, kw: row.at[:w[0]].set(9.)); n.pad(x, 1, mode='symmetric', stat_length=1); n.pad(i, 1, constant_values=2.7)
n.diff(x); n.diff(x, 2, axis=0); n.diff(x, 0); n.diff(x, -1); n.diff(1); n.diff(x, prepend=0); n.diff(x, append=x[:, :1]); n.diff(x > 0); n.diff(x, 4); n.ediff1d(x); n.ediff1d(i, 7, n.array([1, 2])); n.ediff1d(x[:1, :1])
n.gradient(x); n.gradient(x, axis=0); n.gradient(x, 2.); n.gradient(x, 2., n.array([0., 1., 3.])); n.gradient(x[:1]); n.gradient(i); n.gradient(x, 1., 2., 3.); n.gradient(x[0], n.array([0., 1., 4.]))
n.trapezoid(x); n.trapezoid(x, dx=2.); n.trapezoid(x, x); n.trapezoid(i, n.array([0, 1, 3])); n.trapezoid(x, axis=0); n.cov(x); n.cov(i); n.cov(x[0]); n.cov(x, rowvar=False); n.cov(x, x); n.cov(x, bias=True); n.cov(x, ddof=0, fweights=n.array([1, 2, 3])); n.cov(x, aweights=n.array([1., 2, 3])); n.cov(x[None]); n.cov(x * (1 + 1j)); n.corrcoef(i * i); n.corrcoef(x[0]); n.corrcoef(x + n.arange(3) ** 2, rowvar=False)
n.interp(n.array([-1., 0.5, 2., 9.]), n.array([0., 1., 3.]), n.array([1., 3., -2.])); n.interp(n.array([-1., 9.]), n.array([0., 1., 3.]), n.array([1., 3., -2.]), left=7, right=8.); n.interp(n.array([-1., 9.]), n.array([0., 1., 3.]), n.array([1., 3., -2.]), left='extrapolate', right='extrapolate'); n.interp(n.array([-1., 370.]), n.array([190., 0., 10.]), n.array([1., 3., -2.]), period=360); n.interp(1, n.array([0, 2]), n.array([0, 5])); n.interp(1., n.ones(2), n.ones(3)); n.interp(x, x[:, 0], x[:, 1]); n.interp(1., n.ones(2), n.ones(2), left='a')
n.polyval(x[0], x); n.polyval(x, 2.); n.polyval(i[0], i); n.polyval(n.zeros(0), x); n.unwrap(x * 2); n.unwrap(i * 4, period=4); n.unwrap(x, axis=0, discont=5.)
n.apply_along_axis(n.sum, 0, x); n.apply_along_axis(n.cumsum, 1, x); n.apply_along_axis(lambda v: n.outer(v, v), 0, x); n.apply_along_axis(n.sum, 2, x); n.apply_over_axes(n.sum, x, [0, 1]); n.apply_over_axes(lambda a, axis: n.sum(a, axis, keepdims=True), x[None], (0, -1))
n.vectorize(lambda a, b: a * b + 1)(x, x[0]); n.vectorize(n.dot, signature='(n),(n)->()')(x, x[:1]); n.vectorize(n.dot, signature='(n),(m)->()')(x, x.T); n.vectorize(lambda a: (a, a.sum()), signature='(n)->(n),()')(x); n.vectorize(n.dot, signature='n,n->()')(x, x); n.vectorize(lambda a, k: a ** k, excluded={1})(x, 2); n.vectorize(n.dot, signature='(n),(n)->()')(x, x.T); n.vectorize(lambda a: a, signature='(n)->()')(x); n.vectorize(lambda a, b: a + b)(x[:1, None], x)
"""
TABLE = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split("; ")]


@pytest.mark.parametrize("text", TABLE)
def test_expression(text):
    code = compile(text, "<case>", "eval")
    check(lambda n, x, i: eval(code, {"n": n, "x": x, "i": i, "int": int}), X, I)


TRACED = """
n.roll(x, i[0, 1], axis=0); n.roll(x, i[0, :2], axis=(0, 1)); n.roll(x, -i[1, 0])
n.repeat(x, i[0, :1] + 1, axis=0, total_repeat_length=5); n.pad(x, 1, constant_values=i[0, 1]); n.split(x, 2); n.diag(x)
n.tile(x, (2, 1)); n.linspace(x[0, 0], 1., 3); n.where(x > 0, x, i[0, 0]); n.interp(x, x[:, 0], x[:, 1]); n.reshape(x, (6, -1)); n.repeat(x, i[0], axis=1)
"""


@pytest.mark.parametrize("text", [e.strip() for t in TRACED.strip().splitlines() for e in t.split("; ")])
def test_traced(text):
    code = compile(text, "<case>", "eval")
    check(lambda n, x, i: eval(code, {"n": n, "x": x, "i": i}), X, I, jit=True)
