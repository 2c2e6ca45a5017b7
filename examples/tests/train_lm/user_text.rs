use std::fs;
use std::path::Path;

use examples::text::{Corpus, SplitRule, TextError, load_user_text, split_user_text};
use tempfile::TempDir;

fn folder_with(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for (path, bytes) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
    folder
}

fn error_of(path: &Path) -> TextError {
    let error = load_user_text(path).unwrap_err();
    assert!(
        error.to_string().contains(&path.display().to_string()),
        "{error}"
    );
    error
}

fn paths(corpus: &Corpus) -> Vec<&str> {
    corpus
        .documents
        .iter()
        .map(|document| document.path.as_str())
        .collect()
}

#[test]
fn a_file_is_one_document() {
    let folder = folder_with(&[("notes.txt", "naïve text".as_bytes())]);
    let corpus = load_user_text(&folder.path().join("notes.txt")).expect("a text");
    assert_eq!(paths(&corpus), ["notes.txt"]);
    assert_eq!(corpus.bytes(), 11);
}

#[test]
fn a_folder_is_read_in_path_order_without_hidden_and_binary_files() {
    let folder = folder_with(&[
        ("b/two.txt", b"2"),
        ("b.txt", b"1"),
        ("a/.hidden.txt", b"no"),
        (".git/config", b"no"),
        ("image.png", b"\x89PNG\x00"),
        ("latin1.txt", b"caf\xe9"),
    ]);
    let corpus = load_user_text(folder.path()).expect("a text");
    assert_eq!(paths(&corpus), ["b.txt", "b/two.txt"]);
}

#[cfg(unix)]
#[test]
fn loops_of_links_are_not_entered() {
    let folder = folder_with(&[("a/text.txt", b"text")]);
    std::os::unix::fs::symlink(folder.path(), folder.path().join("a/loop")).expect("a link");
    std::os::unix::fs::symlink("nowhere", folder.path().join("broken")).expect("a link");
    assert_eq!(
        paths(&load_user_text(folder.path()).expect("a text")),
        ["a/text.txt"]
    );
}

#[test]
fn what_is_no_text_is_a_typed_error_with_the_path() {
    let folder = folder_with(&[
        ("empty.txt", b""),
        ("nul.txt", b"a\0b"),
        ("bad.txt", b"\xff\xfe"),
        ("only/.x", b"x"),
    ]);
    let path = |name: &str| folder.path().join(name);
    assert!(matches!(
        error_of(&path("absent.txt")),
        TextError::Missing { .. }
    ));
    assert!(matches!(
        error_of(&path("empty.txt")),
        TextError::Empty {
            files: 1,
            skipped: 0,
            ..
        }
    ));
    assert!(matches!(
        error_of(&path("nul.txt")),
        TextError::NotText { .. }
    ));
    assert!(matches!(
        error_of(&path("bad.txt")),
        TextError::NotText { .. }
    ));
    assert!(matches!(
        error_of(&path("only")),
        TextError::Empty { files: 0, .. }
    ));

    let binaries = folder_with(&[("a.bin", b"\0"), ("b.bin", b"\xff")]);
    assert!(matches!(
        error_of(binaries.path()),
        TextError::Empty {
            files: 0,
            skipped: 2,
            ..
        }
    ));
}

#[cfg(unix)]
#[test]
fn a_device_is_no_text() {
    assert!(matches!(
        error_of(Path::new("/dev/zero")),
        TextError::NotAFile { .. }
    ));
}

#[test]
fn few_files_are_split_at_the_last_tenth() {
    let folder = folder_with(&[("a", &[b'a'; 60]), ("b", &[b'b'; 40])]);
    let corpus = load_user_text(folder.path()).expect("a text");
    let split = split_user_text(&corpus, 4);
    assert_eq!(split.rule, SplitRule::LastTenth);
    assert_eq!(
        (split.train.len(), &*split.validation),
        (90, &[b'b'; 10][..])
    );
}

#[test]
fn many_files_are_split_by_whole_files() {
    let names: Vec<String> = (0..30).map(|index| format!("{index:02}")).collect();
    let files: Vec<(&str, &[u8])> = names
        .iter()
        .map(|name| (name.as_str(), name.as_bytes()))
        .collect();
    let folder = folder_with(&files);
    let corpus = load_user_text(folder.path()).expect("a text");
    let split = split_user_text(&corpus, 4);
    assert_eq!(split.rule, SplitRule::EveryTenthFile);
    assert_eq!(&*split.validation, b"091929");
    assert_eq!(split.train.len(), 54);
    // Too little to validate on by file, so the text is cut instead.
    assert_eq!(split_user_text(&corpus, 40).rule, SplitRule::LastTenth);
}

#[test]
fn a_text_shorter_than_a_window_says_how_much_is_needed() {
    let folder = folder_with(&[("a", &[b'a'; 50])]);
    let corpus = load_user_text(&folder.path().join("a")).expect("a text");
    let error = split_user_text(&corpus, 8)
        .check_length(&corpus, 8)
        .unwrap_err();
    assert!(
        matches!(
            error,
            TextError::TooShort {
                bytes: 50,
                train: 45,
                validation: 5,
                needed: 9,
                ..
            }
        ),
        "{error}"
    );
    assert!(split_user_text(&corpus, 4).check_length(&corpus, 4).is_ok());
}
