//! Each wall holds, shown on made-up trees: one that stands and the ways to break it.

use super::lex::{paths, tokens};
use super::tree::Tree;
use super::{Breach, WALLS, layout};

/// The breaches of the wall `name` in a tree of these files.
fn breaches(name: &str, files: &[(&str, &str)]) -> Vec<String> {
    let wall = WALLS.iter().find(|wall| wall.name == name).unwrap();
    (wall.check)(&Tree::made_up(files)).iter().map(Breach::to_string).collect()
}

/// Breaches in one core source file of this text.
fn core(text: &str) -> Vec<String> {
    breaches("core-purity", &[("agent/core/src/a.rs", text)])
}

#[test]
fn a_good_tree_breaks_nothing() {
    let files = [
        ("Cargo.toml", "[workspace]\n"),
        ("Cargo.lock", "[[package]]\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n"),
        (
            "agent/core/Cargo.toml",
            "[dependencies]\nserde.workspace = true\n[dev-dependencies]\nproptest = \"1\"\n",
        ),
        (
            "agent/core/src/lib.rs",
            "//! Pure.\nuse std::time::Duration;\nfn f(d: Duration) -> Duration { d }\n",
        ),
        ("agent/src/source/ebpf/load.rs", "//! Loads.\nfn f() { unsafe { g() } }\n"),
        ("docs/adr/0001-pure-core.md", "# Pure core\n\nStatus: accepted\n"),
        ("tests/cases/lab/expect.json", "{}"),
        ("tests/cases/lab/flows.jsonl", "{}"),
    ];
    // The list of long files is this checkout's own.
    for wall in WALLS.iter().filter(|wall| wall.name != "file-size") {
        assert_eq!(breaches(wall.name, &files), Vec::<String>::new(), "{}", wall.name);
    }
}

#[test]
fn the_core_depends_on_harmless_crates_only() {
    let of = |text| breaches("core-dependencies", &[("agent/core/Cargo.toml", text)]);
    assert_eq!(of("[dependencies]\ntokio = \"1\"\n"), ["agent/core/Cargo.toml: the core depends on tokio"]);
    assert_eq!(of("[dependencies]\nserde = { package = \"kube\", version = \"1\" }\n").len(), 1);
    assert_eq!(of("[target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n").len(), 1);
    assert_eq!(of("[dependencies.reqwest]\nversion = \"1\"\n").len(), 1);
    assert_eq!(of("[build-dependencies]\ncc = \"1\"\n").len(), 1);
    assert_eq!(of("not toml").len(), 1);
    assert_eq!(
        breaches("core-dependencies", &[("Cargo.toml", "")]),
        ["agent/core/Cargo.toml: there is no core"]
    );
    let files = [("agent/core/Cargo.toml", ""), ("agent/core/build.rs", "//! x\n")];
    assert_eq!(breaches("core-dependencies", &files).len(), 1);
}

#[test]
fn the_core_reaches_nothing_outside() {
    for text in [
        "use std::fs;",
        "use std::{fmt, fs::File};",
        "use std::{\n    collections::BTreeMap,\n    net::{IpAddr, TcpStream},\n};",
        "fn f() { let t = std::time::Instant::now(); }",
        "use std::time::{Duration, SystemTime};",
        "use std::time::*;",
        "use std::net::*;",
        "use std as s;",
        "use ::std::process::Command;",
        "use std::thread::{self, JoinHandle};",
        "fn f() { let v = std::env::var(\"X\"); }",
        "fn f() { let t = jiff::Timestamp::now(); }",
        "fn f() { std::io::stdout(); }",
        "fn f() { println!(\"x\"); }",
        "fn f<'a>(x: &'a str) { eprintln!(\"{x}\"); }",
        "fn f() { let quote = '\"'; std::fs::read(x); let other = '\"'; }",
    ] {
        assert!(!core(text).is_empty(), "{text}");
    }
    for text in [
        "// std::fs is for others\n",
        "//! Knows no std::time::Instant.\n/* println!(\"x\") /* nested */ std::env */",
        "const A: &str = \"std::fs\"; const B: &str = r#\"println!(\"x\")\"#; const C: char = '\"';",
        "use std::net::{IpAddr, Ipv4Addr}; use std::io::{self, Write};",
        "fn at(now: Timestamp) -> Timestamp { now }",
        "fn f() { self.fs.env(); crate::time::Timestamp::parse(x); }",
    ] {
        assert_eq!(core(text), Vec::<String>::new(), "{text}");
    }
    assert_eq!(core("\n\nuse std::fs;"), ["agent/core/src/a.rs:3: `std::fs`: outside the process"]);
    let elsewhere = breaches("core-purity", &[("agent/src/a.rs", "use std::fs;")]);
    assert_eq!(elsewhere, Vec::<String>::new());
}

