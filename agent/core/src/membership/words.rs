//! Role words: enters a label's value, leaves the role that people mean by it. Must not know where it stood.

use super::Role;

/// Longer texts are not role names; reading stops here.
const LONGEST: usize = 128;

const LEADS: &[&str] = &["coordinator", "master", "launcher", "head", "leader", "chief", "driver"];
const WORKS: &[&str] = &["worker"];
/// Said of any member, so they count only when nothing stronger is said: a `head-node` is a head.
const WEAK: &[&str] = &["trainer", "node", "replica"];
const SERVES: &[&str] = &["ps", "pserver", "parameterserver"];
/// These also count at the end of a longer word: `mpiworker`, `gpuworker`.
const SUFFIXES: &[(&str, Role)] = &[
    ("coordinator", Role::Coordinator),
    ("launcher", Role::Coordinator),
    ("master", Role::Coordinator),
    ("worker", Role::Worker),
];

/// The role that a name tells: `gpu-worker`, `ml-master`, `rank-0`, `parameter-server`. The last telling word
/// counts, as in `worker-leader`.
pub(crate) fn word(text: &str) -> Option<Role> {
    let text: String = text.chars().take(LONGEST).collect::<String>().to_ascii_lowercase();
    let tokens: Vec<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|token| !token.is_empty()).collect();
    let is_pair = |pair: &[&str]| matches!(pair, ["parameter", "server" | "servers"]);
    if tokens.iter().any(|token| SERVES.contains(token)) || tokens.windows(2).any(is_pair) {
        return Some(Role::ParameterServer);
    }
    if let Some(rank) = rank(&tokens) {
        return Some(if rank == 0 { Role::Coordinator } else { Role::Worker });
    }
    let strong = tokens.iter().rev().find_map(|token| strong(singular(token)));
    strong.or_else(|| tokens.iter().any(|token| WEAK.contains(&singular(token))).then_some(Role::Worker))
}

fn strong(token: &str) -> Option<Role> {
    if LEADS.contains(&token) {
        return Some(Role::Coordinator);
    }
    if WORKS.contains(&token) {
        return Some(Role::Worker);
    }
    SUFFIXES.iter().find(|(suffix, _)| token.ends_with(suffix)).map(|(_, role)| *role)
}

fn singular(token: &str) -> &str {
    token.strip_suffix('s').filter(|rest| rest.len() > 3).unwrap_or(token)
}

fn rank(tokens: &[&str]) -> Option<u32> {
    let spaced = tokens.windows(2).find_map(|pair| match pair {
        ["rank", number] => number.parse().ok(),
        _ => None,
    });
    spaced.or_else(|| tokens.iter().find_map(|token| token.strip_prefix("rank")?.parse().ok()))
}

/// As [`word`], where the system lists all roles: one that is not known is another role, not a missing one.
pub(crate) fn closed_word(text: &str) -> Option<Role> {
    Some(word(text).unwrap_or(Role::Other))
}

/// The name of a JobSet's replicated job. Initializers fetch data and models before the training starts.
pub(crate) fn replicated_job(text: &str) -> Option<Role> {
    if text.to_ascii_lowercase().contains("initializer") { Some(Role::Other) } else { word(text) }
}

/// SkyPilot's flag: `1` on the head, `0` on workers.
pub(super) fn head_flag(text: &str) -> Option<Role> {
    match text {
        "1" => Some(Role::Coordinator),
        "0" => Some(Role::Worker),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_words() {
        for lead in [
            "coordinator",
            "master",
            "mpimaster",
            "Launcher",
            "ray-head",
            "head-node",
            "worker-leader",
            "chief",
            "rank-0",
            "spark_driver",
            "rank0",
        ] {
            assert_eq!(word(lead), Some(Role::Coordinator), "{lead}");
        }
        for work in [
            "worker",
            "gpu-worker",
            "gpu-workers",
            "mpiworker",
            "trainer",
            "node",
            "replica-3",
            "rank-12",
            "worker-node",
            "leader-worker",
        ] {
            assert_eq!(word(work), Some(Role::Worker), "{work}");
        }
        for serve in ["ps", "parameter-server", "parameter-servers", "pserver", "PS"] {
            assert_eq!(word(serve), Some(Role::ParameterServer), "{serve}");
        }
        for nothing in
            ["", "evaluator", "training", "overhead", "ops", "steps", "rank", "rank-x", "0", "frontend"]
        {
            assert_eq!(word(nothing), None, "{nothing}");
        }
        assert_eq!(word(&"worker-".repeat(10_000)), Some(Role::Worker));
    }

    #[test]
    fn closed_lists() {
        assert_eq!(closed_word("evaluator"), Some(Role::Other));
        assert_eq!(replicated_job("dataset-initializer"), Some(Role::Other));
        assert_eq!(replicated_job("alpha"), None);
        assert_eq!(
            (head_flag("1"), head_flag("0"), head_flag("yes")),
            (Some(Role::Coordinator), Some(Role::Worker), None)
        );
    }
}
