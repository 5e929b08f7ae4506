//! Lines of a file, plain or compressed, read as a stream. Enters: a path; leaves: one line at a time in a buffer
//! that is used again. Memory does not grow with the file, nor with a line that never ends.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memchr;

/// A longer line is no flow: it is skipped and counted.
pub const MAX_LINE: usize = 1 << 20;
const BUFFER: usize = 1 << 18;

/// What came out of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end, is in the buffer.
    Whole,
    /// The last line, without an end: it may be cut off.
    Unended,
    /// A line that was too long; the buffer holds its beginning.
    TooLong,
    /// The file is at its end.
    End,
}

/// Counts the bytes that were read from disk, for progress.
struct Counted {
    file: File,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Reads a file line by line.
pub struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    number: u64,
}

impl Lines {
    /// Opens a file; by its first bytes it is gzip, zstd or plain, whatever its name says. `bytes` is advanced
    /// by what is read from disk.
    ///
    /// # Errors
    /// When the file cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path, bytes: Arc<AtomicU64>) -> io::Result<Self> {
        let mut raw = BufReader::with_capacity(BUFFER, Counted { file: File::open(path)?, bytes });
        let magic = raw.fill_buf()?;
        let reader: Box<dyn BufRead> = if magic.starts_with(&[0x1f, 0x8b]) {
            Box::new(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(raw)))
        } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Box::new(BufReader::with_capacity(BUFFER, zstd::Decoder::with_buffer(raw)?))
        } else {
            Box::new(raw)
        };
        Ok(Self { path: path.to_owned(), reader, number: 0 })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the line that was read last, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Reads the next line into `line`, whose old content is dropped.
    ///
    /// # Errors
    /// When reading or decompressing fails; `line` holds what came before.
    pub fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Line> {
        line.clear();
        self.number += 1;
        let mut too_long = false;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                return Ok(match (line.is_empty(), too_long) {
                    (_, true) => Line::TooLong,
                    (true, false) => Line::End,
                    (false, false) => Line::Unended,
                });
            }
            let (chunk, used, ended) = match memchr(b'\n', available) {
                Some(at) => (&available[..at], at + 1, true),
                None => (available, available.len(), false),
            };
            if line.len() + chunk.len() > MAX_LINE {
                too_long = true;
            } else if !too_long {
                line.extend_from_slice(chunk);
            }
            self.reader.consume(used);
            if ended {
                return Ok(if too_long { Line::TooLong } else { Line::Whole });
            }
        }
    }
}
