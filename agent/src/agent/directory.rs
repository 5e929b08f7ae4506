//! The cluster's objects from a directory, in place of an API server. Enters: files that others write while they are
//! read; leaves: the objects of all of them, whenever that changed. What cannot be read takes nothing away: what it held
//! before stays, and is told to be out of date.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use firedoor_core::object::Object;
use firedoor_core::time::Timestamp;

use super::board::InventoryShown;
use crate::capture::objects::{self, Piece};
use crate::capture::{Problems, files_below, shown};

/// How often the files are looked at ...
const LOOK: Duration = Duration::from_millis(100);
/// ... unless that takes more than one part in so many of the time, as it does with thousands of files; but no more
/// seldom than `SELDOM`. Those that are changing are looked at every time.
const LOOK_SHARE: u32 = 200;
const SELDOM: Duration = Duration::from_secs(60);
/// What does not stop changing is taken as it is after so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Problems that are told one by one.
const TOLD: usize = 20;

/// What tells whether a file changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    /// Device and inode.
    identity: (u64, u64),
    size: u64,
    modified: (i64, i64),
    /// Nobody can set it: files may come with the modification time of others.
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            identity: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether it is another file, and not one that is written anew: whoever renames it to its place has written it to
    /// its end. One that has nothing in it yet was made in its place.
    fn replaces(&self, other: &Self) -> bool {
        self.identity != other.identity && self.size > 0
    }
}

/// A file, as it was read last.
#[derive(Default)]
struct Held {
    /// As it was when it was read; `None`: it could not be.
    read: Option<Stamp>,
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

impl Change {
    /// What became of a file, if anybody can know.
    fn of(path: &Path) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(Self::Written(Stamp::of(&metadata))),
            Ok(_) => Ok(Self::Gone),
            Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Self::Gone)
            }
            Err(why) => Err(why),
        }
    }
}

/// A change that may go on: whoever makes it may not be done.
struct Pending {
    /// As it was at the last look.
    change: Change,
    since: Instant,
}

/// By path, what changed or not; `None`: nobody can know.
type Seen = BTreeMap<PathBuf, Option<Change>>;

