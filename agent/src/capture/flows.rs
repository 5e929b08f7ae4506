//! The flow and socket files of a capture as one stream in order of time. Enters: files; leaves: observations into a
//! pipeline. Files are merged by the times in their lines, not read one after the other, so that what two nodes
//! saw at the same time is seen together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use firedoor_core::observation::{Loss, Observation, SourceKind};
use firedoor_core::pipeline::Pipeline;
use firedoor_core::time::Timestamp;
use memchr::memmem;

use super::lines::{Line, Lines};
use super::{Layout, Problems, sockets};
use crate::hubble::{convert, json};

/// What the lines were, besides flows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Lines that hold something.
    pub lines: u64,
    /// Messages about lost events.
    pub lost: u64,
    /// A relay's news about its nodes.
    pub node_status: u64,
    /// Agent and debug events.
    pub other: u64,
    /// Kernel events of a kind that is not known.
    pub unknown: u64,
}

/// What the lines of a file are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Flows as messages of Hubble's API hold them.
    Responses,
    /// Flows as old command lines print them, without anything around them.
    PlainFlows,
    /// firedoor's own recording of the kernel.
    Sockets,
}

impl Form {
    fn kind(self) -> SourceKind {
        match self {
            Self::Responses | Self::PlainFlows => SourceKind::Hubble,
            Self::Sockets => SourceKind::Ebpf,
        }
    }
}

struct Source {
    lines: Lines,
    line: Vec<u8>,
    state: Line,
    form: Form,
    /// Reading failed: there is no next line.
    broken: bool,
}

impl Source {
    /// Reads on to the next line that holds something.
    fn advance(&mut self, problems: &mut Problems) {
        if self.broken {
            self.state = Line::End;
            return;
        }
        loop {
            match self.lines.next(&mut self.line) {
                Ok(Line::Whole | Line::Unended) if self.line.iter().all(u8::is_ascii_whitespace) => {}
                Ok(state) => {
                    self.state = state;
                    return;
                }
                Err(error) => {
                    let read = self.lines.number().saturating_sub(1);
                    problems.note(
                        self.lines.path(),
                        self.lines.number(),
                        format!("cannot read on: {error}; {read} lines before it were used"),
                    );
                    // What was decompressed of the line is still worth a look; nothing comes after it.
                    let partial = !self.line.iter().all(u8::is_ascii_whitespace);
                    self.state = if partial { Line::Unended } else { Line::End };
                    self.broken = true;
                    return;
                }
            }
        }
    }
}

/// Sends everything in the flow and socket files of a capture through the pipeline, and says what the lines were.
/// `progress` is called now and then; `bytes` counts what was read from disk.
pub fn replay(
    layout: &Layout,
    pipeline: &mut Pipeline,
    problems: &mut Problems,
    bytes: &Arc<AtomicU64>,
    progress: &mut dyn FnMut(),
) -> Tally {
    let mut tally = Tally::default();
    let mut sources = Vec::new();
    let flows = layout.flows.iter().map(|path| (path, Form::Responses));
    let sockets = layout.sockets.iter().map(|path| (path, Form::Sockets));
    for (path, form) in flows.chain(sockets) {
        match Lines::open(path, Arc::clone(bytes)) {
            Ok(lines) => {
                sources.push(Source { lines, line: Vec::new(), state: Line::End, form, broken: false })
            }
            Err(error) => problems.note(path, 0, format!("cannot open: {error}")),
        }
    }
    let mut queue: BinaryHeap<Reverse<(Timestamp, usize)>> = BinaryHeap::new();
    let merging = sources.len() > 1;
    for (index, source) in sources.iter_mut().enumerate() {
        source.advance(problems);
        if source.state != Line::End {
            queue.push(Reverse((time_of(&source.line).unwrap_or(Timestamp::MIN), index)));
        }
    }
    while let Some(Reverse((mut at, index))) = queue.pop() {
        let source = &mut sources[index];
        loop {
            tally.lines += 1;
            if tally.lines.is_multiple_of(16_384) {
                progress();
            }
            enter(source, pipeline, problems, &mut tally);
            source.advance(problems);
            if source.state == Line::End {
                break;
            }
            if merging {
                // A line without a time stays with the one before it.
                at = time_of(&source.line).unwrap_or(at);
                if queue.peek().is_some_and(|Reverse(first)| *first < (at, index)) {
                    queue.push(Reverse((at, index)));
                    break;
                }
            }
        }
    }
    tally
}

/// The first time in a line, found without parsing it.
fn time_of(line: &[u8]) -> Option<Timestamp> {
    const KEY: &[u8] = b"\"time\"";
    let rest = line.get(memmem::find(line, KEY)? + KEY.len()..)?;
    let open = rest.iter().position(|b| !b.is_ascii_whitespace() && *b != b':')?;
    let text = rest.get(open..)?.strip_prefix(b"\"")?;
    let text = text.get(..memchr::memchr(b'"', text)?)?;
    Timestamp::parse(std::str::from_utf8(text).ok()?)
}

