//! What is observed, on its way into the files of a capture. What cannot be written ends the recording loudly: half a
//! recording that passes for a whole one is worse than none.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use firedoor_core::observation::{Observation, SourceKind};

use super::AgentError;
use crate::capture::sockets;
use crate::hubble;

const SOCKETS: &str = "sockets.jsonl";
const FLOWS: &str = "flows.jsonl";

/// What is observed, on its way into files.
pub(super) struct Recording {
    directory: PathBuf,
    sockets: Option<BufWriter<File>>,
    flows: Option<BufWriter<File>>,
    failed: Option<io::Error>,
}

impl Recording {
    /// Creates the files of these sources, none of which may exist.
    pub(super) fn create(directory: &Path, sources: &[SourceKind]) -> Result<Self, AgentError> {
        let file = |kind, name: &str| -> Result<Option<BufWriter<File>>, AgentError> {
            if !sources.contains(&kind) {
                return Ok(None);
            }
            let path = directory.join(name);
            let created = std::fs::create_dir_all(directory)
                .and_then(|()| OpenOptions::new().create_new(true).append(true).open(&path));
            created.map(|file| Some(BufWriter::new(file))).map_err(|why| AgentError::Record { path, why })
        };
        Ok(Self {
            sockets: file(SourceKind::Ebpf, SOCKETS)?,
            flows: file(SourceKind::Hubble, FLOWS)?,
            directory: directory.to_owned(),
            failed: None,
        })
    }

    pub(super) fn write(&mut self, observation: &Observation<'_>) {
        if self.failed.is_some() {
            return;
        }
        let of_kernel = match observation {
            Observation::Drops(_) | Observation::Socket(_) => true,
            Observation::Flow(_) | Observation::Blind { .. } | Observation::Reached { .. } => false,
            Observation::Lost(loss) => loss.source == SourceKind::Ebpf,
        };
        let written = match (of_kernel, &mut self.sockets, &mut self.flows) {
            (true, Some(file), _) => sockets::write(file, observation),
            (false, _, Some(file)) => hubble::write::write(file, observation),
            _ => Ok(()),
        };
        self.failed = written.err();
    }

    /// Brings everything to the files.
    ///
    /// # Errors
    /// When something could not be written, now or before: the recording is not whole.
    pub(super) fn settle(&mut self) -> Result<(), AgentError> {
        let flush = |file: &mut Option<BufWriter<File>>| file.as_mut().map_or(Ok(()), |file| file.flush());
        let failed = self
            .failed
            .take()
            .or_else(|| flush(&mut self.sockets).err())
            .or_else(|| flush(&mut self.flows).err());
        failed.map_or(Ok(()), |why| Err(AgentError::Record { path: self.directory.clone(), why }))
    }
    /// Whether the files are still where they were created: who removes them while they are written keeps nothing.
    ///
    /// # Errors
    /// When one is not.
    pub(super) fn is_there(&self) -> Result<(), AgentError> {
        for (file, name) in [(&self.sockets, SOCKETS), (&self.flows, FLOWS)] {
            let Some(file) = file else { continue };
            let path = self.directory.join(name);
            let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
            let there = std::fs::metadata(&path).map(place);
            let why = match (there, file.get_ref().metadata().map(place)) {
                (Ok(there), Ok(ours)) if there != ours => io::Error::other("it was replaced by another file"),
                (Err(why), _) | (_, Err(why)) => why,
                _ => continue,
            };
            return Err(AgentError::Record { path, why });
        }
        Ok(())
    }
}