#[test]
fn unsafe_code_and_placeholders() {
    let of = |path, text| breaches("unsafe", &[(path, text)]).len();
    assert_eq!(of("agent/src/a.rs", "fn f() { unsafe { g() } }"), 1);
    assert_eq!(of("agent/src/source/ebpf.rs", "unsafe fn f() {}"), 0);
    assert_eq!(of("agent-ebpf/src/main.rs", "unsafe fn f() {}"), 0);
    assert_eq!(of("agent/src/a.rs", "#![forbid(unsafe_code)] // no unsafe here\n"), 0);
    let of = |text| breaches("unfinished", &[("agent/src/a.rs", text)]);
    assert_eq!(of("fn f() { todo!() }"), ["agent/src/a.rs:1: `todo!`"]);
    assert_eq!(of("fn f() { unimplemented!(\"x\") }").len(), 1);
    assert_eq!(of("fn f() { dbg!(x) }").len(), 1);
    assert_eq!(of("fn f() { let todo = 1; if todo != 2 {} } // todo!()").len(), 0);
}

#[test]
fn names_that_mean_nothing() {
    let of = |path, text| breaches("names", &[(path, text)]).len();
    assert_eq!(of("agent/src/utils.rs", ""), 1);
    assert_eq!(of("agent/src/common/mod.rs", ""), 1);
    assert_eq!(of("docs/misc.md", ""), 1);
    assert_eq!(of("agent/src/a.rs", "mod helper { }"), 1);
    assert_eq!(of("agent/src/a.rs", "pub(crate) mod manager;"), 1);
    assert_eq!(of("agent/src/commonality.rs", "mod utility;"), 0);
    assert_eq!(of("deploy/helm/firedoor/templates/_helpers.tpl", ""), 0);
}

#[test]
fn module_documentation_comes_first() {
    let of = |text| breaches("module-docs", &[("agent/src/a.rs", text)]).len();
    assert_eq!(of("//! Says it.\n"), 0);
    assert_eq!(of("use std::fmt;\n//! Too late.\n"), 1);
    assert_eq!(of("// Not for the module.\n"), 1);
    assert_eq!(of("//!\n"), 1);
    assert_eq!(of(""), 1);
}

#[test]
fn long_files_and_dead_exceptions() {
    let long = "//! x\n".repeat(501);
    let files = [("agent/src/a.rs", long.as_str()), ("agent/src/a/tests.rs", &long), ("docs/a.md", &long)];
    let tree = Tree::made_up(&files);
    let found: Vec<String> = layout::sizes(&tree, &[]).iter().map(Breach::to_string).collect();
    assert_eq!(found, ["agent/src/a.rs: 501 lines, more than 500"]);
    let short = "//! x\n".repeat(500);
    assert_eq!(layout::sizes(&Tree::made_up(&[("agent/src/a.rs", &short)]), &[]), []);
    assert_eq!(breaches("file-size", &files).len(), 1, "the wall itself uses it, and has no exceptions");
    assert_eq!(layout::sizes(&tree, &[("agent/src/a.rs", "a table")]), []);
    assert_eq!(layout::sizes(&tree, &[("agent/src/a.rs", "a table"), ("agent/src/gone.rs", "x")]).len(), 1);
}

