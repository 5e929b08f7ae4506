//! Playing a scenario, from an empty machine to its verdict: build, break, run, look, mend, look again, compare.
//! Enters: a scenario; leaves: its verdict. Waits for conditions, never for time to pass.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::agent::{self, Agent, Places};
use super::breaker::Breaker;
use super::cast::{Cast, Pod};
use super::compare;
use super::host::{run, wait_for, write_whole};
use super::lease::Lease;
use super::member::truth::Truth;
use super::monitor::Monitor;
use super::network::Network;
use super::objects::Objects;
use super::scenario::{AgentStart, Breach, How, Job, Scenario};
use super::ss;
use super::stage::Stage;
use super::troupe::{Troupe, Workload};
use super::verdict::Notes;
use super::wire_end::Wire;
use super::witness::{self, Evidence};

/// For what takes a second on an idle machine.
const SOON: Duration = Duration::from_secs(60);
/// Steps that show a job at work.
const AT_WORK: u64 = 8;
/// Steps that give a steady picture of round-trip times.
const STEADY: u64 = 24;
/// Sockets that did not change for this long stand still; several of the agent's samples fit in.
const STILL: Duration = Duration::from_millis(1500);
/// Failed connects that show a closed way.
const FAILURES: u64 = 3;

/// What a scenario is played with.
pub(super) struct Props<'a> {
    /// `None`: without an agent, the lab alone.
    pub(super) binary: Option<&'a Path>,
    /// Where the files of the run go.
    pub(super) directory: &'a Path,
    /// What the pods run.
    pub(super) workload: Workload,
    /// The checkout, where Prometheus and Alertmanager are to run beside the agent.
    pub(super) monitored: Option<&'a Path>,
}

struct Play<'a> {
    scenario: &'a Scenario,
    props: &'a Props<'a>,
    cast: &'a Cast,
    network: &'a Network<'a>,
    stage: &'a Stage,
    objects: Objects,
    wire: Wire,
    agent: Option<Agent>,
    monitor: Option<Monitor<'a>>,
    troupe: Troupe<'a>,
    evidence: Evidence,
    notes: &'a mut Notes,
}

/// Plays a scenario; gives the agent's last report.
pub(super) fn play(
    scenario: &Scenario,
    props: &Props<'_>,
    lease: &Lease,
    notes: &mut Notes,
) -> Result<Option<Value>> {
    let cast = Cast::of(scenario, lease.id());
    for sub in ["truth", "capture"] {
        fs::create_dir_all(props.directory.join(sub))?;
    }
    notes.say(&format!(
        "building: {} zones, {} nodes, {} pods, as {}",
        cast.zones.len(),
        cast.nodes.len(),
        cast.pods.len(),
        lease.id()
    ));
    let stage = Stage::new(lease, &props.directory.join("logs"))?;
    let network = Network::build(lease, &cast, scenario.family)?;
    let wire = Wire::lay(&stage, &network, &cast, scenario)?;
    let objects = Objects::new(&props.directory.join("objects"), lease.id())?;
    write_whole(&props.directory.join("firedoor.toml"), &agent::config())?;
    let mut play = Play {
        scenario,
        props,
        cast: &cast,
        network: &network,
        stage: &stage,
        objects,
        wire,
        agent: None,
        monitor: None,
        troupe: Troupe::new(&cast, &network, &stage, props.directory, props.workload),
        evidence: Evidence::default(),
        notes,
    };
    play.run()
}

impl<'a> Play<'a> {
    fn run(&mut self) -> Result<Option<Value>> {
        self.objects.write(self.cast)?;
        let breaker = match &self.scenario.breach {
            Some(breach) => Some((breach, Breaker::new(breach, self.cast, self.network)?)),
            None => None,
        };
        if let Some((breach, breaker)) = &breaker {
            self.close(breach, breaker)?;
        }
        if self.scenario.agent == AgentStart::First {
            self.start_agent()?;
        }
        for job in self.scenario.jobs {
            self.start_job(job)?;
        }
        if let Some((breach, breaker)) = &breaker {
            self.blocked(breach)?;
            self.mend(breach, breaker)?;
        }
        let live = self.troupe.jobs();
        for job in &live {
            self.troupe.wait_steps(job, AT_WORK)?;
        }
        if self.scenario.agent == AgentStart::Late {
            self.evidence.before_agent = self.troupe.truths()?;
            self.start_agent()?;
            // Members write down what they did now and then: what they write after this is of after the start.
            for job in &live {
                let steps = self.troupe.slowest(job)?.unwrap_or_default() + 2;
                self.troupe.wait_steps(job, steps)?;
            }
            self.evidence.after_agent = self.troupe.truths()?;
        }
        let mut goals = Vec::new();
        for job in &live {
            goals.push((job, self.troupe.slowest(job)?.unwrap_or_default() + STEADY));
        }
        for (job, steps) in goals {
            self.troupe.wait_steps(job, steps)?;
        }
        self.look_at_sockets()?;
        compare::workload(&self.troupe.truths()?, &live, self.cast, self.notes);
        self.settled(breaker.is_some())?;
        for job in &live {
            self.stop_job(job)?;
        }
        self.evidence.wire = self.wire.counts()?;
        let report = self.finish()?;
        witness::end(self.scenario, self.cast, &self.evidence, self.notes);
        Ok(report)
    }

