//! Windows of an array that is in parts: what a device lacks of one is sent by those that have it.
//!
//! In: arrays of which devices hold spans along an axis, and the span of each that they are to hold. Out: these. A device takes what it has, and
//! the rest from as near as it lies, whatever number of parts away: a `ppermute` for each distance, of no more than is in the array and lacking.
//! What two windows lack of the same elements is sent once if its receivers differ, or if one has it already. Keys are sent as they are.
//! Cost: the devices, for each distance.

use ferrax_ir::ops::{AxisIndex, Compare, Concatenate, Ppermute};
use ferrax_ir::{Atom, DType, Result, internal_error};
use smallvec::SmallVec;

use super::propagate::MeshAxes;
use super::reshard::Lane;
use super::span::Span;

/// A window that devices are to hold of an array of `size` elements.
pub struct Wanted {
    pub atom: Atom,
    pub size: usize,
    pub has: Span,
    /// As of a span; may be negative.
    pub before: i64,
    pub length: usize,
}

/// Elements `from.0..from.1` of each device's window, and who sent them to whom.
pub struct Sent {
    from: (usize, usize),
    /// By how many devices what is received lies behind.
    distance: i64,
    /// In the order of receivers.
    perm: Vec<(usize, usize)>,
    atom: Option<Atom>,
}

impl Sent {
    /// Who sends to this device.
    fn receives(&self, to: usize) -> Option<usize> {
        let found = self.perm.binary_search_by_key(&to, |pair| pair.1).ok()?;
        Some(self.perm[found].0)
    }
}

/// An array, an axis of it, and the axes of the mesh along which it is sent.
pub type Sender = (Atom, usize, MeshAxes);

enum Piece {
    Own(usize, usize),
    /// Of what was sent by this number: as many elements from here on.
    Sent(usize, usize, usize),
    /// So many elements outside of the array.
    Any(usize),
}

/// The windows along an axis, which is cut over these axes of the mesh.
pub fn windows(lane: &mut Lane<'_>, axis: usize, over: &MeshAxes, wanted: &[Wanted]) -> Result<Vec<Atom>> {
    let count = lane.mesh.parts(over);
    let pieces: Vec<Vec<Piece>> = wanted.iter().map(|one| pieces(lane, axis, over, count, one)).collect();
    let mut found = Vec::with_capacity(wanted.len());
    for (one, pieces) in wanted.iter().zip(pieces) {
        let sender = (one.atom, axis, over.clone());
        let mut atoms: SmallVec<[Atom; 4]> = SmallVec::new();
        for piece in pieces {
            match piece {
                Piece::Own(from, to) => atoms.push(part_of(lane, one.atom, axis, from, to)?),
                Piece::Any(length) => {
                    let mut left = length;
                    while left > 0 {
                        let some = left.min(one.has.length);
                        atoms.push(part_of(lane, one.atom, axis, 0, some)?);
                        left -= some;
                    }
                }
                Piece::Sent(number, from, to) => {
                    let all = sent(lane, &sender, number)?;
                    atoms.push(part_of(lane, all, axis, from, to)?);
                }
            }
        }
        found.push(match atoms.as_slice() {
            [] => lane.b.slice_axis(one.atom, axis, 0, 0)?,
            [only] => *only,
            several => lane.b.emit1(Concatenate { dimension: axis }, several)?,
        });
    }
    Ok(found)
}

/// Elements of what each device holds.
pub fn part_of(lane: &mut Lane<'_>, x: Atom, axis: usize, from: usize, to: usize) -> Result<Atom> {
    let size = lane.b.shape(x)[axis].require("an array over a mesh")?;
    if (from, to) == (0, size) { Ok(x) } else { lane.b.slice_axis(x, axis, from, to) }
}

/// What a window is made of, in order. What is to be sent is put on the lane's list.
fn pieces(lane: &mut Lane<'_>, axis: usize, over: &MeshAxes, count: usize, one: &Wanted) -> Vec<Piece> {
    let (step, length) = (one.has.step as i64, one.has.length as i64);
    // Places in what a device has, of which those before and behind are places in what others have.
    let mut at = one.has.before - one.before;
    let end = at + one.length as i64;
    let mut found = Vec::new();
    while at < end {
        if (0..length).contains(&at) {
            let stop = end.min(length);
            found.push(Piece::Own(at as usize, stop as usize));
            at = stop;
            continue;
        }
        // From the device this many behind; a place at the side of it that is nearest.
        let distance = if at < 0 { at.div_euclid(step) } else { (at - length) / step + 1 };
        let stop = end.min(if at < 0 { (distance + 1) * step } else { length + distance * step });
        let piece = (at - distance * step, stop - at);
        // The elements of the array that devices lack.
        let (mut perm, mut low, mut high) = (Vec::new(), piece.1, 0);
        for to in 0..count as i64 {
            let first = to * step - one.has.before + at;
            let within = ((-first).max(0), piece.1.min(one.size as i64 - first));
            if (0..count as i64).contains(&(to + distance)) && within.0 < within.1 {
                perm.push(((to + distance) as usize, to as usize));
                (low, high) = (low.min(within.0), high.max(within.1));
            }
        }
        match perm.is_empty() {
            true => found.push(Piece::Any(piece.1 as usize)),
            false => {
                let from = ((piece.0 + low) as usize, (piece.0 + high) as usize);
                found.push(Piece::Any(low as usize));
                let sent = Sent { from, distance, perm, atom: None };
                let (number, skip) = listed(lane, (one.atom, axis, over.clone()), sent);
                found.push(Piece::Sent(number, skip, skip + (high - low) as usize));
                found.push(Piece::Any((piece.1 - high) as usize));
            }
        }
        at = stop;
    }
    found
}

