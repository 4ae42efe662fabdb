//! Numbers of several matrices side by side: what is done to one is done to all, by vector
//! instructions. A group of lanes has 64 bytes of real parts.

use crate::Element;
use crate::magnitude::Real;

/// The most lanes of a group.
pub(crate) const MOST: usize = 16;

/// One number of each matrix of a group.
pub(crate) trait Lanes: Copy {
    type Of: Element;
    type Sizes: Copy;
    const COUNT: usize;

    fn zero() -> Self;
    fn get(&self, lane: usize) -> Self::Of;
    fn put(&mut self, lane: usize, x: Self::Of);
    /// `self -= x * y`.
    fn subtract(&mut self, x: &Self, y: &Self);
    fn times(&mut self, by: &Self);
    fn conjugated(&self) -> Self;
    fn inverse(&self) -> Self;
    /// The root of the real part.
    fn root(&self) -> Self;
    /// What pivots are compared by.
    fn sizes(&self) -> Self::Sizes;
    /// Where `sizes` are larger they take the place of `most`, and `row` that of `rows`.
    fn larger(most: &mut Self::Sizes, rows: &mut [i32; MOST], sizes: &Self::Sizes, row: i32);
}

/// Real numbers.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Reals<R, const N: usize>([R; N]);

impl<R: Real, const N: usize> Reals<R, N> {
    #[inline(always)]
    fn filled(x: R) -> Self {
        Reals([x; N])
    }

    #[inline(always)]
    fn each(mut self, f: impl Fn(R) -> R) -> Self {
        for x in &mut self.0 {
            *x = f(*x);
        }
        self
    }

    #[inline(always)]
    fn with(mut self, other: &Self, f: impl Fn(R, R) -> R) -> Self {
        for (x, &y) in self.0.iter_mut().zip(&other.0) {
            *x = f(*x, y);
        }
        self
    }

    #[inline(always)]
    fn subtract(&mut self, x: &Self, y: &Self) {
        for ((to, &x), &y) in self.0.iter_mut().zip(&x.0).zip(&y.0) {
            *to -= x * y;
        }
    }

    #[inline(always)]
    fn add(&mut self, x: &Self, y: &Self) {
        for ((to, &x), &y) in self.0.iter_mut().zip(&x.0).zip(&y.0) {
            *to += x * y;
        }
    }

    #[inline(always)]
    fn larger(&mut self, rows: &mut [i32; MOST], other: &Self, row: i32) {
        for ((most, at), &size) in self.0.iter_mut().zip(rows).zip(&other.0) {
            let more = size > *most;
            *most = if more { size } else { *most };
            *at = if more { row } else { *at };
        }
    }
}

macro_rules! real_lanes {
    ($($real:ident, $count:literal;)*) => {$(
        impl Lanes for Reals<$real, $count> {
            type Of = $real;
            type Sizes = Self;
            const COUNT: usize = $count;

            #[inline(always)]
            fn zero() -> Self {
                Reals::filled(0.0)
            }

            #[inline(always)]
            fn get(&self, lane: usize) -> $real {
                self.0[lane]
            }

            #[inline(always)]
            fn put(&mut self, lane: usize, x: $real) {
                self.0[lane] = x;
            }

            #[inline(always)]
            fn subtract(&mut self, x: &Self, y: &Self) {
                Reals::subtract(self, x, y);
            }

            #[inline(always)]
            fn times(&mut self, by: &Self) {
                *self = self.with(by, |x, y| x * y);
            }

            #[inline(always)]
            fn conjugated(&self) -> Self {
                *self
            }

            #[inline(always)]
            fn inverse(&self) -> Self {
                self.each(|x| 1.0 / x)
            }

            #[inline(always)]
            fn root(&self) -> Self {
                self.each($real::sqrt)
            }

            #[inline(always)]
            fn sizes(&self) -> Self {
                self.each($real::abs)
            }

            #[inline(always)]
            fn larger(most: &mut Self, rows: &mut [i32; MOST], sizes: &Self, row: i32) {
                most.larger(rows, sizes, row);
            }
        }
    )*};
}

real_lanes! {
    f32, 16;
    f64, 8;
}

/// Complex numbers, their parts apart.
#[derive(Clone, Copy)]
pub(crate) struct Complex<L> {
    re: L,
    im: L,
}

macro_rules! complex_lanes {
    ($($complex:path, $real:ident, $count:literal;)*) => {$(
        impl Lanes for Complex<Reals<$real, $count>> {
            type Of = $complex;
            type Sizes = Reals<$real, $count>;
            const COUNT: usize = $count;

            #[inline(always)]
            fn zero() -> Self {
                Complex { re: Reals::filled(0.0), im: Reals::filled(0.0) }
            }

            #[inline(always)]
            fn get(&self, lane: usize) -> $complex {
                <$complex>::new(self.re.0[lane], self.im.0[lane])
            }

            #[inline(always)]
            fn put(&mut self, lane: usize, x: $complex) {
                self.re.0[lane] = x.re;
                self.im.0[lane] = x.im;
            }

            #[inline(always)]
            fn subtract(&mut self, x: &Self, y: &Self) {
                self.re.subtract(&x.re, &y.re);
                self.re.add(&x.im, &y.im);
                self.im.subtract(&x.re, &y.im);
                self.im.subtract(&x.im, &y.re);
            }

            #[inline(always)]
            fn times(&mut self, by: &Self) {
                let mut re = self.re.with(&by.re, |x, y| x * y);
                re.subtract(&self.im, &by.im);
                let mut im = self.re.with(&by.im, |x, y| x * y);
                im.add(&self.im, &by.re);
                (self.re, self.im) = (re, im);
            }

            #[inline(always)]
            fn conjugated(&self) -> Self {
                Complex { re: self.re, im: self.im.each(|x| -x) }
            }

            /// By the larger part, whose square may be no number.
            #[inline(always)]
            fn inverse(&self) -> Self {
                let most = self.re.with(&self.im, |x, y| x.abs().max(y.abs()));
                let (re, im) = (self.re.with(&most, |x, y| x / y), self.im.with(&most, |x, y| x / y));
                let square = re.with(&im, |x, y| x * x + y * y).with(&most, |x, y| x * y);
                Complex { re: re.with(&square, |x, y| x / y), im: im.with(&square, |x, y| -x / y) }
            }

            #[inline(always)]
            fn root(&self) -> Self {
                Complex { re: self.re.each($real::sqrt), im: Reals::filled(0.0) }
            }

            #[inline(always)]
            fn sizes(&self) -> Reals<$real, $count> {
                self.re.with(&self.im, |x, y| x.abs() + y.abs())
            }

            #[inline(always)]
            fn larger(most: &mut Self::Sizes, rows: &mut [i32; MOST], sizes: &Self::Sizes, row: i32) {
                most.larger(rows, sizes, row);
            }
        }
    )*};
}

complex_lanes! {
    crate::c32, f32, 16;
    crate::c64, f64, 8;
}
