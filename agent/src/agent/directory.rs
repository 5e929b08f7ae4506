//! The cluster's objects from a directory, in place of an API server. Enters: files that others write while they are
//! read; leaves: the objects of all of them, whenever that changed. What cannot be read takes nothing away: what it held
//! before stays, and is told to be out of date.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use firedoor_core::object::Object;
use firedoor_core::time::Timestamp;

use super::board::InventoryShown;
use crate::capture::objects::{self, Piece};
use crate::capture::{Below, Problems, files_below, shown};

/// How often the files are looked at ...
const LOOK: Duration = Duration::from_millis(100);
/// ... unless that takes more than one part in so many of the time, as it does with thousands of files; but no more
/// seldom than `SELDOM`.
const LOOK_SHARE: u32 = 200;
const SELDOM: Duration = Duration::from_secs(60);
/// Problems that are told one by one.
const TOLD: usize = 20;

/// What tells whether a file changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, Option<SystemTime>);

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self(metadata.len(), metadata.modified().ok())
    }
}

/// A file, as it was read last.
#[derive(Default)]
struct Held {
    /// As it was when it was read; `None`: it was not yet.
    read: Option<Stamp>,
    /// As it was at the last look, when that was something else. Whoever writes it may not be done.
    changing: Option<Change>,
    objects: Vec<Object>,
    problems: Vec<String>,
    /// Since when `objects` are those of an earlier form, because the one after it is damaged.
    outdated: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Written(Stamp),
    Gone,
}

/// A directory of objects.
pub(super) struct Directory {
    path: PathBuf,
    files: BTreeMap<PathBuf, Held>,
    /// Since when it cannot be read, and why.
    unreadable: Option<(Timestamp, String)>,
    /// Passed over.
    skipped: Vec<String>,
    /// What changed is taken at once, and not only when it has stopped changing.
    eager: bool,
    next: Instant,
    told: InventoryShown,
}

/// What a look found.
pub(super) struct Found {
    /// All objects; `None`: those of the last time.
    pub(super) objects: Option<Vec<Object>>,
    pub(super) shown: InventoryShown,
}

