//! Files that are cut off, missing, empty or odd as a whole.

use std::io::Write;

use firedoor::replay::replay;

use crate::capture::{Capture, denied, joined};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory is writable");
    encoder.finish().expect("memory is writable")
}

#[test]
fn a_cut_off_gzip_file_is_read_up_to_the_cut() {
    let whole = gzip(&joined(denied(500)));
    let seen = Capture::new().file("flows.jsonl.gz", &whole[..whole.len() / 2]).replay();
    let used = seen.count("attributed");
    assert!((50..500).contains(&used), "{used} of 500 lines");
    seen.blocked(used);
    assert!(seen.count("rejected") <= 1, "only the line of the cut is damaged");
    let line = used + 1;
    seen.told(&format!("flows.jsonl.gz:{line}"), "cannot read on");
}

#[test]
fn a_cut_off_zstd_file_is_read_up_to_the_cut() {
    let whole = zstd::encode_all(joined(denied(4000)).as_slice(), 3).expect("zstd");
    let seen = Capture::new().file("flows.jsonl.zst", &whole[..whole.len() / 2]).replay();
    let used = seen.count("attributed");
    assert!((50..4000).contains(&used), "{used} of 4000 lines");
    seen.blocked(used);
    assert!(seen.count("rejected") <= 1, "only the line of the cut is damaged");
    seen.told(&format!("flows.jsonl.zst:{}", used + 1), "cannot read on");
}

#[test]
fn bytes_behind_a_compressed_stream_are_told() {
    let mut bytes = gzip(&joined(denied(4)));
    bytes.extend_from_slice(b"this is no gzip member");
    let seen = Capture::new().file("flows.jsonl.gz", bytes).replay();
    assert_eq!(seen.count("attributed"), 4);
    seen.blocked(4);
    assert!(!seen.problems.is_empty(), "what follows the stream is not silently skipped");
}

#[test]
fn a_file_that_only_claims_to_be_compressed_is_told() {
    let seen = Capture::new()
        .file("flows-a.jsonl", joined(denied(4)))
        .file("flows-b.jsonl.gz", [0x1f, 0x8b, 0xff, 0xff, 0xff])
        .file("flows-c.jsonl.zst", [0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff])
        .replay();
    seen.blocked(4);
    seen.told("flows-b.jsonl.gz:1", "");
    seen.told("flows-c.jsonl.zst:1", "");
}

#[test]
fn a_last_line_that_is_cut_off_is_told() {
    let lines = joined(denied(4));
    let seen = Capture::new().file("flows.jsonl", &lines[..lines.len() - 30]).replay();
    assert_eq!([seen.count("received"), seen.count("rejected")], [4, 1]);
    seen.blocked(3);
    seen.told("flows.jsonl:4", "cut off");
}

#[test]
fn a_last_line_without_its_end_is_whole_all_the_same() {
    let lines = joined(denied(4));
    let seen = Capture::new().file("flows.jsonl", &lines[..lines.len() - 1]).replay();
    seen.blocked(4);
    assert!(seen.problems.is_empty(), "{:?}", seen.problems);
}

#[test]
fn an_empty_capture_says_what_was_looked_for() {
    let capture = Capture::empty();
    let error = replay(capture.path(), None, true).err().expect("nothing to replay").to_string();
    assert!(error.contains("flows*.jsonl") && error.contains("hubble observe"), "{error}");
}

#[test]
fn a_missing_capture_says_what_was_looked_for() {
    let capture = Capture::empty();
    let error = replay(&capture.path().join("gone"), None, true).err().expect("nothing there").to_string();
    assert!(error.contains("gone") && error.contains("directory"), "{error}");
}

#[test]
fn a_file_in_place_of_a_capture_is_refused() {
    let capture = Capture::empty().file("flows.jsonl", "");
    assert!(replay(&capture.path().join("flows.jsonl"), None, true).is_err());
}

