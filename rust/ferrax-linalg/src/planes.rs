//! Square matrices of real numbers by columns, and runs of small transformations of their neighbouring
//! rows or columns over vector lanes.
//!
//! A run goes down a matrix, each transformation a row further than the one before. Where all of it is
//! known, rows (or columns) that it does not depend on are transformed by the whole run at once, as many
//! as there are lanes: `lines[k]` holds an element of each of them in column (or row) `first + k`.

use std::ops::{Index, IndexMut};

use crate::magnitude::Real as Number;

/// Rows or columns that are transformed side by side.
pub(crate) const LANES: usize = 16;
/// Transformations of a run at most.
pub(crate) const RUN: usize = 16;
/// Rows or columns that a run concerns at most; reflections are of three of them.
pub(crate) const LINES: usize = RUN + 2;

pub(crate) type Lines<T> = [[T; LANES]; LINES];

/// A square matrix by columns; indices are rows and columns.
pub(crate) struct Plane<T> {
    pub size: usize,
    elements: Vec<T>,
}

impl<T> Index<(usize, usize)> for Plane<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, (row, column): (usize, usize)) -> &T {
        &self.elements[column * self.size + row]
    }
}

impl<T> IndexMut<(usize, usize)> for Plane<T> {
    #[inline(always)]
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut T {
        &mut self.elements[column * self.size + row]
    }
}

impl<T: Number> Plane<T> {
    pub(crate) fn new(size: usize, element: impl Fn((usize, usize)) -> T) -> Plane<T> {
        let each = |column: usize| (0..size).map(move |row| (row, column));
        Plane { size, elements: (0..size).flat_map(each).map(element).collect() }
    }

    /// The rows below `limit` of as many columns from `first` on as there are.
    #[inline(always)]
    pub(crate) fn columns<const N: usize>(&mut self, first: usize, limit: usize) -> [&mut [T]; N] {
        let mut columns = self.elements[first * self.size..].chunks_exact_mut(self.size);
        std::array::from_fn(
            #[inline(always)]
            |_| columns.next().map_or(&mut [][..], |column| &mut column[..limit]),
        )
    }

    /// Reads `count` columns from `first` on in rows `row` up to `end`, as many as lanes at most.
    #[inline(always)]
    pub(crate) fn read_columns(
        &self,
        lines: &mut Lines<T>,
        first: usize,
        count: usize,
        row: usize,
        end: usize,
    ) {
        for (line, column) in lines.iter_mut().zip(first..first + count) {
            let from = &self.elements[column * self.size + row..][..end - row];
            match from.first_chunk() {
                Some(all) => *line = *all,
                None => line[..from.len()].copy_from_slice(from),
            }
        }
    }

    /// What `read_columns` read.
    #[inline(always)]
    pub(crate) fn write_columns(
        &mut self,
        lines: &Lines<T>,
        first: usize,
        count: usize,
        row: usize,
        end: usize,
    ) {
        for (line, column) in lines.iter().zip(first..first + count) {
            let to = &mut self.elements[column * self.size + row..][..end - row];
            match to.first_chunk_mut() {
                Some(all) => *all = *line,
                None => to.copy_from_slice(&line[..to.len()]),
            }
        }
    }

    /// Reads `count` rows from `first` on in columns `column` up to `end`, as many as lanes at most.
    #[inline(always)]
    pub(crate) fn read_rows(
        &self,
        lines: &mut Lines<T>,
        first: usize,
        count: usize,
        column: usize,
        end: usize,
    ) {
        for (lane, column) in (column..end).take(LANES).enumerate() {
            let from = &self.elements[column * self.size + first..][..count];
            for (line, &x) in lines.iter_mut().zip(from) {
                line[lane] = x;
            }
        }
    }

    /// What `read_rows` read.
    #[inline(always)]
    pub(crate) fn write_rows(
        &mut self,
        lines: &Lines<T>,
        first: usize,
        count: usize,
        column: usize,
        end: usize,
    ) {
        for (lane, column) in (column..end).take(LANES).enumerate() {
            let to = &mut self.elements[column * self.size + first..][..count];
            for (x, line) in to.iter_mut().zip(lines) {
                *x = line[lane];
            }
        }
    }
}

