//! `faults.md` names, for every known fault, a test that exists.

use std::path::{Path, PathBuf};

use regex::Regex;

/// The root of the workspace; paths in `faults.md` start there.
fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("the package lies in the workspace")
        .into()
}

/// The rows of every table in the page whose last column is headed `test`, as `(fault, test cell)`.
fn rows(page: &str) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut in_table = false;
    for line in page.lines() {
        let Some(inner) = line
            .trim()
            .strip_prefix('|')
            .and_then(|l| l.strip_suffix('|'))
        else {
            in_table = false;
            continue;
        };
        let cells: Vec<&str> = inner.split(" | ").map(str::trim).collect();
        let is_rule = inner.chars().all(|c| "-:| ".contains(c));
        if cells.last() == Some(&"test") {
            in_table = true;
        } else if in_table && !is_rule {
            let (test, rest) = cells.split_last().expect("a row has cells");
            rows.push((rest.join(" | "), (*test).to_owned()));
        }
    }
    rows
}

/// What is wrong with one row, if anything: no test named, or one that does not exist or does not run.
fn problem(root: &Path, test_cell: &str) -> Option<String> {
    let reference = Regex::new("`([^`]+)::([a-z0-9_]+)`").expect("the pattern is valid");
    let mut named = 0;
    for capture in reference.captures_iter(test_cell) {
        named += 1;
        let (file, function) = (&capture[1], &capture[2]);
        let Ok(source) = std::fs::read_to_string(root.join(file)) else {
            return Some(format!("no file `{file}`"));
        };
        if !has_test(&source, function) {
            return Some(format!("no running test `{function}` in `{file}`"));
        }
        if !is_compiled(&root.join(file)) {
            return Some(format!("`{file}` is part of no test binary"));
        }
    }
    (named == 0).then(|| "no test named as `path/file.rs::function`".to_owned())
}

/// Whether a source has a function of this name under `#[test]`, not ignored.
fn has_test(source: &str, function: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let head = format!("fn {function}(");
    lines.iter().enumerate().any(|(at, line)| {
        line.starts_with(&head) && {
            // Attributes and comments, over as many lines as they take: up to the end of what stands before.
            let attributes = lines[..at].iter().rev();
            let attributes: Vec<_> = attributes
                .take_while(|line| !line.is_empty() && !line.ends_with(['{', '}', ';']))
                .collect();
            attributes.contains(&&"#[test]")
                && !attributes.iter().any(|line| line.starts_with("#[ignore"))
        }
    })
}

/// Whether `main.rs` of a test binary declares the module, directly or through its parents.
fn is_compiled(file: &Path) -> bool {
    if file.ends_with("main.rs") {
        return true;
    }
    let (Some(stem), Some(folder)) = (file.file_stem(), file.parent()) else {
        return false;
    };
    let (name, folder) = match (stem.to_str(), folder.parent()) {
        (Some("mod"), Some(parent)) => (folder.file_name(), parent),
        _ => (Some(stem), folder),
    };
    let declaration = format!("mod {};", name.unwrap_or_default().display());
    ["main.rs", "mod.rs"].iter().any(|parent| {
        let parent = folder.join(parent);
        std::fs::read_to_string(&parent).is_ok_and(|source| {
            source
                .lines()
                .any(|line| line.trim_start_matches("pub ") == declaration)
        }) && is_compiled(&parent)
    })
}

#[test]
fn every_fault_has_a_running_test() {
    let root = workspace();
    let page = std::fs::read_to_string(root.join("tests/faults.md")).expect("the page is there");
    let rows = rows(&page);
    assert!(rows.len() > 50, "only {} rows were found", rows.len());
    let problems: Vec<String> = rows
        .iter()
        .filter_map(|(fault, tests)| Some(format!("{fault}: {}", problem(&root, tests)?)))
        .collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

const THIS_FILE: &str = "tests/tests/parity_harness/faults.rs";

fn problem_of(test_cell: &str) -> Option<String> {
    problem(&workspace(), test_cell)
}

#[test]
fn a_test_that_exists_is_accepted() {
    let cell = format!("`{THIS_FILE}::a_test_that_exists_is_accepted`");
    assert_eq!(problem_of(&cell), None);
    assert_eq!(problem_of(&format!("{cell}, {cell}")), None);
}

#[test]
fn a_test_that_does_not_exist_is_reported() {
    for cell in [
        String::new(),
        "by review".into(),
        "`tests/tests/parity_harness/none.rs::f`".into(),
        format!("`{THIS_FILE}::no_such_function`"),
        // A function, but no test.
        format!("`{THIS_FILE}::has_test`"),
        // One that exists does not make up for one that does not.
        format!("`{THIS_FILE}::a_test_that_exists_is_accepted`, `{THIS_FILE}::missing`"),
    ] {
        assert!(problem_of(&cell).is_some(), "accepted {cell:?}");
    }
}

#[test]
fn an_ignored_test_does_not_count() {
    assert!(has_test("#[test]\nfn shown() {}", "shown"));
    assert!(has_test(
        "    /// Why.\n    #[test]\n    fn shown(x in 0..9) {}",
        "shown"
    ));
    assert!(!has_test(
        "#[test]\n#[ignore = \"slow\"]\nfn hidden() {}",
        "hidden"
    ));
    assert!(!has_test("fn helper() {}", "helper"));
    assert!(!has_test("#[test]\nfn shown_longer() {}", "shown"));
}

#[test]
fn a_file_outside_every_binary_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |file: &str, text: &str| {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        std::fs::write(path, text).expect("it is written");
    };
    write("main.rs", "mod declared;\nmod nested;\n");
    write("declared.rs", "#[test]\nfn t() {}\n");
    write("forgotten.rs", "#[test]\nfn t() {}\n");
    write("nested/mod.rs", "mod inner;\n");
    write("nested/inner.rs", "#[test]\nfn t() {}\n");
    let problem = |file: &str| problem(folder.path(), &format!("`{file}::t`"));
    assert_eq!(problem("declared.rs"), None);
    assert_eq!(problem("nested/inner.rs"), None);
    assert!(problem("forgotten.rs").is_some_and(|p| p.contains("no test binary")));
}

#[test]
fn only_tables_that_end_in_a_test_column_are_read() {
    let page = "| fault | source | test |\n|---|---|---|\n| a \\| b | #1 | `f.rs::t` |\n\n\
                | fault | when |\n|---|---|\n| later | kernels |\n";
    assert_eq!(
        rows(page),
        [("a \\| b | #1".to_owned(), "`f.rs::t`".to_owned())]
    );
}