fn enter(source: &mut Source, pipeline: &mut Pipeline, problems: &mut Problems, tally: &mut Tally) {
    if let Err(Damage { what, entered }) = take_line(source, pipeline, tally) {
        if !entered {
            pipeline.reject(source.form.kind());
        }
        problems.note(source.lines.path(), source.lines.number(), what);
    }
}

/// What is wrong with a line.
struct Damage {
    what: String,
    /// What the line says was used nevertheless, and is counted there.
    entered: bool,
}

impl From<String> for Damage {
    fn from(what: String) -> Self {
        Self { what, entered: false }
    }
}

impl From<convert::Unusable> for Damage {
    fn from(unusable: convert::Unusable) -> Self {
        unusable.to_string().into()
    }
}

/// Takes what a line holds, or says why it holds nothing that can be used.
fn take_line(source: &mut Source, pipeline: &mut Pipeline, tally: &mut Tally) -> Result<(), Damage> {
    if source.state == Line::TooLong {
        return Err(format!("the line is longer than {} bytes", super::lines::MAX_LINE).into());
    }
    let line = source.line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&source.line);
    // Checked once for the whole line: checking every text in it again would cost a tenth of the time.
    let line = simdutf8::basic::from_utf8(line).map_err(|_| invalid_text(line))?;
    let described = |error: serde_json::Error| describe(&error, line, &source.state);
    // Files are of one form throughout, but lost events stay wrapped even where flows are plain.
    if source.form == Form::Sockets {
        let said = take_kernel(line, pipeline, tally).map_err(|error| match error {
            Damaged::Json(_) if !line.starts_with('{') => format!("not JSON: {}...", beginning(line)),
            Damaged::Json(error) => describe(&error, line, &source.state),
            Damaged::Unusable(unusable) => unusable.to_string(),
        });
        return Ok(said?);
    }
    if source.form == Form::PlainFlows
        && let Ok(flow) = json::plain_flow(line)
    {
        return take_plain(&flow, pipeline);
    }
    let response = json::response(line).map_err(described)?;
    if is_response(&response) {
        return take_response(&response, pipeline, tally);
    }
    let flow = json::plain_flow(line).map_err(described)?;
    source.form = Form::PlainFlows;
    take_plain(&flow, pipeline)
}

/// What is wrong with a line of the kernel's.
enum Damaged {
    Json(serde_json::Error),
    Unusable(sockets::Unusable),
}

fn take_kernel(line: &str, pipeline: &mut Pipeline, tally: &mut Tally) -> Result<(), Damaged> {
    let line = sockets::parse(line).map_err(Damaged::Json)?;
    match line.observation().map_err(Damaged::Unusable)? {
        Some(observation) => {
            tally.lost += u64::from(matches!(observation, Observation::Lost(_)));
            pipeline.observe(observation);
        }
        None => tally.unknown += 1,
    }
    Ok(())
}

fn take_plain(flow: &json::Flow<'_>, pipeline: &mut Pipeline) -> Result<(), Damage> {
    let flow = convert::flow(flow, "", "")?;
    pipeline.observe(Observation::Flow(flow));
    Ok(())
}

fn is_response(response: &json::Response<'_>) -> bool {
    response.flow.is_some()
        || response.lost_events.is_some()
        || response.node_status.is_some()
        || response.agent_event.is_some()
        || response.debug_event.is_some()
}

fn take_response(
    response: &json::Response<'_>,
    pipeline: &mut Pipeline,
    tally: &mut Tally,
) -> Result<(), Damage> {
    let (node, time) = (response.node_name.as_str(), response.time.as_str());
    if let Some(flow) = &response.flow {
        pipeline.observe(Observation::Flow(convert::flow(flow, node, time)?));
    } else if let Some(lost) = &response.lost_events {
        tally.lost += 1;
        let loss = convert::lost(lost, node, time)?;
        let untimed = matches!(loss, Observation::Lost(Loss { at: None, .. }));
        pipeline.observe(loss);
        if untimed {
            let what = format!("{}: its lost events are counted", convert::Unusable::Time(time.to_owned()));
            return Err(Damage { what, entered: true });
        }
    } else if let Some(status) = &response.node_status {
        tally.node_status += 1;
        if let Some(blind) = convert::node_status(status, time) {
            pipeline.observe(blind);
        }
    } else {
        tally.other += 1;
    }
    Ok(())
}

fn invalid_text(line: &[u8]) -> String {
    let place = std::str::from_utf8(line).map_or_else(|error| error.valid_up_to() + 1, |_| 0);
    format!("not UTF-8 text at byte {place}")
}

fn beginning(line: &str) -> String {
    line.chars().take(40).flat_map(char::escape_debug).collect()
}

/// What is wrong with a line, with its beginning made harmless for a terminal.
fn describe(error: &serde_json::Error, line: &str, state: &Line) -> String {
    let beginning = beginning(line);
    if *state == Line::Unended && error.is_eof() {
        return format!("the last line is cut off ({beginning}...)");
    }
    if !line.starts_with('{') {
        return format!("not JSON: {beginning}... (record with `hubble observe -o jsonpb`)");
    }
    // The column is the byte; the line number serde_json knows is always 1.
    format!("damaged at byte {}: {}", error.column(), reason(error))
}

fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned();
    text.escape_debug().collect()
}
