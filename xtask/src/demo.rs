//! `demo`: firedoor's main job, seen. Enters: nothing but the checkout; leaves: the reports of a blocked job before
//! and after its fix: live on this machine's kernel, or from recordings where that cannot be.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::command::{command, release_binary, status, typed};
use crate::{lab, setup};

/// One capture and how firedoor is to end on it.
struct Scene {
    capture: &'static str,
    title: &'static str,
    /// The exit codes that fit, each with what it says.
    exits: &'static [(i32, &'static str)],
}

const SCENES: [Scene; 2] = [
    Scene {
        capture: "tests/cases/lab-before",
        title: "The lab before the fix: every health check is green, and training does not start",
        exits: &[(1, "there is a finding, as there should be here")],
    },
    Scene {
        capture: "tests/cases/lab-after",
        title: "The lab after the fix",
        exits: &[
            (0, "nothing is wrong any more"),
            (3, "nothing is blocked any more; what the source cannot see stays unknown"),
        ],
    },
];

/// The scenario that shows most.
const LIVE: &str = "block-nft";

/// What a person would else wait for without knowing.
const BUILDING: &str = "First firedoor is built: minutes the first time, seconds from then on";

/// Plays the live lab where that can be, else replays both scenes.
///
/// # Errors
/// When the build fails, or firedoor ends in another way than the scene expects.
pub(crate) fn run(root: &Path) -> Result<()> {
    setup::ensure(root, setup::Purpose::Build)?;
    if let Some(why) = lab::hindrance() {
        println!("The live lab cannot be played here: {why}. What follows are its recordings.");
        println!("{BUILDING}.\n");
        return replayed(root);
    }
    println!("A training job on this machine's kernel: blocked by a packet filter, found, mended, at work.");
    println!("{BUILDING}. The play takes about a minute.\n");
    if lab::run(root, &lab::Arguments::one(LIVE))? != ExitCode::SUCCESS {
        bail!("the live lab did not go as it should; `cargo xtask lab {LIVE}` repeats it");
    }
    println!("\nMore of it: cargo xtask lab --list");
    Ok(())
}

/// Without a kernel that may be used: the recordings.
fn replayed(root: &Path) -> Result<()> {
    let binary = release_binary(root)?;
    for scene in &SCENES {
        println!("\n## {}\n", scene.title);
        let mut replay = command(root, &binary.to_string_lossy(), &["replay", scene.capture]);
        println!("$ {}\n", typed(&replay));
        let start = Instant::now();
        let status = status(&mut replay)?;
        let took = start.elapsed();
        let meaning = status.code().and_then(|code| scene.exits.iter().find(|(exit, _)| *exit == code));
        let Some((code, meaning)) = meaning else {
            bail!("firedoor ended with {status} on {}", scene.capture)
        };
        println!("\nexit code {code}: {meaning} ({} ms)", took.as_millis());
    }
    Ok(())
}