/// A directory of objects.
pub(super) struct Directory {
    path: PathBuf,
    files: BTreeMap<PathBuf, Held>,
    pending: BTreeMap<PathBuf, Pending>,
    /// Since when it cannot be read, and why.
    unreadable: Option<(Timestamp, String)>,
    /// Passed over.
    skipped: Vec<String>,
    /// What changed is taken at once, and not only when it has stopped changing.
    eager: bool,
    /// When something is looked at again ...
    next: Instant,
    /// ... and when everything is.
    next_walk: Instant,
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
            pending: BTreeMap::new(),
            unreadable: None,
            skipped: Vec::new(),
            eager: true,
            next: Instant::now(),
            next_walk: Instant::now(),
            told: InventoryShown::default(),
        })
    }

    /// The next look comes now, and reads everything.
    pub(super) fn again(&mut self) {
        self.files.values_mut().for_each(|held| held.read = None);
        self.eager = true;
        (self.next, self.next_walk) = (Instant::now(), Instant::now());
    }

    /// What changed since the last time, if it is time to look.
    pub(super) fn changed(&mut self, at: Timestamp) -> Option<Found> {
        self.look(Instant::now(), at)
    }

    fn look(&mut self, now: Instant, at: Timestamp) -> Option<Found> {
        let walks = now >= self.next_walk;
        if now < self.next || (!walks && self.pending.is_empty()) {
            return None;
        }
        let looked = std::fs::read_dir(&self.path).map(|_| if walks { self.walk() } else { self.glance() });
        let changes = match looked {
            Ok(seen) => {
                self.unreadable = None;
                self.settled(seen, walks, now)
            }
            Err(why) => {
                self.unreadable.get_or_insert((at, String::new())).1 = why.to_string();
                self.pending.clear();
                Vec::new()
            }
        };
        self.next = now + LOOK;
        if walks {
            self.next_walk = now + LOOK.max(now.elapsed() * LOOK_SHARE).min(SELDOM);
        }
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

    /// All files there are and were.
    fn walk(&mut self) -> Seen {
        let below = files_below(&self.path, &["yaml", "yml", "json"]);
        let mut problems = Problems::default();
        problems.note_skipped(&below.skipped);
        let mut seen = Seen::new();
        for path in below.files {
            let change = Change::of(&path);
            if let Err(why) = &change {
                problems.note(&path, 0, format_args!("cannot be looked at: {why}"));
            }
            seen.insert(path, change.ok());
        }
        self.skipped = problems.lines().collect();
        // Nobody can know what became of files in a directory that cannot be read.
        let hidden = |path: &Path| below.skipped.iter().any(|skipped| path.starts_with(&skipped.path));
        for path in self.files.keys() {
            if !seen.contains_key(path) {
                seen.insert(path.clone(), (!hidden(path)).then_some(Change::Gone));
            }
        }
        seen
    }

    /// The files that were changing at the last look.
    fn glance(&self) -> Seen {
        self.pending.keys().map(|path| (path.clone(), Change::of(path).ok())).collect()
    }

    /// The changes that have come to an end: a file was replaced by another one, or is the same as at the last look.
    /// Files that are missing are gone when all was looked at again and nothing is about to take their place.
    fn settled(&mut self, seen: Seen, walks: bool, now: Instant) -> Vec<(PathBuf, Change)> {
        let before = std::mem::take(&mut self.pending);
        let read = |path: &Path| self.files.get(path).and_then(|held| held.read);
        let news = seen.into_iter().filter_map(|(path, change)| Some((path, change?)));
        let news = news.filter(|(path, change)| match change {
            Change::Written(stamp) => read(path) != Some(*stamp),
            Change::Gone => self.files.contains_key(path),
        });
        let (gone, written): (Vec<_>, Vec<_>) = news.partition(|(_, change)| *change == Change::Gone);
        let (mut settled, mut coming) = (Vec::new(), false);
        for (path, change) in written.into_iter().chain(gone) {
            let is_alike = |earlier: &&Pending| (earlier.change == Change::Gone) == (change == Change::Gone);
            let earlier = before.get(&path).filter(is_alike);
            let since = earlier.map_or(now, |earlier| earlier.since);
            let late = now.saturating_duration_since(since) >= PATIENCE;
            let same = earlier.is_some_and(|earlier| earlier.change == change);
            let over = match change {
                Change::Written(stamp) => {
                    same || late || read(&path).is_some_and(|read| stamp.replaces(&read))
                }
                Change::Gone => walks && same && (late || !coming),
            };
            if over || self.eager {
                settled.push((path, change));
            } else {
                coming |= !self.files.contains_key(&path);
                self.pending.insert(path, Pending { change, since });
            }
        }
        settled
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
        let differ = self.objects != found;
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

    /// A walk, whether or not it is time.
    fn look(directory: &mut Directory, seconds: u64) -> Option<Found> {
        (directory.next, directory.next_walk) = (Instant::now(), Instant::now());
        directory.changed(at(seconds))
    }

    /// A look between two walks, so many tenths of a second after `begin`.
    fn glance(directory: &mut Directory, begin: Instant, tenths: u32) -> Option<Found> {
        directory.next_walk = begin + SELDOM * 2;
        directory.look(begin + LOOK * tenths, at(100 + u64::from(tenths)))
    }

    /// The names of the objects there are now.
    fn names(found: Option<Found>) -> Option<Vec<String>> {
        let objects = found?.objects?;
        Some(objects.iter().map(|object| object.key().name.to_string()).collect())
    }

    fn pod(name: &str) -> String {
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n")
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

    /// A file of the same size and time, as `cp -p` and `rsync -t` may leave behind.
    #[test]
    fn a_file_that_is_renamed_to_its_place_is_read_at_once() {
        let root = tempfile::tempdir().unwrap();
        let (file, other) = (root.path().join("pods.yaml"), root.path().join("other"));
        std::fs::write(&file, pod("a")).unwrap();
        let mut directory = Directory::new(root.path()).unwrap();
        assert_eq!(names(look(&mut directory, 1)).unwrap(), ["a"]);
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        for name in ["b", "c"] {
            std::fs::write(&other, pod(name)).unwrap();
            std::fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
            std::fs::rename(&other, &file).unwrap();
            assert_eq!(names(look(&mut directory, 2)).unwrap(), [name]);
        }
        // Nothing is in it yet.
        std::fs::write(&other, "").unwrap();
        std::fs::rename(&other, &file).unwrap();
        assert!(look(&mut directory, 3).is_none());
        assert_eq!(number(look(&mut directory, 4)), Some(0));
    }

    /// However seldom all files are looked at.
    #[test]
    fn a_file_that_keeps_changing_is_read_in_the_end() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("pods.yaml");
        std::fs::write(&file, pod("a")).unwrap();
        let mut directory = Directory::new(root.path()).unwrap();
        assert_eq!(number(look(&mut directory, 1)), Some(1));
        let write = |tenths: u32| std::fs::write(&file, pod(&"b".repeat(tenths as usize + 2))).unwrap();
        write(0);
        assert!(look(&mut directory, 2).is_none());
        let begin = directory.next - LOOK;
        assert!(glance(&mut directory, begin, 0).is_none(), "not yet time");
        let taken = (1..100).find_map(|tenths| {
            write(tenths);
            Some((tenths, names(glance(&mut directory, begin, tenths))?))
        });
        let (tenths, names) = taken.unwrap();
        assert!(tenths == 50 && names[0].len() == 52, "{tenths}: {names:?}");
        assert!(glance(&mut directory, begin, 100).is_none(), "nothing is changing");
        // One that stops is read at the next look.
        write(1);
        assert!(look(&mut directory, 3).is_none());
        assert_eq!(number(glance(&mut directory, Instant::now(), 1)), Some(1));
    }

    /// And not before what takes the place of the old is there.
    #[test]
    fn only_a_walk_takes_away() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (root.path().join("old.yaml"), root.path().join("new.yaml"));
        std::fs::write(&old, pod("old")).unwrap();
        let mut directory = Directory::new(root.path()).unwrap();
        assert_eq!(number(look(&mut directory, 1)), Some(1));
        std::fs::remove_file(&old).unwrap();
        assert!(look(&mut directory, 2).is_none());
        let begin = directory.next - LOOK;
        for tenths in 1..100 {
            assert!(glance(&mut directory, begin, tenths).is_none(), "{tenths}");
        }
        // What takes its place is not written to its end yet.
        for name in ["n", "ne"] {
            std::fs::write(&new, pod(name)).unwrap();
            assert!(look(&mut directory, 3).is_none());
        }
        assert_eq!(names(look(&mut directory, 4)).unwrap(), ["ne"]);
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
