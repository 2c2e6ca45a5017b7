use std::io;
use std::sync::{Arc, Mutex};

use examples::cli::Cli;
use examples::train::{Interrupt, Outcome, Progress, RunFolder, Task, start};
use indicatif::{ProgressDrawTarget, TermLike};

use crate::tiny::{FLAGS, Place};

/// A terminal of 120 columns that remembers what was drawn on it.
#[derive(Clone, Debug, Default)]
struct Paper(Arc<Mutex<String>>);

impl Paper {
    fn text(&self) -> String {
        self.0.lock().expect("no draw panics").clone()
    }
}

impl TermLike for Paper {
    fn width(&self) -> u16 {
        120
    }

    fn move_cursor_up(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)?;
        self.write_str("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.lock().expect("no draw panics").push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write_str("\n")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_bar_shows_losses_speed_and_time_left() {
    let place = Place::new();
    let text = place.text();
    let text = ["--text", text.to_str().expect("a temporary path is UTF-8")];
    let line = ["train-lm", "--steps", "3"]
        .iter()
        .chain(&FLAGS)
        .chain(&text);
    let settings = Cli::parse_line(line).expect("flags").settings;
    let task = Task::load(&settings).expect("a text");
    let folder = RunFolder::create(&place.path("run"), false).expect("a folder");
    let paper = Paper::default();
    let mut progress = Progress::bar(ProgressDrawTarget::term_like(Box::new(paper.clone())), 32);
    let outcome = start(
        &folder,
        settings,
        &task,
        &Interrupt::default(),
        &mut progress,
    )
    .expect("a run of three steps");
    assert!(matches!(outcome, Outcome::Finished { .. }));

    let drawn = paper.text();
    let last = drawn
        .lines()
        .rfind(|line| line.contains("3/3"))
        .unwrap_or_else(|| panic!("no last step in {drawn:?}"));
    let parts = ["loss ", "validation ", " tokens/s", " left", "\u{2588}"];
    let places: Vec<_> = parts.iter().map(|part| last.find(part)).collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{last:?}"
    );
    assert!(!last.contains("validation -"), "{last:?}");
}
