//! Remedies as files, ready for `kubectl`. Enters: a report; leaves: a directory a remedy with a file a step, and a
//! README with the commands. Nothing is applied. Names come from outside: no file name and no command is made of them
//! unchanged.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use firedoor_core::report::{JobReport, RemedyReport, Report, StepReport, TargetReport};

use crate::harmless::is_harmful;

/// Characters of a name that go into a file name.
const NAME: usize = 40;
/// What cannot be changed in place.
const IMMUTABLE: [&str; 2] = ["resubmit", "recreate"];

/// Writes all remedies of a report, and says how many there are. The directory is made; it may be there, but empty.
/// All of it is written, or nothing stays.
///
/// # Errors
/// When the directory is not empty, or cannot be written.
pub fn write(report: &Report, directory: &Path) -> io::Result<usize> {
    let (count, files) = files(report);
    place(directory, &files, &mut create)?;
    Ok(count)
}

/// A file's path in the directory, and what it holds.
type Files = Vec<(PathBuf, String)>;

/// How many remedies there are, and all their files.
fn files(report: &Report) -> (usize, Files) {
    let mut page = String::from(
        "# Proposed remedies\n\nNothing here has been applied. Run the commands in this directory.\n",
    );
    let (mut count, mut files) = (0, Vec::new());
    let mut seen: BTreeSet<Vec<(&str, &str, &str)>> = BTreeSet::new();
    for job in &report.jobs {
        for remedy in job.findings.iter().flat_map(|finding| &finding.remedies) {
            // Two findings of a job may have the same remedy.
            let steps = remedy.steps.iter().map(|s| (s.kind, s.target.name.as_str(), s.patch.as_str()));
            if !seen.insert(steps.collect()) {
                continue;
            }
            count += 1;
            let kind = remedy.steps.first().map_or("remedy", |step| step.kind);
            let name = format!("{count:02}-{}-{kind}", file_name(&job.name));
            let steps = remedy.steps.iter().enumerate().filter(|(_, step)| !step.patch.is_empty());
            files.extend(
                steps.map(|(number, step)| {
                    (Path::new(&name).join(step_name(number, step)), step.patch.clone())
                }),
            );
            section(&mut page, job, remedy, &name);
        }
    }
    files.push((PathBuf::from("README.md"), page));
    (count, files)
}

/// Puts the files into the directory. When one of them cannot be written, all are taken away again: half a remedy is
/// worse than none.
fn place(
    directory: &Path,
    files: &Files,
    create: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
) -> io::Result<()> {
    let was_there = directory.is_dir();
    fs::create_dir_all(directory)?;
    if fs::read_dir(directory)?.next().is_some() {
        let what = format!(
            "{} is not empty: patches of another report would be mixed with these",
            directory.display()
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    let mut made = Vec::new();
    let written = files.iter().try_for_each(|(path, text)| {
        let path = directory.join(path);
        if let Some(parent) = path.parent().filter(|parent| *parent != directory && !parent.exists()) {
            fs::create_dir(parent)?;
            made.push(parent.to_owned());
        }
        made.push(path.clone());
        create(&path, text)
    });
    if written.is_err() {
        // What cannot be taken away cannot be mended here either; the error that is told is the first one.
        for path in made.iter().rev() {
            let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
        if !was_there {
            let _ = fs::remove_dir(directory);
        }
    }
    written
}

/// A disk may only say when it is asked to keep something that it is full.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn step_name(number: usize, step: &StepReport) -> String {
    format!("{:02}-{}-{}.yaml", number + 1, step.kind, file_name(&step.target.name))
}

/// Lower-case letters, digits and dashes.
fn file_name(name: &str) -> String {
    let kept =
        name.chars().take(NAME).map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let kept: String = kept.collect();
    let kept = kept.trim_matches('-');
    if kept.is_empty() { "unnamed".to_owned() } else { kept.to_owned() }
}

fn section(page: &mut String, job: &JobReport, remedy: &RemedyReport, name: &str) {
    let verified = if remedy.verified {
        "checked: it opens every door of the job"
    } else {
        "could not be checked fully"
    };
    let isolation = if remedy.weakens_isolation { "opens a policy" } else { "leaves every policy as it is" };
    let needs = if remedy.needs.is_empty() { "nothing more".to_owned() } else { remedy.needs.join(", ") };
    // Writing to a String does not fail.
    let _ = write!(
        page,
        "\n## {name}\n\n{} {}: {}\n\n- {verified}\n- {isolation}\n- needs: {}\n\n```sh\n{}```\n",
        plain(&job.kind),
        plain(&format!("{}/{}", job.namespace, job.name)),
        plain(&remedy.summary),
        plain(&needs),
        commands(remedy, name)
    );
}

fn commands(remedy: &RemedyReport, name: &str) -> String {
    let again = remedy.needs.iter().any(|need| IMMUTABLE.contains(&need.as_str()));
    let mut text = String::new();
    let mut done = BTreeSet::new();
    for (number, step) in remedy.steps.iter().enumerate() {
        let file = format!("{name}/{}", step_name(number, step));
        let target = arguments(&step.target);
        let line = match step.patch_type {
            "apply" => format!("kubectl apply -f {file}\n"),
            "delete" => format!("kubectl delete {target}\n"),
            _ if again && is_submitted(&step.target) => {
                if done.insert((&step.target.kind, &step.target.namespace, &step.target.name)) {
                    resubmit(remedy, &step.target, name)
                } else {
                    String::new()
                }
            }
            _ => format!("kubectl patch {target} --type merge --patch-file {file}\n"),
        };
        text.push_str(&line);
    }
    text
}

/// Kinds whose pod templates may change in place; their controllers bring new pods.
fn is_submitted(target: &TargetReport) -> bool {
    let in_place = ["Deployment", "StatefulSet", "DaemonSet", "LeaderWorkerSet"];
    let policy = target.kind.ends_with("NetworkPolicy");
    !policy && !in_place.contains(&target.kind.as_str())
}

/// All patches of an object, one after the other, on the manifest it was submitted from.
fn resubmit(remedy: &RemedyReport, target: &TargetReport, name: &str) -> String {
    let steps = remedy
        .steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.target == *target && step.patch_type == "merge");
    let mut text = format!(
        "# {} {} cannot change while it exists: patch the manifest it was submitted from, and submit it again\n",
        plain(&target.kind),
        plain(&target.name)
    );
    let mut from = "\"$MANIFEST\"";
    for (number, step) in steps {
        let file = step_name(number, step);
        let _ = writeln!(
            text,
            "kubectl patch --local -f {from} --type merge --patch-file {name}/{file} -o yaml |"
        );
        from = "-";
    }
    text.push_str("  kubectl replace --force -f -\n");
    text
}

fn arguments(target: &TargetReport) -> String {
    let kind = target.kind.to_ascii_lowercase();
    let resource = match target.api_version.split_once('/') {
        Some((group, version)) => format!("{kind}.{version}.{group}"),
        None => kind,
    };
    let namespace =
        target.namespace.as_ref().map_or(String::new(), |namespace| format!(" -n {}", quoted(namespace)));
    format!("{} {}{namespace}", quoted(&resource), quoted(&target.name))
}

/// One word for a POSIX shell, and no option.
fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let word = plain(word);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(safe) {
        return word;
    }
    format!("'{}'", word.trim_start_matches('-').replace('\'', "'\\''"))
}

