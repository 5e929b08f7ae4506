//! What is observed, on its way into a file. What cannot be written ends the recording loudly: half a recording
//! that passes for a whole one is worse than none.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use firedoor_core::observation::Observation;

use super::AgentError;
use crate::capture::sockets;

/// What is observed, on its way into a file.
pub(super) struct Recording {
    path: PathBuf,
    file: BufWriter<std::fs::File>,
    failed: Option<std::io::Error>,
}

impl Recording {
    pub(super) fn create(directory: &Path) -> Result<Self, AgentError> {
        let path = directory.join("sockets.jsonl");
        let create = || {
            std::fs::create_dir_all(directory)?;
            std::fs::OpenOptions::new().create_new(true).append(true).open(&path)
        };
        match create() {
            Ok(file) => Ok(Self { path, file: BufWriter::new(file), failed: None }),
            Err(why) => Err(AgentError::Record { path, why }),
        }
    }

    pub(super) fn write(&mut self, observation: &Observation<'_>) {
        if self.failed.is_none()
            && let Err(why) = sockets::write(&mut self.file, observation)
        {
            self.failed = Some(why);
        }
    }

    /// Brings everything to the file; what could not be written ends the recording loudly.
    pub(super) fn settle(&mut self) -> Result<(), AgentError> {
        let failed = self.failed.take().or_else(|| self.file.flush().err());
        failed.map_or(Ok(()), |why| Err(AgentError::Record { path: self.path.clone(), why }))
    }
}
