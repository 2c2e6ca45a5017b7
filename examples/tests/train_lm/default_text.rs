use std::collections::BTreeSet;
use std::fs;

use examples::text::{
    BURN_VERSION, BurnSources, DEFAULT_BYTES, DEFAULT_FILES, DEFAULT_PACKAGES, DEFAULT_SHA256,
    MAX_FILE_BYTES, TextError, VALIDATION_PACKAGES, load_default_text, split_by_group,
};
use tempfile::TempDir;

fn cargo_sources() -> BurnSources {
    BurnSources::from_cargo_home().expect("cargo's home is known")
}

#[test]
fn has_the_published_files_bytes_and_digest() {
    let corpus = cargo_sources()
        .read(&DEFAULT_PACKAGES)
        .expect("the sources are unpacked");
    assert_eq!(corpus.documents.len(), DEFAULT_FILES);
    assert_eq!(corpus.bytes(), DEFAULT_BYTES);
    assert_eq!(corpus.sha256(), DEFAULT_SHA256);
}

#[test]
fn is_in_path_order_and_is_text() {
    let corpus = load_default_text(&cargo_sources()).expect("the default text");
    let places: Vec<_> = corpus
        .documents
        .iter()
        .map(|d| (d.group.clone(), d.path.clone()))
        .collect();
    assert!(places.is_sorted());
    for document in &corpus.documents {
        assert!(document.path.ends_with(".rs") && !document.path.contains('\\'));
        assert!(document.bytes.len() as u64 <= MAX_FILE_BYTES);
        assert!(
            std::str::from_utf8(&document.bytes).is_ok() && !document.bytes.contains(&0),
            "{document:?}"
        );
    }
}

#[test]
fn packages_are_those_of_the_lock_file() {
    let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock"))
        .expect("Cargo.lock");
    for package in DEFAULT_PACKAGES {
        let entry = format!("name = \"{package}\"\nversion = \"{BURN_VERSION}\"");
        assert!(lock.replace("\r\n", "\n").contains(&entry), "{package}");
    }
    assert!(DEFAULT_PACKAGES.is_sorted());
}

#[test]
fn split_keeps_packages_whole_and_apart() {
    let corpus = load_default_text(&cargo_sources()).expect("the default text");
    let split = split_by_group(&corpus, &VALIDATION_PACKAGES);
    assert_eq!(split.train.len() + split.validation.len(), DEFAULT_BYTES);
    let share = split.validation.len() as f64 / DEFAULT_BYTES as f64;
    assert!((0.02..0.12).contains(&share), "{share}");

    let (mut train, mut validation) = (Vec::new(), Vec::new());
    let mut groups = (BTreeSet::new(), BTreeSet::new());
    for document in &corpus.documents {
        if VALIDATION_PACKAGES.contains(&document.group.as_str()) {
            validation.extend_from_slice(&document.bytes);
            groups.1.insert(&document.group);
        } else {
            train.extend_from_slice(&document.bytes);
            groups.0.insert(&document.group);
        }
    }
    assert_eq!((&*split.train, &*split.validation), (&*train, &*validation));
    assert_eq!(
        (groups.0.len(), groups.1.len()),
        (DEFAULT_PACKAGES.len() - 2, 2)
    );
    assert!(groups.0.is_disjoint(&groups.1));
}

#[test]
fn missing_package_is_named_with_what_to_do() {
    let registry = TempDir::new().expect("a temporary folder");
    let error = load_default_text(&BurnSources::in_registry(registry.path())).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, TextError::PackageMissing { .. }));
    assert!(
        message.contains("burn-0.22.1") && message.contains("cargo fetch"),
        "{message}"
    );
    assert!(message.contains("--text PATH"), "{message}");
}

#[test]
fn changed_sources_are_refused() {
    let registry = TempDir::new().expect("a temporary folder");
    for package in DEFAULT_PACKAGES {
        let folder = registry
            .path()
            .join("mirror")
            .join(format!("{package}-{BURN_VERSION}"));
        fs::create_dir_all(&folder).expect("a package folder");
        fs::write(folder.join("lib.rs"), "fn other() {}").expect("a file");
    }
    let error = load_default_text(&BurnSources::in_registry(registry.path())).unwrap_err();
    assert!(
        matches!(
            error,
            TextError::Changed {
                files: 18,
                bytes: 234,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn reads_rust_files_of_the_first_registry_that_has_the_package() {
    let registry = TempDir::new().expect("a temporary folder");
    let package = registry.path().join("b-mirror").join("burn-0.22.1");
    fs::create_dir_all(package.join("src/a")).expect("folders");
    fs::create_dir_all(registry.path().join("a-mirror/burn-core-0.22.1")).expect("folders");
    fs::write(package.join("src/a/x.rs"), "1").expect("a file");
    fs::write(package.join("src/a.rs"), "2").expect("a file");
    fs::write(package.join("README.md"), "no").expect("a file");
    fs::write(
        package.join("src/long.rs"),
        vec![b'x'; MAX_FILE_BYTES as usize + 1],
    )
    .expect("a file");
    fs::write(
        package.join("src/most.rs"),
        vec![b'x'; MAX_FILE_BYTES as usize],
    )
    .expect("a file");

    let corpus = BurnSources::in_registry(registry.path())
        .read(&["burn"])
        .expect("the package");
    let paths: Vec<_> = corpus
        .documents
        .iter()
        .map(|document| document.path.as_str())
        .collect();
    assert_eq!(paths, ["src/a.rs", "src/a/x.rs", "src/most.rs"]);
}
