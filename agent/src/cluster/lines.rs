//! Lines of a stream. Enters: bytes in any pieces; leaves: whole lines of bounded length. Must not know what is in them.

/// Cuts a stream into lines.
#[derive(Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// How much of the buffer has been given out.
    start: usize,
    /// How far the buffer was searched for an end.
    searched: usize,
    /// In a line that is too long, and left out until it ends.
    skipping: bool,
}

/// What is next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Line<'b> {
    /// A line, without its end.
    Whole(&'b [u8]),
    /// There was a line longer than any object is.
    TooLong,
}

impl Lines {
    pub(super) fn push(&mut self, piece: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start.min(self.searched);
            self.start = 0;
        }
        self.buffer.extend_from_slice(piece);
    }

    /// The next line, if it is complete. Lines longer than `most` are left out.
    pub(super) fn next(&mut self, most: usize) -> Option<Line<'_>> {
        let from = self.searched.max(self.start);
        let end = self.buffer.get(from..)?.iter().position(|byte| *byte == b'\n').map(|at| at + from);
        let Some(end) = end else {
            if self.buffer.len() - self.start > most {
                self.skipping = true;
                self.buffer.clear();
                self.start = 0;
            }
            self.searched = self.buffer.len();
            if self.buffer.len() == self.start {
                // Nothing is waiting: a burst's memory goes back.
                self.buffer = Vec::new();
                (self.start, self.searched) = (0, 0);
            }
            return None;
        };
        let line = self.start..end;
        self.start = end + 1;
        self.searched = self.start;
        if std::mem::take(&mut self.skipping) || line.len() > most {
            return Some(Line::TooLong);
        }
        self.buffer.get(line).map(Line::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&str], most: usize) -> Vec<String> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            lines.push(piece.as_bytes());
            while let Some(line) = lines.next(most) {
                found.push(match line {
                    Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                    Line::TooLong => "(too long)".to_owned(),
                });
            }
        }
        found
    }

    #[test]
    fn lines_come_out_whole_however_they_came() {
        let text = "one\ntwo\n\nthree\nfour, unfinished";
        for size in 1..text.len() {
            let bytes = text.as_bytes().chunks(size);
            let pieces: Vec<&str> = bytes.map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            assert_eq!(cut(&pieces, 100), ["one", "two", "", "three"], "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let long = "x".repeat(50);
        assert_eq!(cut(&[&long, &long, &long, "\nshort\n", &long, "\n"], 60), ["(too long)", "short", &long]);
        let mut lines = Lines::default();
        for _ in 0..1000 {
            lines.push(long.as_bytes());
            assert!(lines.next(60).is_none());
            assert!(lines.buffer.len() <= 120);
        }
    }
}
