//! The agent's log, on standard error: one line for what is news, with its time. Enters: what is so; leaves: lines. What
//! changes all the time is not said all the time.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::now;
use crate::harmless::harmless;

/// How many changes of one thing are said at once ...
const AT_ONCE: u32 = 10;
/// ... and how often one more is.
const PACE: Duration = Duration::from_secs(60);

/// Lines that wait for whoever reads the log.
const WAITING: usize = 1024;
/// How long the last lines are waited for.
const LAST: Duration = Duration::from_secs(1);

enum Said {
    Line(String),
    /// Everything before this was written.
    End(SyncSender<()>),
}

static WRITER: OnceLock<SyncSender<Said>> = OnceLock::new();
/// Lines that found no room.
static UNSAID: AtomicU64 = AtomicU64::new(0);

/// From here on lines are written by a thread of their own: a log that nobody reads holds up nothing else. Lines that find no
/// room are counted, and the count is said.
pub(super) fn begin() {
    let (to, lines) = sync_channel(WAITING);
    let write = move || {
        for said in lines {
            match said {
                Said::Line(line) => {
                    let unsaid = UNSAID.swap(0, Ordering::Relaxed);
                    if unsaid > 0 {
                        write_line(&format!(
                            "{} firedoor: {unsaid} lines were not written, nobody read them",
                            now()
                        ));
                    }
                    write_line(&line);
                }
                Said::End(done) => drop(done.send(())),
            }
        }
    };
    if std::thread::Builder::new().name("log".to_owned()).spawn(write).is_ok() {
        let _ = WRITER.set(to);
    }
}

/// Waits for the last lines, but not for ever.
pub(super) fn end() {
    let (done, written) = sync_channel(1);
    if WRITER.get().is_some_and(|writer| writer.try_send(Said::End(done)).is_ok()) {
        let _ = written.recv_timeout(LAST);
    }
}

fn write_line(line: &str) {
    // A log that cannot be written is no reason to stop watching.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes a line. What others say may be in it.
pub(super) fn log(line: &str) {
    let line = format!("{} firedoor: {}", now(), harmless(line));
    match WRITER.get() {
        None => write_line(&line),
        Some(writer) => {
            if writer.try_send(Said::Line(line)).is_err() {
                UNSAID.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// What was said of one thing.
pub(super) struct Saying {
    said: Vec<String>,
    left: u32,
    counted: Option<Instant>,
}

impl Default for Saying {
    fn default() -> Self {
        Self { said: Vec::new(), left: AT_ONCE, counted: None }
    }
}

impl Saying {
    /// Which of the lines that hold now are to be said. Asked now and then, also when nothing changed: what was held
    /// back is said later, if it still holds. Lines that differ in figures only are the same.
    pub(super) fn news<'a>(&mut self, now: &'a [String], at: Instant) -> Vec<&'a str> {
        if self.said == now {
            return Vec::new();
        }
        let news: Vec<&str> = now
            .iter()
            .map(String::as_str)
            .filter(|line| !self.said.iter().any(|said| alike(said, line)))
            .collect();
        if !news.is_empty() && !self.may_say(at) {
            return Vec::new();
        }
        self.said = now.to_vec();
        news
    }

    fn may_say(&mut self, at: Instant) -> bool {
        let counted = *self.counted.get_or_insert(at);
        let more = u32::try_from(at.duration_since(counted).as_secs() / PACE.as_secs()).unwrap_or(u32::MAX);
        if more > 0 {
            self.counted = Some(at);
        }
        self.left = self.left.saturating_add(more).min(AT_ONCE);
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

fn alike(a: &str, b: &str) -> bool {
    let words = |line: &str| line.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    words(a) == words(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(all: &[&str]) -> Vec<String> {
        all.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn only_news_is_said() {
        let (mut saying, at) = (Saying::default(), Instant::now());
        assert_eq!(saying.news(&lines(&["3 objects", "a"]), at), ["3 objects", "a"]);
        assert!(saying.news(&lines(&["4 objects", "a"]), at).is_empty());
        assert!(saying.news(&lines(&["a"]), at).is_empty());
        assert_eq!(saying.news(&lines(&["5 objects"]), at), ["5 objects"]);
    }

    #[test]
    fn what_changes_all_the_time_is_said_now_and_then_and_its_end_in_any_case() {
        let (mut saying, begun) = (Saying::default(), Instant::now());
        let mut said = Vec::new();
        for step in 0..6_000_u32 {
            let line = if step % 2 == 0 { "up" } else { "down" };
            let at = begun + Duration::from_millis(100) * step;
            said.extend(saying.news(&lines(&[line]), at).into_iter().map(str::to_owned));
        }
        assert!((11..=21).contains(&said.len()), "{} lines in ten minutes", said.len());
        let last = lines(&["at last"]);
        let mut late = |seconds| saying.news(&last, begun + Duration::from_secs(seconds)).len();
        assert_eq!(late(601) + late(661), 1);
    }
}