#[test]
fn a_capture_without_a_single_line_proves_nothing() {
    let seen = Capture::new().file("flows.jsonl", "").replay();
    assert_eq!([u64::from(seen.exit), seen.count("received")], [3, 0]);
    assert_eq!(seen.report["jobs"][0]["verdict"], "inconclusive");
}

#[test]
fn objects_that_are_missing_make_it_inconclusive() {
    let seen = Capture::empty().flows(denied(4)).replay();
    assert_eq!(seen.exit, 3);
    assert_eq!(seen.count("not_a_job"), 4);
    assert!(seen.notes.iter().any(|note| note.contains("objects")), "{:?}", seen.notes);
}

#[cfg(unix)]
#[test]
fn links_in_circles_end() {
    let capture = Capture::new().flows(denied(4));
    let objects = capture.path().join("objects");
    std::os::unix::fs::symlink(&objects, objects.join("again")).expect("links can be made");
    std::os::unix::fs::symlink("world.json", objects.join("same.yaml")).expect("links can be made");
    std::os::unix::fs::symlink("..", objects.join("up")).expect("links can be made");
    std::os::unix::fs::symlink("nowhere", objects.join("dangling.yaml")).expect("links can be made");
    let seen = capture.replay();
    seen.blocked(4);
    assert!(seen.notes.is_empty(), "nothing was read twice: {:?}", seen.notes);
    // What `again` and `same.yaml` lead to was read all the same.
    for link in ["objects/up", "objects/dangling.yaml"] {
        seen.told(link, "symbolic link");
    }
    assert_eq!(seen.problems.len(), 2, "{:?}", seen.problems);
}

/// Reading a pipe or a socket may never end.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_told_and_not_opened() {
    let capture = Capture::new().flows(denied(4)).file("gpu/readme.txt", "left alone");
    let odd = ["flows-2.jsonl", "objects/socket.yaml", "gpu/socket.prom"];
    let sockets = odd.map(|name| std::os::unix::net::UnixListener::bind(capture.path().join(name)));
    assert!(sockets.iter().all(Result::is_ok), "{sockets:?}");
    let seen = capture.replay();
    seen.blocked(4);
    for name in odd {
        seen.told(name, "not a file");
    }
    assert_eq!(seen.problems.len(), 3, "{:?}", seen.problems);
}

#[test]
fn files_of_absurd_size_are_not_read() {
    let capture = Capture::new().flows(denied(4)).file("gpu/n1.prom", "").object_file("huge.yaml", "");
    for name in ["gpu/n1.prom", "objects/huge.yaml"] {
        // A hole takes no room on the disk.
        let file = std::fs::File::options().write(true).open(capture.path().join(name)).expect("writable");
        file.set_len((1 << 30) + 1).expect("files can have holes");
    }
    let seen = capture.replay();
    seen.blocked(4);
    seen.told("gpu/n1.prom", "larger than 1073741824 bytes");
    seen.told("objects/huge.yaml", "larger than 1073741824 bytes");
}

#[test]
fn a_wrong_configuration_is_refused_with_its_place() {
    let capture = Capture::new().flows(denied(4)).file("firedoor.toml", "[jobs]\ngroupby = [\"app\"]\n");
    let error = replay(capture.path(), None, true).err().expect("a typing error is no choice").to_string();
    assert!(error.contains("firedoor.toml") && error.contains("groupby"), "{error}");
}

#[test]
fn damaged_expositions_are_told_and_the_rest_is_read() {
    let text = "# time: 2026-11-07T09:00:10Z\n\
        DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-1\",namespace=\"sea\",pod=\"tide-worker-0\"} 0\n\
        DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-2\",namespace=\"sea\",pod=\"tide-wor\n\
        DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",UUID=\"GPU-3\",namespace=\"sea\",pod=\"tide-worker-0\"} NaN\n\
        \u{0}\u{1b}[2J\n";
    let seen = Capture::new().flows(denied(4)).file("gpu/n2.prom", text).replay();
    seen.blocked(4);
    seen.told("n2.prom:3", "");
    seen.told("n2.prom:5", "");
    assert_eq!(seen.report["jobs"][0]["gpu"]["state"], "idle");
}