/// One line, without control characters, without a way out of a code block.
fn plain(text: &str) -> String {
    text.chars().map(|c| if is_harmful(c) || c == '`' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: &'static str, patch_type: &'static str, target: (&str, &str, &str)) -> StepReport {
        let (api_version, kind_of, name) = target;
        let target = TargetReport {
            api_version: api_version.to_owned(),
            kind: kind_of.to_owned(),
            namespace: Some("ml".to_owned()),
            name: name.to_owned(),
        };
        let patch = if patch_type == "delete" { String::new() } else { "a: b\n".to_owned() };
        StepReport { kind, target, patch_type, patch }
    }

    fn remedy(needs: &[&str], steps: Vec<StepReport>) -> RemedyReport {
        let needs = needs.iter().map(|need| (*need).to_owned()).collect();
        RemedyReport { summary: "do it".to_owned(), verified: true, weakens_isolation: false, needs, steps }
    }

    #[test]
    fn commands_for_each_way_to_change() {
        let deployment = ("apps/v1", "Deployment", "lead");
        let rollout = remedy(&["rollout"], vec![step("co-locate", "merge", deployment)]);
        assert_eq!(
            commands(&rollout, "01-x"),
            "kubectl patch deployment.v1.apps lead -n ml --type merge --patch-file 01-x/01-co-locate-lead.yaml\n"
        );
        let job = ("kubeflow.org/v1", "PyTorchJob", "llama");
        let again =
            remedy(&["resubmit"], vec![step("co-locate", "merge", job), step("tolerate", "merge", job)]);
        let text = commands(&again, "01-x");
        assert!(
            text.contains(
                "-f \"$MANIFEST\" --type merge --patch-file 01-x/01-co-locate-llama.yaml -o yaml |\n"
            ),
            "{text}"
        );
        assert!(text.ends_with("-f - --type merge --patch-file 01-x/02-tolerate-llama.yaml -o yaml |\n  kubectl replace --force -f -\n"), "{text}");
        let policy = ("cilium.io/v2", "CiliumNetworkPolicy", "seal");
        let gone =
            remedy(&[], vec![step("edit-deny", "delete", policy), step("allow-traffic", "apply", policy)]);
        assert_eq!(
            commands(&gone, "01-x"),
            "kubectl delete ciliumnetworkpolicy.v2.cilium.io seal -n ml\nkubectl apply -f 01-x/02-allow-traffic-seal.yaml\n"
        );
    }

    #[test]
    fn names_from_outside_stay_words() {
        assert_eq!(quoted("a; rm -rf $HOME `x`"), "'a; rm -rf $HOME  x '");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("--all"), "'all'");
        assert_eq!(file_name("../../etc/passwd\n"), "etc-passwd");
        assert_eq!(file_name("…"), "unnamed");
        assert!(!plain("```\n# x").contains(['`', '\n']));
    }

    #[test]
    fn all_is_written_or_nothing_stays() {
        let files: Files = ["01-a/01-x.yaml", "01-a/02-y.yaml", "02-b/01-x.yaml", "README.md"]
            .map(|path| (PathBuf::from(path), "text\n".to_owned()))
            .into();
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        for there_before in [false, true] {
            for room in 0..files.len() {
                let parent = tempfile::tempdir().unwrap();
                let directory = parent.path().join("fix");
                if there_before {
                    fs::create_dir(&directory).unwrap();
                }
                let mut left = room;
                // The file is there before it is found that its text has no room.
                let mut until_full = |path: &Path, text: &str| {
                    create(path, if left == 0 { "" } else { text })?;
                    left = left.checked_sub(1).ok_or_else(full)?;
                    Ok(())
                };
                let error = place(&directory, &files, &mut until_full).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                assert_eq!(directory.exists(), there_before);
                assert!(!there_before || fs::read_dir(&directory).unwrap().next().is_none());
                place(&directory, &files, &mut create).unwrap();
                assert_eq!(fs::read_to_string(directory.join("02-b/01-x.yaml")).unwrap(), "text\n");
                let again = place(&directory, &files, &mut create).unwrap_err();
                assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
            }
        }
    }
}
