use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use super::Point;

/// Shows on standard error how a run goes: a bar on a terminal, a line for every evaluation elsewhere.
pub struct RunDisplay {
    bar: ProgressBar,
    prints_lines: bool,
    accuracy: String,
    first_step: usize,
    steps: usize,
    started: Instant,
}

impl RunDisplay {
    /// A display that shows nothing until the run starts.
    pub fn on_stderr() -> Self {
        let style = ProgressStyle::with_template("{pos}/{len}  {msg}  {eta} left  {wide_bar}")
            .expect("the template is a constant, and every run makes one of it");
        Self {
            // The bar hides itself where there is no terminal.
            bar: ProgressBar::no_length().with_style(style),
            prints_lines: !std::io::stderr().is_terminal(),
            accuracy: "-".to_owned(),
            first_step: 0,
            steps: 0,
            started: Instant::now(),
        }
    }

    /// A session begins that has `done` of `steps` steps behind it.
    pub(super) fn start(&mut self, done: usize, steps: usize) {
        (self.first_step, self.steps, self.started) = (done, steps, Instant::now());
        self.bar.set_length(steps as u64);
        self.bar.set_position(done as u64);
        // The steps of an earlier session say nothing about the speed of this one.
        self.bar.reset_eta();
    }

    /// A step is done.
    pub(super) fn step(&mut self, step: usize, loss: f64) {
        self.bar.set_position(step as u64);
        self.bar
            .set_message(format!("loss {loss:.4}  accuracy {}", self.accuracy));
    }

    /// An evaluation is done.
    pub(super) fn evaluated(&mut self, point: &Point) {
        self.accuracy = format!("{:.1} %", 100.0 * point.accuracy);
        if !self.prints_lines {
            return;
        }
        let done = (point.step - self.first_step) as f64;
        let per_step = self.started.elapsed().as_secs_f64() / done;
        let left = Duration::from_secs_f64(per_step * (self.steps - point.step) as f64);
        // A reader that has gone away is no reason to lose a run.
        let _ = writeln!(
            std::io::stderr(),
            "step {}/{}  loss {:.4}  accuracy {}  {:.0} ms a step  {} left",
            point.step,
            self.steps,
            point.loss,
            self.accuracy,
            1e3 * per_step,
            HumanDuration(left)
        );
    }

    /// The session ends; what was shown last stays visible.
    pub(super) fn finish(&mut self) {
        self.bar.abandon();
    }
}
