//! The record of a traced server: the operations that the kernel refused to it.
//!
//! The bridge creates a file in memory, the tracers of the server's processes append to it, and the bridge reads it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::file_verdict::FileNeed;

/// A refused system call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RefusedSyscall {
    /// The name of the system call.
    pub call: String,
    pub operation: RefusedOperation,
    /// The error that the call returned; 0 if its process was killed.
    pub errno: i32,
}

/// The purpose of a refused system call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RefusedOperation {
    File {
        path: String,
        need: FileNeed,
    },
    /// Changes the mode, owner, times or attributes of a file.
    Attributes {
        path: String,
    },
    Socket {
        family: i32,
    },
    /// Starts a process or thread.
    Process,
    Memory {
        bytes: u64,
    },
    OpenFile,
    /// Signals a process outside of the sandbox.
    Signal,
    /// The filter killed the process.
    Killed,
    Other,
}

/// The bridge's end of the record.
#[derive(Debug)]
pub struct TraceLog(File);

impl TraceLog {
    pub fn create() -> io::Result<Self> {
        Ok(Self(memfd_create("bascule-trace", MemfdFlags::CLOEXEC)?.into()))
    }

    /// The descriptor for a jail. All jails share one position, so that they append.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// Returns all calls so far, in order.
    pub fn read(&self) -> io::Result<Vec<RefusedSyscall>> {
        let length = self.0.metadata()?.len().min(MAX_LINES as u64 * MAX_LINE_BYTES as u64);
        let mut text = vec![0; length as usize];
        self.0.read_exact_at(&mut text, 0)?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

const MAX_LINES: usize = 20_000;
const MAX_LINE_BYTES: usize = 8 << 10;
/// Equal calls beyond this number are not recorded.
const MAX_REPETITIONS: u32 = 100;

/// A tracer's end of the record.
pub(crate) struct TraceWriter {
    file: File,
    lines: usize,
    seen: HashMap<RefusedSyscall, u32>,
}

impl TraceWriter {
    pub(crate) fn new(file: File) -> Self {
        Self { file, lines: 0, seen: HashMap::new() }
    }

    pub(crate) fn write(&mut self, call: RefusedSyscall) {
        let seen = self.seen.get(&call).copied().unwrap_or(0);
        if self.lines >= MAX_LINES || seen >= MAX_REPETITIONS {
            return;
        }
        let Ok(mut line) = serde_json::to_vec(&call) else { return };
        line.push(b'\n');
        if line.len() <= MAX_LINE_BYTES && self.file.write_all(&line).is_ok() {
            self.lines += 1;
            self.seen.insert(call, seen + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-09
    #[test]
    fn reads_what_tracers_wrote_and_bounds_repetitions() {
        let log = TraceLog::create().unwrap();
        let writer = || TraceWriter::new(log.descriptor().unwrap().into());
        let (mut one, mut other) = (writer(), writer());
        let call =
            |errno| RefusedSyscall { call: "openat".into(), operation: RefusedOperation::Other, errno };
        one.write(call(1));
        other.write(call(13));
        (0..1000).for_each(|_| one.write(call(1)));
        let read = log.read().unwrap();
        assert_eq!(read[..3], [call(1), call(13), call(1)]);
        assert_eq!(read.len(), MAX_REPETITIONS as usize + 1);
    }
}