/// Transforms `count` columns from `first` on, in rows below `end`, of all planes alike.
#[inline(always)]
pub(crate) fn for_columns<T: Number, const P: usize>(
    mut planes: [&mut Plane<T>; P],
    (first, count): (usize, usize),
    end: usize,
    transform: impl Fn(&mut [Lines<T>; P]),
) {
    let mut lines = [[[T::zero_impl(); LANES]; LINES]; P];
    for row in (0..end).step_by(LANES) {
        for (plane, lines) in planes.iter().zip(&mut lines) {
            plane.read_columns(lines, first, count, row, end);
        }
        transform(&mut lines);
        for (plane, lines) in planes.iter_mut().zip(&lines) {
            plane.write_columns(lines, first, count, row, end);
        }
    }
}

/// Transforms `count` rows from `first` on, in columns from `start` on, of all planes alike.
#[inline(always)]
pub(crate) fn for_rows<T: Number, const P: usize>(
    mut planes: [&mut Plane<T>; P],
    (first, count): (usize, usize),
    start: usize,
    transform: impl Fn(&mut [Lines<T>; P]),
) {
    let mut lines = [[[T::zero_impl(); LANES]; LINES]; P];
    let end = planes.first().map_or(0, |plane| plane.size);
    for column in (start..end).step_by(LANES) {
        for (plane, lines) in planes.iter().zip(&mut lines) {
            plane.read_rows(lines, first, count, column, end);
        }
        transform(&mut lines);
        for (plane, lines) in planes.iter_mut().zip(&lines) {
            plane.write_rows(lines, first, count, column, end);
        }
    }
}

/// A reflection `1 - tau v v^H` of three neighbours, of which the first element of `v` is 1.
#[derive(Clone, Copy)]
pub(crate) struct Reflection<T> {
    v: [T; 2],
    by: [T; 3],
}

impl<T: Number> Reflection<T> {
    pub(crate) fn new(tau: T, v: [T; 2]) -> Self {
        Reflection { v, by: [tau, tau * v[0], tau * v[1]] }
    }

    #[inline(always)]
    pub(crate) fn of(&self, [x, y, z]: [T; 3]) -> [T; 3] {
        let sum = x + self.v[0] * y + self.v[1] * z;
        [x - sum * self.by[0], y - sum * self.by[1], z - sum * self.by[2]]
    }
}

/// Each reflection transforms three lines from its number on.
#[inline(always)]
pub(crate) fn reflect<T: Number>(lines: &mut Lines<T>, run: &[Reflection<T>]) {
    let (mut x, mut y) = (lines[0], lines[1]);
    for (at, reflection) in run.iter().enumerate().take(RUN) {
        let mut z = lines[at + 2];
        for lane in 0..LANES {
            [x[lane], y[lane], z[lane]] = reflection.of([x[lane], y[lane], z[lane]]);
        }
        lines[at] = x;
        (x, y) = (y, z);
    }
    let end = run.len().min(RUN);
    (lines[end], lines[end + 1]) = (x, y);
}

/// A rotation of two complex neighbours: `(x, y) -> (c x + s y, c y - conj(s) x)`.
#[derive(Clone, Copy)]
pub(crate) struct Rotation<T> {
    pub c: T,
    pub s: (T, T),
}

impl<T: Number> Rotation<T> {
    pub(crate) fn conjugated(self) -> Self {
        Rotation { s: (self.s.0, -self.s.1), ..self }
    }

    #[inline(always)]
    pub(crate) fn of(&self, x: (T, T), y: (T, T)) -> ((T, T), (T, T)) {
        let (c, (re, im)) = (self.c, self.s);
        (
            (c * x.0 + (re * y.0 - im * y.1), c * x.1 + (re * y.1 + im * y.0)),
            (c * y.0 - (re * x.0 + im * x.1), c * y.1 - (re * x.1 - im * x.0)),
        )
    }
}

/// Each rotation transforms two lines of real and imaginary parts from its number on.
#[inline(always)]
pub(crate) fn rotate<T: Number>([re, im]: &mut [Lines<T>; 2], run: &[Rotation<T>]) {
    let mut x = (re[0], im[0]);
    for (at, rotation) in run.iter().enumerate().take(RUN) {
        let mut y = (re[at + 1], im[at + 1]);
        for lane in 0..LANES {
            let of = rotation.of((x.0[lane], x.1[lane]), (y.0[lane], y.1[lane]));
            ((x.0[lane], x.1[lane]), (y.0[lane], y.1[lane])) = of;
        }
        (re[at], im[at]) = x;
        x = y;
    }
    let end = run.len().min(RUN);
    (re[end], im[end]) = x;
}
