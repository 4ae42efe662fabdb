//! Layout of text in lines of at most 80 columns, after Wadler ("A prettier
//! printer", 2003): a group is laid out flat if it fits, else its own breaks
//! become newlines. Cost: linear in the text times a constant (the width).

use std::fmt;

/// The longest line, where breaking can keep to it.
const WIDTH: usize = 80;

/// A text with choices of where to break.
#[derive(Debug)]
pub(crate) enum Doc {
    Text(String),
    /// This text, or a newline.
    Break(&'static str),
    Concat(Vec<Doc>),
    /// Newlines inside are indented by so many columns more.
    Nest(usize, Box<Doc>),
    Group(Box<Doc>),
}

impl Doc {
    pub fn text(text: impl Into<String>) -> Doc {
        Doc::Text(text.into())
    }

    pub fn group(self) -> Doc {
        Doc::Group(Box::new(self))
    }

    pub fn nest(self, columns: usize) -> Doc {
        Doc::Nest(columns, Box::new(self))
    }

    /// Items with a break of its own between every two: as many a line as fit.
    pub fn fill(items: Vec<Doc>) -> Doc {
        let mut parts = Vec::with_capacity(items.len() * 2);
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                parts.push(Doc::Break(" ").group());
            }
            parts.push(item);
        }
        Doc::Concat(parts)
    }

    /// Items with breaks that go together.
    pub fn join(items: Vec<Doc>, separator: &'static str) -> Doc {
        let mut parts = Vec::with_capacity(items.len() * 2);
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                parts.push(Doc::Break(separator));
            }
            parts.push(item);
        }
        Doc::Concat(parts)
    }

    /// Writes the text from column 0.
    pub fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut column = 0;
        let mut agenda = vec![(0, false, self)];
        while let Some((indent, flat, doc)) = agenda.pop() {
            match doc {
                Doc::Text(text) => {
                    f.write_str(text)?;
                    column += text.chars().count();
                }
                Doc::Break(text) if flat => {
                    f.write_str(text)?;
                    column += text.len();
                }
                Doc::Break(_) => {
                    write!(f, "\n{:indent$}", "")?;
                    column = indent;
                }
                Doc::Concat(parts) => agenda.extend(parts.iter().rev().map(|part| (indent, flat, part))),
                Doc::Nest(columns, inner) => agenda.push((indent + columns, flat, inner)),
                Doc::Group(inner) => {
                    let flat = flat || inner.fits(WIDTH.saturating_sub(column));
                    agenda.push((indent, flat, inner));
                }
            }
        }
        Ok(())
    }

    fn fits(&self, width: usize) -> bool {
        let mut left = width;
        let mut agenda = vec![self];
        while let Some(doc) = agenda.pop() {
            let size = match doc {
                Doc::Text(text) => text.chars().count(),
                Doc::Break(text) => text.len(),
                Doc::Concat(parts) => {
                    agenda.extend(parts.iter().rev());
                    0
                }
                Doc::Nest(_, inner) | Doc::Group(inner) => {
                    agenda.push(inner);
                    0
                }
            };
            let Some(rest) = left.checked_sub(size) else { return false };
            left = rest;
        }
        true
    }
}