impl Directory {
    /// # Errors
    /// When it cannot be read now.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        std::fs::read_dir(path)?;
        Ok(Self {
            path: path.to_owned(),
            files: BTreeMap::new(),
            unreadable: None,
            skipped: Vec::new(),
            eager: true,
            next: Instant::now(),
            told: InventoryShown::default(),
        })
    }

    /// The next look comes now, and reads everything.
    pub(super) fn again(&mut self) {
        self.files.values_mut().for_each(|held| held.read = None);
        (self.eager, self.next) = (true, Instant::now());
    }

    /// What changed since the last time, if it is time to look. A file is read when it is the same at two looks, and
    /// gone when it is missing at two: files that are being replaced take nothing away meanwhile.
    pub(super) fn changed(&mut self, at: Timestamp) -> Option<Found> {
        let began = Instant::now();
        if began < self.next {
            return None;
        }
        let walked = std::fs::read_dir(&self.path).map(|_| files_below(&self.path, &["yaml", "yml", "json"]));
        let changes = match walked {
            Ok(below) => {
                self.unreadable = None;
                self.changes(below)
            }
            Err(why) => {
                self.unreadable.get_or_insert((at, String::new())).1 = why.to_string();
                Vec::new()
            }
        };
        self.next = began + LOOK.max(began.elapsed() * LOOK_SHARE).min(SELDOM);
        let mut found = false;
        for (path, change) in changes {
            found |= match change {
                Change::Written(stamp) => self.files.entry(path.clone()).or_default().read(&path, stamp, at),
                Change::Gone => self.files.remove(&path).is_some_and(|held| !held.objects.is_empty()),
            };
        }
        // However little the first look finds: it is what there is.
        found |= !self.told.ready && self.unreadable.is_none();
        self.eager &= self.unreadable.is_some();
        let shown = self.shown();
        if !found && shown == self.told {
            return None;
        }
        self.told = shown.clone();
        let all = || self.files.values().flat_map(|held| held.objects.iter().cloned()).collect();
        Some(Found { objects: found.then(all), shown })
    }

    /// The changes that have come to an end.
    fn changes(&mut self, below: Below) -> Vec<(PathBuf, Change)> {
        let mut problems = Problems::default();
        problems.note_skipped(&below.skipped);
        let mut now: BTreeMap<PathBuf, Option<Stamp>> = BTreeMap::new();
        for path in below.files {
            match std::fs::metadata(&path) {
                Ok(metadata) => drop(now.insert(path, Some(Stamp::of(&metadata)))),
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => {
                    problems.note(&path, 0, format_args!("cannot be looked at: {why}"));
                    now.insert(path, None);
                }
            }
        }
        // Nobody can know what became of files in a directory that cannot be read.
        let hidden = |path: &Path| below.skipped.iter().any(|skipped| path.starts_with(&skipped.path));
        for path in self.files.keys().filter(|path| hidden(path)) {
            now.insert(path.clone(), None);
        }
        self.skipped = problems.lines().collect();
        for path in now.keys().filter(|path| !self.files.contains_key(*path)).cloned().collect::<Vec<_>>() {
            self.files.insert(path, Held::default());
        }
        let mut changes = Vec::new();
        for (path, held) in &mut self.files {
            let change = match now.get(path) {
                Some(None) => None,
                Some(Some(stamp)) => (held.read != Some(*stamp)).then_some(Change::Written(*stamp)),
                None => Some(Change::Gone),
            };
            match change {
                Some(change) if self.eager || held.changing == Some(change) => {
                    held.changing = None;
                    changes.push((path.clone(), change));
                }
                change => held.changing = change,
            }
        }
        changes
    }

    fn shown(&self) -> InventoryShown {
        let mut notes = Vec::new();
        if let Some((since, why)) = &self.unreadable {
            let path = shown(&self.path);
            notes.push(format!(
                "the inventory {path} cannot be read since {since}: {why}; what was known stays"
            ));
        }
        let problems: Vec<&String> =
            self.skipped.iter().chain(self.files.values().flat_map(|held| &held.problems)).collect();
        notes.extend(problems.iter().take(TOLD).copied().cloned());
        if let Some(more) = problems.len().checked_sub(TOLD).filter(|more| *more > 0) {
            notes.push(format!("the inventory has {more} more problems like these"));
        }
        let outdated = self.files.values().filter_map(|held| held.outdated);
        let unreadable = self.unreadable.as_ref().map(|(since, _)| *since);
        InventoryShown {
            ready: self.told.ready || self.unreadable.is_none(),
            stale_since: outdated.chain(unreadable).min(),
            notes,
        }
    }
}

impl Held {
    /// Reads the file. One that is damaged, for example because it was not written to its end, is no reason to forget
    /// what it held. Whether its objects are others now.
    fn read(&mut self, path: &Path, stamp: Stamp, at: Timestamp) -> bool {
        self.read = Some(stamp);
        let (mut found, mut damaged, mut problems) = (Vec::new(), false, Problems::default());
        match objects::text(path) {
            Ok(text) => objects::pieces(&text, &mut |line, piece| match piece {
                Piece::Object(object) => found.push(object),
                Piece::Foreign(what) => problems.note(path, line, what),
                Piece::Damaged(what) => {
                    damaged = true;
                    problems.note(path, line, what);
                }
            }),
            Err(what) => {
                // It may be another time, as it is.
                (self.read, damaged) = (None, true);
                problems.note(path, 0, what);
            }
        }
        self.problems = problems.lines().collect();
        if damaged && !self.objects.is_empty() {
            let since = *self.outdated.get_or_insert(at);
            let (path, held) = (shown(path), self.objects.len());
            self.problems.push(format!("{path}: the {held} objects it held before {since} stay"));
            return false;
        }
        let differ = !(found.is_empty() && self.objects.is_empty());
        self.objects = found;
        self.outdated = None;
        differ
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n";
    const TWO: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n";

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    /// A look now, whether or not it is time.
    fn look(directory: &mut Directory, seconds: u64) -> Option<Found> {
        directory.next = Instant::now();
        directory.changed(at(seconds))
    }

    fn number(found: Option<Found>) -> Option<usize> {
        found?.objects.map(|objects| objects.len())
    }

    #[test]
    fn what_changed_is_read_when_it_has_stopped_changing() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("pods.yaml");
        std::fs::write(&file, A).unwrap();
        let mut directory = Directory::new(root.path()).unwrap();
        assert_eq!(number(look(&mut directory, 1)), Some(1));
        assert!(look(&mut directory, 2).is_none());
        assert!(directory.changed(at(2)).is_none(), "not yet time");
        std::fs::write(&file, &TWO[..40]).unwrap();
        assert!(look(&mut directory, 3).is_none());
        std::fs::write(&file, TWO).unwrap();
        assert!(look(&mut directory, 4).is_none());
        assert_eq!(number(look(&mut directory, 5)), Some(2));
        assert!(Directory::new(&root.path().join("missing")).is_err());
    }