#[test]
fn the_top_level_is_fixed() {
    let found =
        breaches("top-level", &[("src/main.rs", ""), ("notes.txt", ""), ("tests/a", ""), ("README.md", "")]);
    assert_eq!(found.len(), 2);
}

#[test]
fn decisions_are_numbered_titled_and_have_a_state() {
    let of = |path, text| breaches("decisions", &[(path, text)]).len();
    assert_eq!(of("docs/adr/0002-a-b2.md", "# A\n\nStatus: accepted\n"), 0);
    assert_eq!(of("docs/adr/2-a.md", "# A\n\nStatus: accepted\n"), 1);
    assert_eq!(of("docs/adr/0002-A.md", "# A\n\nStatus: accepted\n"), 1);
    assert_eq!(of("docs/adr/0002-.md", "# A\n\nStatus: accepted\n"), 1);
    assert_eq!(of("docs/adr/0002-a.md", "A\n\nStatus: accepted\n"), 1);
    assert_eq!(of("docs/adr/0002-a.md", "# A\n\nStatus:\n"), 1);
    let text = "# A\n\nStatus: accepted\n";
    assert_eq!(breaches("decisions", &[("docs/adr/0002-a.md", text), ("docs/adr/0002-b.md", text)]).len(), 1);
}

#[test]
fn cases_say_what_they_expect() {
    let files =
        [("tests/cases/a/expect.json", "{}"), ("tests/cases/b/objects/x.yaml", ""), ("tests/golden.rs", "")];
    assert_eq!(breaches("cases", &files), ["tests/cases/b/expect.json: is missing"]);
}

#[test]
fn traces_of_a_machine() {
    // Put together from halves, so that this file passes its own wall.
    let place = |first: &str, second: &str| format!("{first}{second}");
    let paths = |text: &str| breaches("machine-paths", &[("docs/a.md", text)]).len();
    for bad in [
        place("see /wo", "rk/x"),
        place("\"/ho", "me/me/a\""),
        place("/ro", "ot/.cargo"),
        place("(/Us", "ers/me)"),
        place("../", "shared/x"),
    ] {
        assert_eq!(paths(&bad), 1, "{bad}");
    }
    for good in [
        place("docs/wo", "rk/"),
        place("$x/wo", "rk/"),
        place("https://a.example/ho", "me/"),
        "/var/lib".into(),
    ] {
        assert_eq!(paths(&good), 0, "{good}");
    }
    let hosts = |text: &str| breaches("registry-hosts", &[("a.md", text)]).len();
    assert_eq!(hosts(&place("https://pypi", ".org/simple")), 1);
    assert_eq!(hosts("https://crates.io/crates/jiff"), 0);
    let lock = |text: &str| breaches("lock-sources", &[("Cargo.lock", text)]).len();
    assert_eq!(lock("source = \"registry+https://mirror.example/index\"\n"), 1);
    assert_eq!(lock("source = \"git+https://github.com/a/b\"\n"), 1);
    assert_eq!(breaches("lock-sources", &[]).len(), 1);
}

#[test]
fn grouped_imports_come_out_as_full_paths() {
    let text =
        "use a::{b::{c, d as e}, f, self};\nlet x = g::h(*y); use i::*; match j { k::L { m } => n::<o>() }";
    let found: Vec<String> = paths(&tokens(text)).iter().map(|path| path.segments.join("::")).collect();
    for path in ["a::b::c", "a::b::d", "a::f", "a::self", "g::h", "i::*", "k::L", "m", "n", "y"] {
        assert!(found.iter().any(|f| f == path), "{path} in {found:?}");
    }
    assert!(!found.iter().any(|f| f == "a::c" || f == "g::h::y" || f == "*"), "{found:?}");
    // Broken code ends, whatever it is.
    for broken in ["use a::{b::{", "'", "\"abc", "/* x", "r##\"x\"#", "b'", "a::", "::{", "r#"] {
        let _ = paths(&tokens(broken));
    }
}