/// The number of what is sent of this, and how many elements come before those that are asked for.
fn listed(lane: &mut Lane<'_>, sender: Sender, new: Sent) -> (usize, usize) {
    let one_axis = sender.2.len() == 1;
    let list = lane.sent.entry(sender).or_default();
    let has = |sent: &Sent| {
        let within = sent.from.0 <= new.from.0 && new.from.1 <= sent.from.1;
        let all = |pair: &(usize, usize)| sent.receives(pair.1).is_some_and(|source| source == pair.0);
        within && new.perm.iter().all(all)
    };
    if let Some(number) = list.iter().position(has) {
        return (number, new.from.0 - list[number].from.0);
    }
    // One more receiver each: a rotation is one exchange.
    let joins = |sent: &Sent| {
        let mut sources: Vec<usize> = sent.perm.iter().map(|pair| pair.0).collect();
        sources.sort_unstable();
        let apart = |pair: &(usize, usize)| {
            sent.receives(pair.1).is_none() && sources.binary_search(&pair.0).is_err()
        };
        one_axis && sent.atom.is_none() && sent.from == new.from && new.perm.iter().all(apart)
    };
    match list.iter().position(joins) {
        Some(number) => {
            list[number].perm.extend(new.perm);
            list[number].perm.sort_unstable_by_key(|pair| pair.1);
            (number, 0)
        }
        None => {
            list.push(new);
            (list.len() - 1, 0)
        }
    }
}

fn sent(lane: &mut Lane<'_>, sender: &Sender, number: usize) -> Result<Atom> {
    let Some(Sent { from, distance, perm, atom }) = lane.sent.get(sender).and_then(|list| list.get(number))
    else {
        return Err(internal_error!("nothing was sent"));
    };
    if let Some(atom) = atom {
        return Ok(*atom);
    }
    let ((from, to), distance, perm) = (*from, *distance, perm.clone());
    let (x, axis, over) = sender;
    let edge = part_of(lane, *x, *axis, from, to)?;
    let needed_by = std::mem::take(&mut lane.needed_by);
    let atom = match over.as_slice() {
        [_] => permuted(lane, edge, over, perm)?,
        _ => from_behind(lane, edge, over, distance)?,
    };
    lane.needed_by = needed_by;
    if let Some(sent) = lane.sent.get_mut(sender).and_then(|list| list.get_mut(number)) {
        sent.atom = Some(atom);
    }
    Ok(atom)
}

fn permuted(lane: &mut Lane<'_>, x: Atom, over: &[u8], perm: Vec<(usize, usize)>) -> Result<Atom> {
    lane.say("ppermute", x, over)?;
    let op = Ppermute { axis_name: lane.mesh.names(over), perm };
    lane.b.emit1(op, &[x])
}

/// What the device that is so many behind has, of devices counted along several axes of the mesh: first along the minor one, where it goes
/// round, and then along the others, one device further for those that it went round for. What no device sends is of no meaning.
fn from_behind(lane: &mut Lane<'_>, x: Atom, over: &[u8], distance: i64) -> Result<Atom> {
    let Some((&minor, rest)) = over.split_last() else { return Ok(x) };
    let count = lane.mesh.parts(&[minor]);
    if rest.is_empty() {
        let from = |to: usize| usize::try_from(to as i64 + distance).ok().filter(|from| *from < count);
        let perm: Vec<_> = (0..count).filter_map(|to| Some((from(to)?, to))).collect();
        return if distance == 0 || perm.is_empty() { Ok(x) } else { permuted(lane, x, over, perm) };
    }
    let (round, steps) = (distance.div_euclid(count as i64), distance.rem_euclid(count as i64) as usize);
    if steps == 0 {
        return from_behind(lane, x, rest, round);
    }
    let turned = (0..count).map(|to| ((to + steps) % count, to)).collect();
    let turned = permuted(lane, x, &[minor], turned)?;
    let near = from_behind(lane, turned, rest, round)?;
    let far = from_behind(lane, turned, rest, round + 1)?;
    let axis_name = lane.mesh.names[usize::from(minor)].clone();
    let at = lane.b.emit1(AxisIndex { axis_name }, &[])?;
    let bound = lane.b.int_scalar(DType::I32, (count - steps) as i64);
    let is_near = lane.b.compare(Compare::Lt, at, bound)?;
    let shape = lane.b.shape(x);
    let is_near = lane.b.broadcast_scalar(is_near, &shape)?;
    lane.b.select(is_near, near, far)
}