    /// As a ConfigMap's volume changes: a new folder, then the old one goes.
    #[test]
    fn files_that_are_replaced_by_others_are_never_gone() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (root.path().join("old.yaml"), root.path().join("new.yaml"));
        std::fs::write(&old, A).unwrap();
        let mut directory = Directory::new(root.path()).unwrap();
        assert_eq!(number(look(&mut directory, 1)), Some(1));
        std::fs::rename(&old, &new).unwrap();
        assert!(look(&mut directory, 2).is_none());
        assert_eq!(number(look(&mut directory, 3)), Some(1));
        std::fs::remove_file(&new).unwrap();
        assert!(look(&mut directory, 4).is_none());
        assert_eq!(number(look(&mut directory, 5)), Some(0));
    }

    #[test]
    fn a_damaged_file_takes_nothing_away() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("pods.yaml");
        std::fs::write(&file, TWO).unwrap();
        let mut directory = Directory::new(root.path()).unwrap();
        assert_eq!(number(look(&mut directory, 1)), Some(2));
        std::fs::write(&file, "apiVersion: v1\nkind: Pod\nmetadata: {name: [\n").unwrap();
        assert!(look(&mut directory, 2).is_none());
        let found = look(&mut directory, 3).unwrap();
        assert!(found.objects.is_none() && found.shown.ready);
        assert_eq!(found.shown.stale_since, Some(at(3)));
        let notes = found.shown.notes.join("\n");
        assert!(notes.contains("pods.yaml:") && notes.contains("the 2 objects it held before"), "{notes}");
        std::fs::write(&file, A).unwrap();
        assert!(look(&mut directory, 4).is_none());
        let found = look(&mut directory, 5).unwrap();
        assert_eq!(found.objects.map(|objects| objects.len()), Some(1));
        assert_eq!((found.shown.stale_since, found.shown.notes.len()), (None, 0));
    }

    #[test]
    fn a_directory_that_goes_is_told_once_and_takes_nothing_away() {
        let root = tempfile::tempdir().unwrap();
        let (here, away) = (root.path().join("here"), root.path().join("away"));
        std::fs::create_dir(&here).unwrap();
        std::fs::write(here.join("pods.yaml"), A).unwrap();
        let mut directory = Directory::new(&here).unwrap();
        assert_eq!(number(look(&mut directory, 1)), Some(1));
        std::fs::rename(&here, &away).unwrap();
        let found = look(&mut directory, 2).unwrap();
        assert!(found.objects.is_none() && found.shown.ready);
        assert_eq!(found.shown.stale_since, Some(at(2)));
        assert!(found.shown.notes[0].contains("here cannot be read since"), "{:?}", found.shown.notes);
        assert!(look(&mut directory, 3).is_none());
        std::fs::rename(&away, &here).unwrap();
        let found = look(&mut directory, 4).unwrap();
        assert!(found.objects.is_none() && found.shown.stale_since.is_none());
    }
}