    fn close(&mut self, breach: &Breach, breaker: &Breaker<'_>) -> Result<()> {
        let from: Vec<&str> = breaker.ways.iter().map(|way| way.src.name.as_str()).collect();
        self.notes.say(&format!(
            "breaking ({:?}): {} to rank 0 of {}",
            breach.how,
            from.join(", "),
            breach.job
        ));
        breaker.close(&mut self.wire)?;
        let zone = breaker.ways.first().map_or(0, |way| way.src.zone);
        self.objects.close(self.cast, breach.job, zone, breach.policy);
        self.objects.write(self.cast)
    }

    fn start_agent(&mut self) -> Result<()> {
        let Some(binary) = self.props.binary else { return Ok(()) };
        let directory = self.props.directory;
        self.notes.say("starting the agent");
        let places = Places {
            binary,
            objects: &directory.join("objects"),
            capture: &directory.join("capture"),
            config: &directory.join("firedoor.toml"),
        };
        let agent = Agent::start(self.stage, &places, self.cast, self.network)?;
        if let Some(root) = self.props.monitored {
            self.monitor = Some(Monitor::start(root, directory, agent.at())?);
        }
        self.agent = Some(agent);
        Ok(())
    }

    /// Starts a job's pods. Where one of them is to have the address of another job's pod, that job ends first.
    fn start_job(&mut self, job: &'a Job) -> Result<()> {
        let heirs = job.members.iter().enumerate().filter_map(|(rank, seat)| Some((rank, seat.address_of?)));
        for (rank, (other, other_rank)) in heirs.collect::<Vec<_>>() {
            self.troupe.wait_steps(other, STEADY)?;
            compare::workload(&self.troupe.truths()?, &[other], self.cast, self.notes);
            self.stop_job(other)?;
            self.objects.finish(self.cast, other);
            let dead = self.cast.member(other, other_rank).context("nobody to inherit from")?;
            let heir = self.cast.member(job.name, rank).context("no heir")?;
            self.network.unseat(self.cast, dead)?;
            self.network.seat(self.cast, heir)?;
            self.notes.say(&format!("{} has ended; {} gets the address of {}", other, heir.name, dead.name));
        }
        self.objects.start(self.cast, job.name);
        self.objects.write(self.cast)?;
        self.notes.say(&format!("starting {} ({} members)", job.name, job.members.len()));
        let late = self.scenario.breach.as_ref().filter(|b| b.how == How::NoListener && b.job == job.name);
        for pod in self.cast.job(job.name) {
            if pod.rank > 0 || late.is_none() {
                self.troupe.start(pod)?;
            }
        }
        Ok(())
    }

