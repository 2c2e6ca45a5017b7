use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::MetricsLine;

/// Without a terminal, a line is printed at least this often.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows how a run goes: a bar on a terminal, plain lines on standard error elsewhere.
pub struct Progress {
    view: View,
    tokens_per_step: usize,
    validation_loss: Option<f64>,
    first_step: usize,
    steps: usize,
    started: Instant,
}

enum View {
    Bar(ProgressBar),
    Lines { last: Option<Instant> },
}

impl Progress {
    /// A bar if standard error is a terminal, lines otherwise.
    pub fn on_stderr(tokens_per_step: usize) -> Self {
        match std::io::stderr().is_terminal() {
            true => Self::bar(ProgressDrawTarget::stderr(), tokens_per_step),
            false => Self::new(View::Lines { last: None }, tokens_per_step),
        }
    }

    /// A bar on a terminal of the caller's choice.
    pub fn bar(terminal: ProgressDrawTarget, tokens_per_step: usize) -> Self {
        let bar = ProgressBar::with_draw_target(None, terminal).with_style(bar_style());
        Self::new(View::Bar(bar), tokens_per_step)
    }

    fn new(view: View, tokens_per_step: usize) -> Self {
        Self {
            view,
            tokens_per_step,
            validation_loss: None,
            first_step: 0,
            steps: 0,
            started: Instant::now(),
        }
    }

    /// A session begins that has `done` of `steps` steps behind it.
    pub(super) fn start(&mut self, done: usize, steps: usize) {
        (self.first_step, self.steps, self.started) = (done, steps, Instant::now());
        if let View::Bar(bar) = &self.view {
            bar.set_position(done as u64);
            bar.set_length(steps as u64);
            // The steps of an earlier session say nothing about the speed of this one.
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(500));
        }
    }

    /// A step is done.
    pub(super) fn update(&mut self, line: &MetricsLine) {
        self.validation_loss = line.validation_loss.or(self.validation_loss);
        let done = line.step - self.first_step;
        let seconds = self.started.elapsed().as_secs_f64();
        let text = describe(
            line,
            self.validation_loss,
            (done * self.tokens_per_step) as f64 / seconds,
        );
        let is_last = line.step == self.steps;
        match &mut self.view {
            View::Bar(bar) => {
                bar.set_position(line.step as u64);
                bar.set_message(text);
            }
            View::Lines { last } => {
                let due = last.is_none_or(|time| time.elapsed() >= LINE_INTERVAL);
                if due || line.validation_loss.is_some() || is_last {
                    let left = seconds / done as f64 * (self.steps - line.step) as f64;
                    let left = HumanDuration(Duration::from_secs_f64(left));
                    // A reader that has gone away is no reason to lose a run.
                    let _ = writeln!(
                        std::io::stderr(),
                        "step {}/{}  {text}  {left} left",
                        line.step,
                        self.steps
                    );
                    *last = Some(Instant::now());
                }
            }
        }
    }

    /// The session ends; what was shown last stays visible.
    pub(super) fn finish(&mut self) {
        if let View::Bar(bar) = &self.view {
            bar.abandon();
        }
    }
}

fn describe(line: &MetricsLine, validation_loss: Option<f64>, tokens_per_second: f64) -> String {
    let loss = |value: Option<f64>| value.map_or("-".to_owned(), |loss| format!("{loss:.4}"));
    format!(
        "loss {}  validation {}  {tokens_per_second:.0} tokens/s",
        loss(line.train_loss.map(f64::from)),
        loss(validation_loss)
    )
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{pos}/{len}  {msg}  {eta} left  {wide_bar}")
        .expect("the template is a constant, and a test draws it")
}
