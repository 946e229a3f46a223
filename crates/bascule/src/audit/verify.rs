//! Checks a log from its first line to its last, with constant memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::chain::{ChainPosition, LineFault, MAX_LINE, Opening};
use super::file::{self, Lock};
use super::head::Head;

const BUFFER: usize = 1 << 20;

/// A log without a fault.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) chain: String,
    pub(crate) lines: u64,
    pub(crate) hash: String,
    /// Incomplete lines that a later run has removed and recorded.
    pub(crate) interrupted: u64,
    /// Lines at the end that the side file does not count: a bridge was killed after it wrote them.
    pub(crate) uncounted: u64,
    /// The last line is incomplete, and no bridge has gone on after it yet.
    pub(crate) is_incomplete: bool,
}

/// The first fault of a log.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Counted from 1. `None`: the fault is none of one line.
    pub(crate) line: Option<u64>,
    pub(crate) reason: String,
}

/// Checks the file against its chain and its side file. Fails if a file cannot be read.
pub(crate) fn verify(path: &Path) -> io::Result<Result<Verified, Fault>> {
    verify_around(path, || ())
}

/// Runs `before_lock` between the two parts of the check.
pub(super) fn verify_around(path: &Path, before_lock: impl FnOnce()) -> io::Result<Result<Verified, Fault>> {
    let log = File::open(path)?;
    let Some(head_file) = file::open_head_for_reading(path)? else {
        let reason = format!(
            "the side file `{}` is missing: without it nobody can tell that the end was cut off",
            file::head_path(path).display()
        );
        return Ok(Err(Fault { line: None, reason }));
    };
    let mut check = Check::new(log);
    // Most of it is read without the lock, for which bridges would wait. A fault may be a line that one is writing or removing.
    let _ = check.read_lines()?;
    before_lock();
    let _lock = Lock::shared(&head_file)?;
    check.go_back()?;
    if let Err(fault) = check.read_lines()? {
        return Ok(Err(fault));
    }
    let head = Head::read(&head_file)?;
    Ok(match head {
        Some(head) => check.compare(&head, path)?,
        None => Err(Fault { line: None, reason: "the side file is empty: its content was removed".into() }),
    })
}

struct Check {
    reader: BufReader<File>,
    position: ChainPosition,
    /// The first line.
    opening: Option<Opening>,
    /// Lines of the file so far.
    read: u64,
    interrupted: u64,
    /// The beginning of a line without an end.
    partial: Vec<u8>,
}

impl Check {
    fn new(log: File) -> Self {
        let reader = BufReader::with_capacity(BUFFER, log);
        let position = ChainPosition::START;
        Self { reader, position, opening: None, read: 0, interrupted: 0, partial: Vec::new() }
    }

    /// Goes back to the end of the last line that was right. Lines that a failed write has left and removed again are forgotten.
    fn go_back(&mut self) -> io::Result<()> {
        if !file::has_line_end(self.reader.get_ref(), &self.position)? {
            (self.position, self.opening, self.interrupted) = (ChainPosition::START, None, 0);
        }
        self.partial.clear();
        self.read = self.position.lines;
        self.reader.seek(SeekFrom::Start(self.position.bytes)).map(drop)
    }

    /// Reads to the end of the file. The rest of a line that had no end yet is read too.
    fn read_lines(&mut self) -> io::Result<Result<(), Fault>> {
        loop {
            let room = MAX_LINE + 1 - self.partial.len();
            let read = (&mut self.reader).take(room as u64).read_until(b'\n', &mut self.partial)?;
            if read == 0 {
                return Ok(Ok(()));
            }
            let mut line = std::mem::take(&mut self.partial);
            if line.pop_if(|last| *last == b'\n').is_some() {
                if let Err(fault) = self.check(&line) {
                    return Ok(Err(fault));
                }
                line.clear();
            } else if line.len() > MAX_LINE {
                return Ok(Err(Fault::at(self.read + 1, &LineFault::NoLine)));
            }
            self.partial = line;
        }
    }

    fn check(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.read += 1;
        self.position.check(line).map_err(|fault| Fault::at(self.read, &fault))?;
        self.interrupted += u64::from(is_repair(line));
        if self.read == 1 {
            self.opening = Opening::parse(line);
        }
        Ok(())
    }

    /// Compares the end of the file with the side file.
    fn compare(self, head: &Head, path: &Path) -> io::Result<Result<Verified, Fault>> {
        let ChainPosition { lines, bytes, hash } = &self.position;
        let fault = |line, reason: String| Ok(Err(Fault { line, reason }));
        let counted = &head.position;
        if counted.lines > *lines {
            let reason = format!(
                "the end was cut off: the log has {lines} complete lines, and its side file counts {}",
                counted.lines
            );
            return fault(Some(self.read + 1), reason);
        }
        let is_same = match counted.lines == *lines {
            true => (counted.bytes, counted.hash) == (*bytes, *hash),
            // The place that the side file names is within the log.
            false => file::has_line_end(&File::open(path)?, counted)?,
        };
        if !is_same {
            let reason = format!(
                "the log and its side file do not belong together: line {} of the chain has another hash",
                counted.lines
            );
            return fault(None, reason);
        }
        if self.read > 0 && !self.opening.is_some_and(|opening| opening.is_of(&head.chain, &head.key)) {
            let reason =
                "the log and its side file do not belong together: the first line has another chain or key";
            return fault(None, reason.into());
        }
        Ok(Ok(Verified {
            chain: head.chain.clone(),
            lines: *lines,
            hash: String::from_utf8_lossy(hash).into_owned(),
            interrupted: self.interrupted,
            uncounted: lines - counted.lines,
            is_incomplete: !self.partial.is_empty(),
        }))
    }
}

impl Fault {
    fn at(line: u64, fault: &LineFault) -> Self {
        Self { line: Some(line), reason: fault.to_string() }
    }
}

/// Returns true for a line that records the removal of an incomplete one.
fn is_repair(line: &[u8]) -> bool {
    let members = line.iter().position(|byte| *byte == b',').map_or(&[][..], |comma| &line[comma + 1..]);
    members.starts_with(br#""kind":"repair""#)
}

/// Checks the lines that were appended after `from`. Returns the place after them, and the incomplete rest. `None`: they do
/// not continue the chain.
pub(super) fn catch_up(from: &ChainPosition, text: &[u8]) -> Option<(ChainPosition, Vec<u8>)> {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let (lines, rest) = text.split_at(end);
    let mut position = from.clone();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        position.check(&line[..line.len() - 1]).ok()?;
    }
    Some((position, rest.to_vec()))
}