    /// The block shows, in the workload and in the report.
    fn blocked(&mut self, breach: &Breach) -> Result<()> {
        let from = breach.from.iter().filter_map(|rank| self.cast.member(breach.job, *rank));
        let from: Vec<&Pod> = from.collect();
        let failures = |truth: &Truth| {
            truth.connects.values().flat_map(|connects| connects.failed.values()).sum::<u64>()
        };
        wait_for("the workload to notice the block", SOON, || {
            self.troupe.all_run(breach.job)?;
            for pod in &from {
                let truth = self.troupe.truth(pod)?;
                if truth.is_none_or(|truth| failures(&truth) < FAILURES) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })?;
        let noticed = Instant::now();
        let truths = self.troupe.truths()?;
        compare::closed(&truths, breach, self.cast, self.notes);
        let Some(agent) = &self.agent else { return Ok(()) };
        let mut last = None;
        let shown = wait_for("the report to show the block", SOON, || {
            let report = agent.report()?;
            let complete = compare::shows_block(&report, self.scenario, self.cast, "active");
            let shown = complete.then(|| (jiff::Timestamp::now(), report.clone()));
            last = Some(report);
            Ok(shown)
        });
        match shown {
            Ok((at, report)) => {
                self.notes.say(&format!("\nthe agent's report:\n\n{}", agent.text()?));
                compare::block(&report, at, &truths, self.scenario, self.cast, self.notes);
            }
            Err(error) => {
                let found = last.map(|report| format!("{:?}", super::findings::findings(&report)));
                self.notes.check(
                    "block shown",
                    false,
                    format!("{error:#}; found: {}", found.unwrap_or_default()),
                );
            }
        }
        match &mut self.monitor {
            Some(monitor) => monitor.block_is_told(self.scenario, noticed, self.notes),
            None => Ok(()),
        }
    }

    fn mend(&mut self, breach: &'a Breach, breaker: &Breaker<'_>) -> Result<()> {
        self.notes.say("mending");
        let counts = breaker.open(&mut self.wire)?;
        let sources: Vec<&str> = breaker.ways.iter().map(|way| way.src.name.as_str()).collect();
        if breach.how != How::NoListener {
            let shown = format!("{counts:?} packets, of {}", sources.join(", "));
            self.notes.check(
                "the breaker took packets of each source",
                counts.iter().all(|count| *count > 0),
                shown,
            );
        }
        if matches!(breach.how, How::NftDrop | How::NftReject | How::TcShot) {
            self.evidence.taken = breaker.ways.iter().map(|way| way.src.name.clone()).zip(counts).collect();
        }
        self.objects.open();
        self.objects.write(self.cast)?;
        if breach.how == How::NoListener {
            let master = self.cast.member(breach.job, 0).context("no master")?;
            self.troupe.start(master)?;
        }
        Ok(())
    }

    /// The report shows what it is to show at the end, while the job still runs.
    fn settled(&mut self, was_blocked: bool) -> Result<()> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let mut last = None;
        let settled = wait_for("the report to settle", SOON, || {
            let report = agent.report()?;
            let state = if was_blocked { "recovered" } else { "active" };
            let settled = compare::shows_block(&report, self.scenario, self.cast, state);
            last = Some(report);
            Ok(settled.then_some(()))
        });
        let name = if was_blocked { "recovered after the fix" } else { "the report shows what is so" };
        let found = last.map(|report| super::findings::findings(&report)).unwrap_or_default();
        let detail = match &settled {
            Ok(()) => compare::shown(&found),
            Err(error) => format!("{error:#}; found: {}", compare::shown(&found)),
        };
        self.notes.check(name, settled.is_ok(), detail);
        match &mut self.monitor {
            Some(monitor) if was_blocked => monitor.end_is_told(self.notes),
            _ => Ok(()),
        }
    }

    /// Round-trip times and retransmissions by `ss`, while the workload stands still: then they do, too.
    fn look_at_sockets(&mut self) -> Result<()> {
        self.troupe.pause(true)?;
        let mut before = None;
        let still = wait_for("the sockets to stand still", SOON, || {
            let mut seen = BTreeMap::new();
            for pod in &self.cast.pods {
                if self.troupe.plays(pod) {
                    seen.extend(ss::look(&self.network.pod(self.cast, pod)?)?);
                }
            }
            let (since, last) = before.get_or_insert_with(|| (Instant::now(), seen.clone()));
            if !ss::same(last, &seen) {
                before = Some((Instant::now(), seen));
                return Ok(None);
            }
            Ok((since.elapsed() >= STILL).then_some(seen))
        });
        self.troupe.pause(false)?;
        self.evidence.sockets = still?;
        Ok(())
    }

    /// Ends a job, and keeps what its members did.
    fn stop_job(&mut self, job: &str) -> Result<()> {
        let failed = self.troupe.stop(job)?;
        let detail = if failed.is_empty() { job.to_owned() } else { format!("{job}: {}", failed.join(", ")) };
        self.notes.check("members ended in order", failed.is_empty(), detail);
        let truths = self.troupe.truths()?;
        let of_job = |pod: &String| self.cast.job(job).any(|member| member.name == *pod);
        self.evidence.truths.extend(truths.into_iter().filter(|(pod, _)| of_job(pod)));
        Ok(())
    }

    /// The agent's last report and its recording, once both hold the last bytes.
    fn finish(&mut self) -> Result<Option<Value>> {
        let Some(agent) = self.agent.take() else { return Ok(None) };
        let binary = self.props.binary.context("an agent without a program")?;
        let (directory, capture) = (self.props.directory, self.props.directory.join("capture"));
        // What is missing after that is told by the comparison.
        let _ = wait_for("the last bytes", Duration::from_secs(10), || {
            let there = witness::bytes_are_there(&capture, &self.evidence);
            Ok((there && compare::caught_up(&agent.report()?)).then_some(()))
        });
        let report = agent.report()?;
        let status = agent.stop()?;
        self.notes.check("the agent ended in order", status.success(), status.to_string());
        write_whole(&directory.join("report.json"), &format!("{report:#}\n"))?;
        run(&["cp", "-a", &directory.join("objects").to_string_lossy(), &capture.to_string_lossy()])?;
        let config = directory.join("firedoor.toml");
        let replayed = agent::replay(binary, &capture, &config, "json")?;
        let replayed: Value = serde_json::from_str(&replayed).context("the replay printed no JSON")?;
        let text = agent::replay(binary, &capture, &config, "text")?;
        self.notes.say(&format!("\nthe recording, replayed:\n\n{text}"));
        compare::report(&report, &replayed, self.scenario, self.cast, self.notes);
        compare::reported_drops(&report, self.scenario, &self.evidence, self.notes);
        self.evidence.capture = Some(capture);
        Ok(Some(report))
    }
}
